// standin::lend: a tensor of hpu over another tensor's storage, label and all, as core lends its tensors to
// elementwise kernels. It is how the tests of the stand-in show it a tensor that it must refuse.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "devices.h"

namespace standin {
namespace {

// The device is a protected member with no setter of its own.
struct DeviceLabel : c10::TensorImpl {
  static void set(c10::TensorImpl* impl, c10::Device device) { impl->*(&DeviceLabel::device_opt_) = device; }
};

at::Tensor lend(const at::Tensor& tensor, int64_t device) {
  auto impl =
      c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(tensor.storage()),
                                           c10::DispatchKeySet(c10::DispatchKey::HPU), tensor.dtype());
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  DeviceLabel::set(impl.get(), deviceOf(static_cast<c10::DeviceIndex>(device)));
  return at::Tensor(std::move(impl));
}

}  // namespace

TORCH_LIBRARY(standin, library) {
  library.def("lend(Tensor tensor, int device) -> Tensor", torch::CppFunction(TORCH_FN(lend)));
}

}  // namespace standin
