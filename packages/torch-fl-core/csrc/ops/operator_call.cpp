#include "csrc/ops/operator_call.h"

#include <ATen/ops/as_strided_native.h>
#include <c10/core/TensorImpl.h>

#include "csrc/ops/counters.h"
#include "csrc/ops/fallback_policy.h"
#include "csrc/runtime/device_allocator.h"
#include "csrc/runtime/stream.h"

namespace flagos::ops {

namespace {

const c10::DispatchKeySet kOwnKeys = keysOfBackend(kDeviceType);

// Shares the original's storage.
c10::intrusive_ptr<AliasTensor> sharingAlias(const at::Tensor& tensor, c10::DispatchKeySet keys,
                                             c10::Device device) {
  const c10::TensorImpl* original = tensor.unsafeGetTensorImpl();
  return c10::make_intrusive<AliasTensor>(*original, original->storage(), original->storage_offset(), keys,
                                          device);
}

}  // namespace

at::Tensor aliasOnCompanion(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kDeviceType) return tensor;
  const DeviceEntry& entry = deviceEntry(tensor.device().index());
  return at::Tensor(sharingAlias(tensor, entry.companion->keys, companionDevice(entry)));
}

bool spanDevices(at::TensorList tensors, std::optional<c10::Device>& first) noexcept {
  for (const at::Tensor& tensor : tensors) {
    if (!first.has_value()) first = tensor.device();
    if (tensor.device() != *first) return true;
  }
  return false;
}

bool OperatorCall::deviceDiffers(const at::Tensor& tensor, Access access) const {
  // As everywhere in PyTorch, a 0-dim tensor of the host stands for a number; but it cannot hold a device's
  // result.
  return access != Access::Read || !tensor.is_cpu() || (tensor.dim() != 0 && !traits_.host_tensors_allowed);
}

void OperatorCall::takeDevice(c10::DeviceIndex device) {
  device_ = device;
  entry_ = &deviceEntry(device);
  if (!forced_) {
    const Route found = route(op_, *entry_);
    direct_ = found.direct();
    source_ = found.source();
  }
  if (source_ == Source::Boxed && entry_->companion != nullptr) {
    target_ = companionDevice(*entry_);
    keys_ = entry_->companion->keys;
  } else {
    direct_ = direct_ && source_ == Source::Cpu && !traits_.composed;
    zero_copy_ = entry_->host_accessible;
  }
}

void OperatorCall::see(const at::Tensor& tensor, Access access) {
  if (!tensor.defined()) return;
  const c10::Device device = tensor.device();
  if (C10_LIKELY(device.type() == kDeviceType)) {
    if (C10_LIKELY(device_ < 0)) {
      takeDevice(device.index());
    } else if (C10_UNLIKELY(device_ != device.index())) {
      throwDeviceMismatch(tensor);
    }
    if (C10_UNLIKELY(!zero_copy_) || (access != Access::Read && !keepsSizes()))
      seen_.emplace_back(&tensor, access);
    return;
  }
  if (deviceDiffers(tensor, access)) host_tensor_ = &tensor;
}

void OperatorCall::seeDevice(std::optional<c10::Device> device) {
  if (!device.has_value() || device->type() != kDeviceType || device_ >= 0) return;
  takeDevice(resolveIndex(device->index()));
}

void OperatorCall::throwDeviceMismatch(const at::Tensor& tensor) const {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
              c10::Device(kDeviceType, device_), " and ", tensor.device(), "! (", opName(op_),
              ") Move one of them, for example with .to(\"", c10::Device(kDeviceType, device_), "\").");
}

bool OperatorCall::settle() {
  if (C10_UNLIKELY(device_ < 0)) takeDevice(currentDevice());
  if (C10_UNLIKELY(host_tensor_ != nullptr)) throwDeviceMismatch(*host_tensor_);
  return direct_;
}

