// copy_: every pair of devices, dtypes and layouts.
#include <ATen/core/Tensor.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "csrc/ops/counters.h"
#include "csrc/ops/direct_copy.h"
#include "csrc/ops/factories.h"
#include "csrc/ops/operator_call.h"
#include "csrc/ops/transfer.h"
#include "csrc/runtime/host_allocator.h"

namespace flagos::ops {

namespace {

bool onDevice(const at::Tensor& tensor) { return tensor.device().type() == kDeviceType; }

OpId copyId() {
  static const OpId id = opId("aten::copy_");
  return id;
}

// PyTorch's own copy kernel over lent memory: dtypes, strides, conjugate bits and the check for overlap are
// its business.
void copyOnHost(const at::Tensor& destination, const at::Tensor& source) {
  OperatorCall call(copyId(), {.host_tensors_allowed = true}, Source::Cpu);
  // A destination on the host is the caller's own tensor: the kernel writes it directly.
  if (onDevice(destination)) call.see(destination, Access::Overwrite);
  call.see(source);
  call.settle();
  call.begin();
  at::Tensor target = call.alias(destination);
  at::_ops::copy_::redispatch(call.keys(), target, call.alias(source), /*non_blocking=*/false);
  call.finishWrites();
}

// Aliases for kernels of the companion, as long as the scope lasts.
class AliasScope {
 public:
  AliasScope() : slots_(AliasSlots::ofThread()), mark_(slots_.mark()) {}
  ~AliasScope() { slots_.release(mark_); }
  AliasScope(const AliasScope&) = delete;
  AliasScope& operator=(const AliasScope&) = delete;
  // `views`: the kernel may make views of it, which take their device from the storage.
  const at::Tensor& onCompanion(const at::Tensor& tensor, bool views) const {
    if (!onDevice(tensor)) return tensor;
    const DeviceEntry& entry = deviceEntry(tensor.device().index());
    const Companion& companion = *entry.companion;
    const c10::Device device = companionDevice(entry);
    if (!views) return *slots_.shareStorage(tensor, companion.keys, device).alias;
    return *slots_.borrowMemory(tensor, companion.keys, device, companion.allocator).alias;
  }

