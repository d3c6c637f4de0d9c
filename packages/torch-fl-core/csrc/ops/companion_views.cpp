#include "csrc/ops/companion_views.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/StorageImpl.h>

#include "csrc/runtime/companion.h"
#include "csrc/runtime/device_allocator.h"

namespace flagos::ops {

namespace {

// The view's memory belongs to this reference of the original's storage.
void release(void* context) { delete static_cast<c10::Storage*>(context); }

at::Tensor over(const at::Tensor& tensor, c10::Device device, c10::DispatchKeySet keys,
                c10::Allocator* allocator) {
  TORCH_CHECK(tensor.layout() == c10::Layout::Strided && !tensor.is_nested() && !tensor.is_quantized(),
              "flagos: only dense tensors are shared between a device and its companion.");
  const c10::Storage& storage = tensor.storage();
  auto* owner = new c10::Storage(storage);
  c10::DataPtr data(storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get(), owner, &release,
                    device);
  auto impl = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
                                                    std::move(data), allocator, /*resizable=*/false);
  at::Tensor view =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(impl)), keys, tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                    tensor.storage_offset());
  if (tensor.is_conj()) view._set_conj(true);
  if (tensor.is_neg()) view._set_neg(true);
  return view;
}

}  // namespace

at::Tensor asCompanion(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.device().type() == kDeviceType,
                    "flagos: as_companion takes a flagos tensor; this one is on ", tensor.device(), ".");
  const DeviceEntry& entry = deviceEntry(tensor.device().index());
  TORCH_CHECK(entry.companion != nullptr, "flagos: ", describeDevice(entry), " has no companion",
              entry.backend->request.companion.empty()
                  ? std::string(": torch serves its chips under no other device type.")
                  : " in this process: " + entry.backend->companion_reason + ".");
  return over(tensor, companionDevice(entry), entry.companion->keys, entry.companion->allocator);
}

at::Tensor fromCompanion(const at::Tensor& tensor) {
  activate();
  const DeviceEntry* entry = deviceOfCompanion(tensor.device());
  TORCH_CHECK_VALUE(entry != nullptr, "flagos: ", tensor.device(),
                    " is the companion of no flagos device in this process.");
  return over(tensor, c10::Device(kDeviceType, entry->index),
              c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), deviceAllocator());
}

}  // namespace flagos::ops