void OperatorCall::begin() {
  countCall(op_, source_, device_);
  if (C10_LIKELY(source_ == Source::Boxed)) return;
  if (C10_UNLIKELY(entry_->backend->request.accelerator)) noteHostFallback(op_, *entry_);
  drainCurrentStream(*entry_);
  if (C10_LIKELY(zero_copy_)) {
    installHostRegionAllocator();
    region_.emplace(device_);
  } else {
    stage();
  }
}

void OperatorCall::explain(c10::Error& error) const {
  error.add_context("flagos: seen by " + opName(op_) + " (source " + sourceName(source_) + ") on " +
                    describeDevice(*entry_) + "; an earlier operator may have caused it.");
}

OperatorCall::LentStorage& OperatorCall::lendStorage(const at::Tensor& tensor) {
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
  c10::Allocator* allocator = hostRegionAllocator();
  if (source_ == Source::Boxed) allocator = entry_->companion->allocator;
  lent.borrowed =
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), original->nbytes(),
                                            c10::DataPtr(data, target_), allocator, original->resizable());
  storages_.push_back(std::move(lent));
  return storages_.back();
}

at::Tensor OperatorCall::alias(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kDeviceType) return tensor;
  c10::TensorImpl* original = tensor.unsafeGetTensorImpl();
  if (traits_.elementwise && zero_copy_) {
    auto alias = sharingAlias(tensor, keys_, target_);
    if (traits_.counts_versions) alias->shareVersions(*original);
    return at::Tensor(std::move(alias));
  }
  // A tensor given twice stays one tensor: kernels tell an in-place call by it, and then refuse to resize.
  for (const auto& lent : lent_) {
    if (!lent.original->is_same(tensor)) continue;
    lent_.push_back({&tensor, lent.alias});
    return lent_.back().alias;
  }
  const LentStorage& storage = lendStorage(tensor);
  const int64_t offset =
      original->storage_offset() - (C10_LIKELY(storage.first_byte == 0)
                                        ? 0
                                        : storage.first_byte / static_cast<int64_t>(original->itemsize()));
  auto alias = c10::make_intrusive<AliasTensor>(*original, storage.borrowed, offset, keys_, target_);
  if (C10_UNLIKELY(traits_.counts_versions)) {
    alias->shareVersions(*original);
  } else if (isWritten(tensor)) {
    alias->ownVersions();  // for kernels that go on through PyTorch's counting of changes
  }
  lent_.push_back({&tensor, at::Tensor(std::move(alias))});
  return lent_.back().alias;
}

bool OperatorCall::isWritten(const at::Tensor& tensor) const noexcept {
  for (const auto& [seen, access] : seen_) {
    if (seen == &tensor) return access != Access::Read;
  }
  return false;
}

std::optional<at::Tensor>& OperatorCall::lend(const at::Tensor& tensor, std::optional<at::Tensor>& holder) {
  // What is written as out= may come back with another size or storage, and what shares memory with it must see
  // that.
  const bool shared_counters = traits_.counts_versions && !traits_.elementwise;
  if (C10_UNLIKELY(!zero_copy_ || !seen_.empty() || shared_counters)) {
    holder = alias(tensor);
    return holder;
  }
  if (slots_ == nullptr) {
    slots_ = &AliasSlots::ofThread();
    mark_ = slots_->mark();
  }
  if (traits_.elementwise) return slots_->shareStorage(tensor, keys_, target_).alias;
  c10::Allocator* allocator = source_ == Source::Boxed ? entry_->companion->allocator : hostRegionAllocator();
  // Kernels that write look for what shares memory with it.
  return slots_->borrowMemory(tensor, keys_, target_, allocator, traits_.keeps_sizes ? &mark_ : nullptr)
      .alias;
}

at::Tensor OperatorCall::viewOnSlot(const at::Tensor& output, const AliasSlot& slot) {
  const at::Tensor& original = *slot.original;
  if (slot.alias->unsafeGetTensorImpl() == output.unsafeGetTensorImpl()) return original;
  if (original.dtype() != output.dtype()) return upload(output.clone());
  return at::native::as_strided_tensorimpl(original, output.sizes(), output.strides(),
                                           output.storage_offset());
}

