// The staged half of OperatorCall: device memory that the host cannot touch is copied to buffers and back.
#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>

#include "csrc/ops/counters.h"
#include "csrc/ops/operator_call.h"
#include "csrc/runtime/device_allocator.h"

namespace flagos::ops {

namespace {

// The range of bytes of its storage that a tensor spans; empty for no elements.
std::pair<int64_t, int64_t> byteSpan(const c10::TensorImpl* impl) {
  const int64_t low = impl->storage_offset() * static_cast<int64_t>(impl->itemsize());
  if (impl->numel() == 0) return {low, low};
  return {low, static_cast<int64_t>(at::detail::computeStorageNbytes(
                   impl->sizes(), impl->strides(), impl->itemsize(), impl->storage_offset()))};
}

// By the companion where there is one: the HAL may not know its memory.
void copyBytes(const DeviceEntry& entry, void* to, const void* from, size_t bytes, int32_t kind,
               const char* what) {
  if (entry.companion != nullptr) {
    copyByCompanion(entry, to, kind == FLAGOS_HAL_COPY_DEVICE_TO_HOST, from,
                    kind == FLAGOS_HAL_COPY_HOST_TO_DEVICE, bytes, /*non_blocking=*/false);
    return;
  }
  FLAGOS_CHECK(entry, entry.hal->memory.copy(entry.local, to, from, bytes, kind), what);
}

}  // namespace

void OperatorCall::stage() {
  struct Span {
    c10::StorageImpl* storage;
    int64_t low, high;
    bool read;
  };
  c10::SmallVector<Span, 4> spans;
  for (const auto& [tensor, access] : seen_) {
    const c10::TensorImpl* impl = tensor->unsafeGetTensorImpl();
    c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    const auto [low, high] = byteSpan(impl);
    // Only a destination that fills its range leaves nothing of the old contents.
    const bool read =
        access != Access::Overwrite || high - low != impl->numel() * static_cast<int64_t>(impl->itemsize());
    Span* span = nullptr;
    for (auto& known : spans) {
      if (known.storage == storage) span = &known;
    }
    if (span == nullptr) {
      spans.push_back({storage, low, high, read});
    } else {
      span->read = span->read || read || low != span->low || high != span->high;
      span->low = std::min(span->low, low);
      span->high = std::max(span->high, high);
    }
  }
  constexpr int64_t kLargestItem =
      16;  // complex128: keeps offsets whole for every dtype that views the storage
  for (auto& span : spans) {
    span.low -= span.low % kLargestItem;
    const int64_t bytes = std::max<int64_t>(span.high - span.low, 0);
    LentStorage lent;
    lent.original = span.storage;
    lent.first_byte = span.low;
    lent.borrowed = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                          c10::GetCPUAllocator(), span.storage->resizable());
    lent.lent_data = lent.borrowed->data();
    // A tensor that stands for zeros has no memory.
    if (bytes > 0 && span.read && span.storage->data() != nullptr) {
      const auto* base = static_cast<const char*>(span.storage->data());
      copyBytes(*entry_, lent.borrowed->_mutable_data_ptr_no_checks().get(), base + span.low,
                static_cast<size_t>(bytes), FLAGOS_HAL_COPY_DEVICE_TO_HOST,
                "copy an operator's arguments to the host");
      countHostBytes(op_, device_, static_cast<uint64_t>(bytes));
    }
    storages_.push_back(std::move(lent));
  }
}

at::Tensor OperatorCall::upload(const at::Tensor& output) {
  const c10::TensorImpl* impl = output.unsafeGetTensorImpl();
  c10::StorageImpl* host = impl->unsafe_storage().unsafeGetStorageImpl();
  c10::Storage storage;
  for (const auto& [known, device_storage] : uploaded_) {
    if (known.unsafeGetStorageImpl() == host) storage = device_storage;
  }
  if (!storage) {
    const size_t bytes = host->nbytes();
    storage = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), bytes, allocateOn(device_, bytes), deviceAllocator(), true));
    if (bytes > 0) {
      copyBytes(*entry_, storage.mutable_data(), host->data(), bytes, FLAGOS_HAL_COPY_HOST_TO_DEVICE,
                "copy an operator's result to the device");
      countHostBytes(op_, device_, bytes);
    }
    uploaded_.emplace_back(impl->unsafe_storage(), storage);
  }
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1) | (impl->key_set() & kValueKeys),
      impl->dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
  return tensor;
}

void OperatorCall::finishStaged(const at::Tensor& tensor, const at::Tensor& alias, LentStorage& storage) {
  c10::TensorImpl* original = tensor.unsafeGetTensorImpl();
  c10::StorageImpl* target = storage.original;
  // Where the alias lies in the buffer; the buffer begins at first_byte of the caller's storage.
  const auto [low, high] = byteSpan(alias.unsafeGetTensorImpl());
  const auto needed = static_cast<size_t>(storage.first_byte + high);
  if (high > low && needed > target->nbytes()) {
    // Resized by the kernel. As resize_ does, keep what the storage held.
    c10::DataPtr grown = allocateOn(device_, needed);
    copyBytes(*entry_, grown.get(), target->data(), target->nbytes(), FLAGOS_HAL_COPY_DEVICE_TO_DEVICE,
              "move a resized storage");
    target->set_data_ptr_noswap(std::move(grown));
    target->set_nbytes(needed);
  }
  if (high > low) {
    auto* base = static_cast<char*>(target->_mutable_data_ptr_no_checks().get()) + storage.first_byte;
    const auto* host = static_cast<const char*>(storage.borrowed->data());
    copyBytes(*entry_, base + low, host + low, static_cast<size_t>(high - low),
              FLAGOS_HAL_COPY_HOST_TO_DEVICE, "write an operator's result back to the device");
    countHostBytes(op_, device_, static_cast<uint64_t>(high - low));
  }
  if (alias.sizes() != tensor.sizes() || alias.strides() != tensor.strides()) {
    original->set_sizes_and_strides(alias.sizes(), alias.strides());
  }
}

}  // namespace flagos::ops
