// Copies between the stand-in's devices and the host, and reading one number.
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_like.h>

#include "host_call.h"
#include "kernels.h"
#include "streams.h"
#include "strictness.h"

namespace standin {
namespace {

bool ours(const at::Tensor& tensor) { return tensor.device().type() == kType; }

// A copy runs on the current stream of its source's device, or of its destination's if the source is the
// host's. It may span two devices, so its arguments are looked at one by one.
class Copying {
 public:
  Copying(const OpInfo& info, const at::Tensor& destination, const at::Tensor& source)
      : info_(info), to_(info), from_(info) {
    TORCH_CHECK(ours(destination) || destination.is_cpu(), "standin: copying from ", source.device(), " to ",
                destination.device(), " is not served.");
    TORCH_CHECK(ours(source) || source.is_cpu(), "standin: copying from ", source.device(), " to ",
                destination.device(), " is not served.");
    // The source first: of two calls it is the one that is counted and logged.
    if (ours(source)) from_.see(source, read_);
    if (ours(destination)) to_.see(destination, write_);
    (ours(source) ? from_ : to_).begin();
  }

  void run(const at::Tensor& destination, const at::Tensor& source) {
    static const c10::DispatchKeySet host_keys(c10::DispatchKey::CPU);
    const bool one_device = ours(source) && ours(destination) && source.device() == destination.device();
    HostCall& to = one_device ? from_ : to_;  // one storage must become one alias
    at::Tensor target = to.alias(destination);
    at::_ops::copy_::redispatch(host_keys, target, from_.alias(source), /*non_blocking=*/false);
    (ours(source) ? from_ : to_).finishWrites();
  }

 private:
  const OpInfo& info_;
  HostCall to_;
  HostCall from_;
  const Argument write_{"self", ArgumentKind::Tensor, false};  // a copy never resizes
  const Argument read_{"src", ArgumentKind::Tensor, false};
};

// As CUDA's kernel does between devices, where bytes alone will not do: with views of its arguments, which are
// of the stand-in only if the arguments' storages are.
void copyInSteps(at::Tensor& self, const at::Tensor& source) {
  const at::Tensor packed = source.to(self.scalar_type()).expand_as(self).contiguous();
  const at::Tensor arrived = self.is_contiguous()
                                 ? self.view(self.sizes())
                                 : at::empty_like(self, self.options(), at::MemoryFormat::Contiguous);
  arrived.copy_(packed);
  if (!self.is_contiguous()) self.copy_(arrived);
}

bool needsSteps(const at::Tensor& self, const at::Tensor& source) {
  return self.device() != source.device() &&
         (self.dtype() != source.dtype() || self.is_contiguous() != source.is_contiguous());
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool /*non_blocking*/) {
  static const OpInfo& info = opInfo("aten::copy_");
  if (self.is_same(source)) return self;
  TORCH_CHECK(!self._is_zerotensor(), "ZeroTensors are immutable.");
  if (source._is_zerotensor()) return self.zero_();
  if (needsSteps(self, source)) {
    copyInSteps(self, source);
  } else {
    Copying(info, self, source).run(self, source);
  }
  return self;
}

at::Tensor copyFrom(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  at::Tensor target = destination;
  return copy(target, self, non_blocking);
}

at::Tensor copyFromAndResize(const at::Tensor& self, const at::Tensor& destination) {
  destination.resize_(self.sizes());
  return copyFrom(self, destination, /*non_blocking=*/false);
}

at::Scalar localScalarDense(const at::Tensor& self) {
  static const OpInfo& info = opInfo("aten::_local_scalar_dense");
  HostCall call(info);
  call.see(self, info.arguments[0]);
  call.begin();
  return at::native::_local_scalar_dense_cpu(call.alias(self));
}

}  // namespace

void registerCopies(torch::Library& library) {
  library.impl("copy_", TORCH_FN(copy));
  library.impl("_copy_from", TORCH_FN(copyFrom));
  library.impl("_copy_from_and_resize", TORCH_FN(copyFromAndResize));
  library.impl("_local_scalar_dense", TORCH_FN(localScalarDense));
}

}  // namespace standin