at::Tensor OperatorCall::viewOnOriginal(const at::Tensor& output, const LentStorage& storage) {
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

at::Tensor OperatorCall::result(at::Tensor output) {
  if (!output.defined() || output.device().type() == kDeviceType) return output;
  // What the companion's kernel leaves on the host stays there, as the state of a generator.
  if (source_ == Source::Boxed && output.device() != target_) return output;
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
  if (slots_ != nullptr) {
    if (const AliasSlot* slot = slots_->borrowedSince(mark_, storage)) return viewOnSlot(output, *slot);
  }
  return zero_copy_ ? adopt(std::move(output)) : upload(output);
}

at::Tensor OperatorCall::adopt(at::Tensor output) {
  c10::StorageImpl* storage = output.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const c10::Device device(kDeviceType, device_);
  if (C10_LIKELY(storage->device() != device)) {  // else: shared with a result that was adopted before
    if (C10_UNLIKELY(storage->nbytes() == 0)) {
      storage->set_data_ptr_noswap(c10::DataPtr(nullptr, device));
    } else if (source_ == Source::Boxed) {
      storage->_mutable_data_ptr_no_checks().unsafe_set_device(device);
    } else {
      c10::DataPtr data = adoptRegionMemory(std::move(storage->_mutable_data_ptr_no_checks()), device);
      const bool ours = data.device() == device;
      storage->set_data_ptr_noswap(std::move(data));
      // Memory of another allocator (a library's own, another thread's). Rare; a copy keeps device memory in
      // device blocks.
      if (C10_UNLIKELY(!ours)) return upload(output);
    }
    storage->set_allocator(deviceAllocator());
  }
  if (C10_LIKELY(source_ == Source::Boxed)) {
    AliasTensor::relabel(output.unsafeGetTensorImpl(), entry_->companion->own_keys, kOwnKeys, device);
  } else {
    output.unsafeGetTensorImpl()->_change_backend_component_keys(device);
    AliasTensor::setDevice(output.unsafeGetTensorImpl(), device);
  }
  return output;
}

void OperatorCall::finishWrites() {
  for (const auto& [tensor, access] : seen_) {
    if (access == Access::Read) continue;
    for (const auto& lent : lent_) {
      if (lent.original != tensor) continue;
      LentStorage& storage = lendStorage(*tensor);
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

void OperatorCall::carryValueBits(const at::Tensor& tensor, const at::Tensor& alias) {
  if (C10_UNLIKELY(alias.is_conj() != tensor.is_conj())) tensor._set_conj(alias.is_conj());
  if (C10_UNLIKELY(alias.is_neg() != tensor.is_neg())) tensor._set_neg(alias.is_neg());
}

void OperatorCall::finishZeroCopy(const at::Tensor& tensor, const at::Tensor& alias, LentStorage& storage) {
  if (C10_UNLIKELY(storage.borrowed->data() != storage.lent_data)) {
    // The kernel resized an out= argument: its new memory becomes the caller's.
    const c10::Device device(kDeviceType, device_);
    c10::DataPtr data = std::move(storage.borrowed->_mutable_data_ptr_no_checks());
    if (source_ == Source::Boxed) {
      data.unsafe_set_device(device);
    } else {
      data = adoptRegionMemory(std::move(data), device);
    }
    storage.lent_data = data.get();
    storage.borrowed->set_data_ptr_noswap(c10::DataPtr(data.get(), target_));
    storage.original->set_data_ptr_noswap(std::move(data));
    storage.original->set_nbytes(storage.borrowed->nbytes());
  }
  if (C10_UNLIKELY(alias.sizes() != tensor.sizes() || alias.strides() != tensor.strides())) {
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides());
  }
}

}  // namespace flagos::ops
