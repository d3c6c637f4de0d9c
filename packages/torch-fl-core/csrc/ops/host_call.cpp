#include "csrc/ops/host_call.h"

#include <ATen/ops/as_strided_native.h>
#include <c10/core/TensorImpl.h>

#include "csrc/runtime/device_allocator.h"
#include "csrc/runtime/stream.h"

namespace flagos::ops {

namespace {

const c10::Device kHost(c10::DeviceType::CPU);

// Relabels a tensor that nobody else holds. The device is a protected member with no setter of its own:
// TensorImpl's public functions change it only together with the storage.
struct DeviceLabel : c10::TensorImpl {
  static void setDevice(c10::TensorImpl* impl, c10::Device device) {
    impl->*(&DeviceLabel::device_opt_) = device;
  }
  static void set(c10::TensorImpl* impl, c10::Device device) {
    impl->_change_backend_component_keys(device);
    setDevice(impl, device);
  }
};

at::Tensor makeAlias(const at::Tensor& tensor, c10::Storage storage, int64_t offset, bool counts_versions) {
  c10::TensorImpl* original = tensor.unsafeGetTensorImpl();
  c10::DispatchKeySet keys = c10::DispatchKeySet(c10::DispatchKey::CPU) | (original->key_set() & kValueKeys);
  // A tensor without autograd's keys has no version counter.
  counts_versions = counts_versions && !original->is_inference();
  if (C10_UNLIKELY(counts_versions)) {
    keys = keys | c10::getAutogradRelatedKeySetFromBackend(c10::BackendComponent::CPUBit) |
           c10::inplace_or_view_ks;
  }
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(storage), keys,
                                                   original->dtype());
  impl->set_sizes_and_strides(original->sizes(), original->strides(), offset);
  if (C10_UNLIKELY(original->is_wrapped_number())) impl->set_wrapped_number(true);
  if (C10_UNLIKELY(counts_versions)) impl->set_version_counter(original->version_counter());
  return at::Tensor(std::move(impl));
}

}  // namespace

bool spanDevices(at::TensorList tensors, std::optional<c10::Device>& first) noexcept {
  for (const at::Tensor& tensor : tensors) {
    if (!first.has_value()) first = tensor.device();
    if (tensor.device() != *first) return true;
  }
  return false;
}

bool HostCall::deviceDiffers(const at::Tensor& tensor, Access access) const {
  // As everywhere in PyTorch, a 0-dim tensor of the host stands for a number; but it cannot hold a device's
  // result.
  return access != Access::Read || (tensor.dim() != 0 && !traits_.host_tensors_allowed);
}

void HostCall::see(const at::Tensor& tensor, Access access) {
  if (!tensor.defined()) return;
  const c10::Device device = tensor.device();
  if (C10_LIKELY(device.type() == kDeviceType)) {
    if (C10_LIKELY(device_ < 0)) {
      device_ = device.index();
      entry_ = &deviceEntry(device_);
      zero_copy_ = entry_->host_accessible;
    } else if (C10_UNLIKELY(device_ != device.index())) {
      throwDeviceMismatch(tensor);
    }
    if (access != Access::Read || !zero_copy_) seen_.emplace_back(&tensor, access);
    return;
  }
  if (deviceDiffers(tensor, access)) host_tensor_ = &tensor;
}

void HostCall::seeDevice(std::optional<c10::Device> device) {
  if (!device.has_value() || device->type() != kDeviceType || device_ >= 0) return;
  device_ = resolveIndex(device->index());
  entry_ = &deviceEntry(device_);
  zero_copy_ = entry_->host_accessible;
}

void HostCall::throwDeviceMismatch(const at::Tensor& tensor) const {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
              c10::Device(kDeviceType, device_), " and ", tensor.device(), "! (", opName(op_),
              ") Move one of them, for example with .to(\"", c10::Device(kDeviceType, device_), "\").");
}

void HostCall::begin() {
  if (C10_UNLIKELY(device_ < 0)) {
    device_ = currentDevice();
    entry_ = &deviceEntry(device_);
    zero_copy_ = entry_->host_accessible;
  }
  if (C10_UNLIKELY(host_tensor_ != nullptr)) throwDeviceMismatch(*host_tensor_);
  countCall(op_, Source::Cpu);
  drainCurrentStream(*entry_);
  if (C10_LIKELY(zero_copy_)) {
    installHostRegionAllocator();
    region_.emplace(device_);
  } else {
    stage();
  }
}

HostCall::LentStorage& HostCall::lend(const at::Tensor& tensor) {
  c10::StorageImpl* original = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  for (auto& lent : storages_) {
    if (lent.original == original) return lent;
  }
  TORCH_INTERNAL_ASSERT(zero_copy_, "flagos: a tensor reached a staged call unseen");
  void* data = original->_mutable_data_ptr_no_checks().get();
  LentStorage lent;
  lent.original = original;
  lent.lent_data = data;
  // Borrowed: no context and no deleter. The caller holds the original for the whole call.
  lent.borrowed = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                        original->nbytes(), c10::DataPtr(data, kHost),
                                                        hostRegionAllocator(), original->resizable());
  storages_.push_back(std::move(lent));
  return storages_.back();
}