 private:
  AliasSlots& slots_;
  AliasSlots::Mark mark_;
};

// The companion's own copy kernel serves every pair of its devices, the host and tensors of its own type.
void copyByKernel(const at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  const DeviceEntry& entry = deviceEntry((onDevice(destination) ? destination : source).device().index());
  countCall(copyId(), Source::Boxed, entry.index);
  const AliasScope aliases;
  // Within one device it is elementwise; else it may pack and convert by the way.
  const bool views = destination.device() != source.device();
  at::Tensor& target = const_cast<at::Tensor&>(aliases.onCompanion(destination, views));
  at::_ops::copy_::redispatch(entry.companion->keys, target, aliases.onCompanion(source, views),
                              non_blocking);
}

// The companion that serves this side of a copy; null for the host and for devices without one.
const Companion* companionOf(const at::Tensor& tensor) {
  return onDevice(tensor) ? deviceEntry(tensor.device().index()).companion : nullptr;
}

bool servedByCompanion(const at::Tensor& destination, const at::Tensor& source) {
  const Companion* companion = companionOf(onDevice(destination) ? destination : source);
  if (companion == nullptr) return false;
  const auto known = [&](const at::Tensor& tensor) {
    return tensor.is_cpu() || tensor.device().type() == companion->type || companionOf(tensor) == companion;
  };
  return known(destination) && known(source);
}

bool sameBits(const at::Tensor& destination, const at::Tensor& source) {
  return destination.dtype() == source.dtype() && destination.is_conj() == source.is_conj() &&
         destination.is_neg() == source.is_neg();
}

bool sameLayout(const at::Tensor& destination, const at::Tensor& source) {
  return destination.sizes() == source.sizes() && destination.is_non_overlapping_and_dense() &&
         (destination.strides() == source.strides() ||
          (destination.is_contiguous() && source.is_contiguous()));
}

bool sharesMemory(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

// A dense tensor of `destination`'s dtype and sizes on the device of `like`; keeps destination's strides
// where they are dense.
at::Tensor denseLike(const at::Tensor& destination, const at::Tensor& like) {
  return at::empty_like(
      destination, destination.options().device(like.device()).pinned_memory(false),
      destination.is_non_overlapping_and_dense() ? at::MemoryFormat::Preserve : at::MemoryFormat::Contiguous);
}

// Device and host, or two devices: convert and pack on the side of the source, move the bytes, unpack on the
// side of the destination.
void copyAcross(const at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  if (sameBits(destination, source) && sameLayout(destination, source)) {
    transfer(destination, source, non_blocking);
    return;
  }
  at::Tensor packed = source;
  const bool dense_destination = destination.is_non_overlapping_and_dense();
  if (source.is_conj() || source.is_neg() || destination.is_conj() || destination.is_neg() ||
      source.dtype() != destination.dtype() || source.sizes() != destination.sizes() ||
      !source.is_non_overlapping_and_dense() || (dense_destination && !sameLayout(destination, source))) {
    packed = denseLike(destination, source);
    packed.copy_(source);
  }
  if (dense_destination && sameLayout(destination, packed) && sameBits(destination, packed)) {
    transfer(destination, packed, /*non_blocking=*/false);
    return;
  }
  at::Tensor arrived =
      at::empty_like(packed, packed.options().device(destination.device()), at::MemoryFormat::Preserve);
  transfer(arrived, packed, /*non_blocking=*/false);
  at::Tensor(destination).copy_(arrived);
}

// Between flagos and another device type, each of which knows the host.
void copyByHost(const at::Tensor& destination, const at::Tensor& source) {
  at::Tensor(destination).copy_(source.to(at::kCPU));
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.is_same(source)) return self;
  TORCH_CHECK(self.layout() == at::Layout::Strided && source.layout() == at::Layout::Strided,
              "flagos: copy_ from layout ", source.layout(), " to layout ", self.layout(),
              " is not supported.");
  const at::Tensor expanded = source.sizes() == self.sizes() ? source : source.expand_as(self);
  if (self.numel() == 0) return self;
  // Tensors that stand for zeros (forward-mode AD) have no memory to copy from or to.
  TORCH_CHECK(!self._is_zerotensor(), "ZeroTensors are immutable; use materialize_zeros() or clone() first.");
  if (source._is_zerotensor()) return self.zero_();
  if (servedByCompanion(self, expanded)) {
    if (non_blocking || !copyDirectly(self, expanded)) copyByKernel(self, expanded, non_blocking);
    return self;
  }
  const bool within = onDevice(self) && onDevice(expanded);
  if (within && self.device() == expanded.device()) {
    const DeviceEntry& entry = deviceEntry(self.device().index());
    const bool plain =
        sameBits(self, expanded) && sameLayout(self, expanded) && !sharesMemory(self, expanded);
    if (plain && !entry.host_accessible) {
      transfer(self, expanded, non_blocking);
    } else {
      copyOnHost(self, expanded);
    }
    return self;
  }
  if (!within) {
    const DeviceEntry& entry = deviceEntry((onDevice(self) ? self : expanded).device().index());
    const at::Tensor& host = onDevice(self) ? expanded : self;
    if (!host.is_cpu()) {  // a device that neither the backend nor a companion knows
      copyByHost(self, expanded);
      return self;
    }
    const bool queued = non_blocking && isPinned(host.storage().data());
    if (entry.host_accessible && !queued) {
      copyOnHost(self, expanded);
      return self;
    }
  }
  copyAcross(self, expanded, non_blocking);
  return self;
}

// For PyTorch's own paths that ask a backend to copy between it and another device.
at::Tensor copyFrom(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  at::Tensor target = destination;
  copy(target, self, non_blocking);
  return target;
}

at::Tensor copyFromAndResize(const at::Tensor& self, const at::Tensor& destination) {
  destination.resize_(self.sizes());
  return copyFrom(self, destination, /*non_blocking=*/false);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("copy_", TORCH_FN(copy));
  library.impl("_copy_from", TORCH_FN(copyFrom));
  library.impl("_copy_from_and_resize", TORCH_FN(copyFromAndResize));
}

}  // namespace flagos::ops
