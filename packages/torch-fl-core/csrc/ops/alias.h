// What a kernel of another device type is given in place of a flagos tensor: a tensor of its own over the same
// memory. Two small objects per argument and call, so how they are made counts.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <cstddef>

namespace flagos::ops {

// Bits of the key set that say how a tensor's values are read: kept by aliases and results.
inline constexpr c10::DispatchKeySet kValueKeys({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
                                                 c10::DispatchKey::ZeroTensor});

// Memory for aliases from a list of the calling thread's own, without malloc.
void* takeAliasMemory(size_t bytes);
void giveAliasMemory(void* memory, size_t bytes) noexcept;

class AliasTensor final : public c10::TensorImpl {
 public:
  // Like `original`, but on `device`, with `keys` alone, over `storage`. It has no version counter.
  AliasTensor(const c10::TensorImpl& original, c10::Storage storage, int64_t offset, c10::DispatchKeySet keys,
              c10::Device device)
      : c10::TensorImpl(c10::TensorImpl::VIEW, std::move(storage), keys, original.dtype()) {
    // Copies what is worked out from sizes and strides as well.
    copy_generic_tensor_metadata(&original, this);
    key_set_ = keys | (original.key_set() & kValueKeys);
    device_opt_ = device;
    storage_offset_ = offset;
  }

  // One to be aimed later.
  explicit AliasTensor(c10::Storage storage)
      : c10::TensorImpl(c10::TensorImpl::VIEW, std::move(storage), c10::DispatchKeySet(),
                        caffe2::TypeMeta::Make<float>()) {}

  // Makes it like `original`, save for the storage.
  void aim(const c10::TensorImpl& original, c10::DispatchKeySet keys, c10::Device device) {
    if (C10_UNLIKELY(extra_meta_ != nullptr)) extra_meta_ = nullptr;
    copy_generic_tensor_metadata(&original, this);
    key_set_ = keys | (original.key_set() & kValueKeys);
    device_opt_ = device;
  }

  void holdStorage(c10::Storage storage) { storage_ = std::move(storage); }
  void dropStorage() { storage_ = c10::Storage(); }
  // Holds a storage without counting; returnStorage() must follow while the owner holds it.
  void borrowStorage(c10::StorageImpl* storage) {
    storage_ = c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim(storage));
  }
  // With `kept`, somebody else holds this alias: it becomes an owner.
  void returnStorage(bool kept) noexcept {
    if (C10_UNLIKELY(kept)) {
      c10::raw::intrusive_ptr::incref(storage_.unsafeGetStorageImpl());
    } else {
      (void)storage_.unsafeReleaseStorageImpl();
    }
  }

  void ownVersions() { version_counter_ = c10::VariableVersion(/*version=*/0); }

  // Counts changes together with `original`, for kernels that count them themselves.
  void shareVersions(const c10::TensorImpl& original) { version_counter_ = original.version_counter(); }

  // Gives a tensor that nobody else holds another device. Keys and storage stay: TensorImpl's own functions
  // change them together.
  static void setDevice(c10::TensorImpl* impl, c10::Device device) {
    impl->*(&AliasTensor::device_opt_) = device;
  }

  // The same, and other keys in place of those that say whose it is.
  static void relabel(c10::TensorImpl* impl, c10::DispatchKeySet before, c10::DispatchKeySet after,
                      c10::Device device) {
    c10::DispatchKeySet& keys = impl->*(&AliasTensor::key_set_);
    // Bit by bit: the set's own difference leaves backends as they are.
    keys = c10::DispatchKeySet(c10::DispatchKeySet::RAW,
                               (keys.raw_repr() & ~before.raw_repr()) | after.raw_repr());
    setDevice(impl, device);
  }

  static void* operator new(size_t bytes) { return takeAliasMemory(bytes); }
  static void operator delete(void* memory, size_t bytes) noexcept { giveAliasMemory(memory, bytes); }
};

class AliasStorage final : public c10::StorageImpl {
 public:
  using c10::StorageImpl::StorageImpl;
  static void* operator new(size_t bytes) { return takeAliasMemory(bytes); }
  static void operator delete(void* memory, size_t bytes) noexcept { giveAliasMemory(memory, bytes); }
};

}  // namespace flagos::ops