at::Tensor HostCall::alias(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kDeviceType) return tensor;
  // A tensor given twice stays one tensor: kernels tell an in-place call by it, and then refuse to resize.
  for (const auto& lent : lent_) {
    if (!lent.original->is_same(tensor)) continue;
    lent_.push_back({&tensor, lent.alias});
    return lent_.back().alias;
  }
  if (traits_.elementwise && zero_copy_) {
    c10::TensorImpl* original = tensor.unsafeGetTensorImpl();
    lent_.push_back({&tensor, makeAlias(tensor, original->storage(), original->storage_offset(), false)});
    DeviceLabel::setDevice(lent_.back().alias.unsafeGetTensorImpl(), kHost);
    return lent_.back().alias;
  }
  const LentStorage& storage = lend(tensor);
  const int64_t itemsize = static_cast<int64_t>(tensor.unsafeGetTensorImpl()->itemsize());
  const int64_t offset = tensor.unsafeGetTensorImpl()->storage_offset() -
                         (C10_LIKELY(storage.first_byte == 0) ? 0 : storage.first_byte / itemsize);
  at::Tensor alias = makeAlias(tensor, storage.borrowed, offset, traits_.counts_versions);
  lent_.push_back({&tensor, alias});
  return alias;
}

at::Tensor HostCall::viewOnOriginal(const at::Tensor& output, const LentStorage& storage) {
  for (const auto& lent : lent_) {
    const bool same_storage =
        lent.original->unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == storage.original;
    if (!same_storage || lent.original->dtype() != output.dtype()) continue;
    const int64_t offset =
        output.storage_offset() + storage.first_byte / static_cast<int64_t>(output.itemsize());
    return at::native::as_strided_tensorimpl(*lent.original, output.sizes(), output.strides(), offset);
  }
  return upload(output.clone());  // a view as another dtype: no operator but the view primitives returns one
}

at::Tensor HostCall::result(at::Tensor output) {
  if (!output.defined() || output.device().type() == kDeviceType) return output;
  const c10::TensorImpl* impl = output.unsafeGetTensorImpl();
  for (const auto& lent : lent_) {
    if (lent.alias.unsafeGetTensorImpl() == impl) return *lent.original;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      output.layout() == c10::Layout::Strided && !output.is_quantized() && !output.is_nested(),
      "flagos: ", opName(op_), " returned a ",
      output.is_quantized() ? "quantized"
      : output.is_nested()  ? "nested"
                            : "sparse or packed",
      " tensor, which the device does not hold yet. Run it on the CPU: tensor.cpu().");
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  for (const auto& lent : storages_) {
    if (lent.borrowed.get() == storage) return viewOnOriginal(output, lent);
  }
  return zero_copy_ ? adopt(std::move(output)) : upload(output);
}

at::Tensor HostCall::adopt(at::Tensor output) {
  c10::StorageImpl* storage = output.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const c10::Device device(kDeviceType, device_);
  if (C10_LIKELY(storage->device() != device)) {  // else: shared with a result that was adopted before
    if (C10_LIKELY(storage->nbytes() != 0)) {
      c10::DataPtr data = adoptRegionMemory(std::move(storage->_mutable_data_ptr_no_checks()), device);
      const bool ours = data.device() == device;
      storage->set_data_ptr_noswap(std::move(data));
      // Memory of another allocator (a library's own, another thread's). Rare; a copy keeps device memory in
      // device blocks.
      if (C10_UNLIKELY(!ours)) return upload(output);
    } else {
      storage->set_data_ptr_noswap(c10::DataPtr(nullptr, device));
    }
    storage->set_allocator(deviceAllocator());
  }
  DeviceLabel::set(output.unsafeGetTensorImpl(), device);
  return output;
}

void HostCall::finishWrites() {
  for (const auto& [tensor, access] : seen_) {
    if (access == Access::Read) continue;
    for (const auto& lent : lent_) {
      if (lent.original != tensor || (zero_copy_ && traits_.elementwise)) continue;
      LentStorage& storage = lend(*tensor);
      carryValueBits(*tensor, lent.alias);
      if (C10_LIKELY(zero_copy_)) {
        finishZeroCopy(*tensor, lent.alias, storage);
      } else {
        finishStaged(*tensor, lent.alias, storage);
      }
      break;
    }
  }
}

void HostCall::carryValueBits(const at::Tensor& tensor, const at::Tensor& alias) {
  if (C10_UNLIKELY(alias.is_conj() != tensor.is_conj())) tensor._set_conj(alias.is_conj());
  if (C10_UNLIKELY(alias.is_neg() != tensor.is_neg())) tensor._set_neg(alias.is_neg());
}

void HostCall::finishZeroCopy(const at::Tensor& tensor, const at::Tensor& alias, LentStorage& storage) {
  if (C10_UNLIKELY(storage.borrowed->data() != storage.lent_data)) {
    // The kernel resized an out= argument: its new memory becomes the caller's.
    c10::DataPtr data = adoptRegionMemory(std::move(storage.borrowed->_mutable_data_ptr_no_checks()),
                                          c10::Device(kDeviceType, device_));
    storage.lent_data = data.get();
    storage.borrowed->set_data_ptr_noswap(c10::DataPtr(data.get(), kHost));
    storage.original->set_data_ptr_noswap(std::move(data));
    storage.original->set_nbytes(storage.borrowed->nbytes());
  }
  if (C10_UNLIKELY(alias.sizes() != tensor.sizes() || alias.strides() != tensor.strides())) {
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides());
  }
}

}  // namespace flagos::ops
