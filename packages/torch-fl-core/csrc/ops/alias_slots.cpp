#include "csrc/ops/alias_slots.h"

#include <utility>

namespace flagos::ops {

namespace {

AliasTensor* implOf(const AliasSlot& slot) {
  return static_cast<AliasTensor*>(slot.alias->unsafeGetTensorImpl());
}

c10::intrusive_ptr<AliasStorage> emptyStorage() {
  return c10::make_intrusive<AliasStorage>(c10::StorageImpl::use_byte_size_t(), 0,
                                           c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)), nullptr,
                                           false);
}

void makeSharing(AliasSlot& slot) {
  auto impl = c10::make_intrusive<AliasTensor>(c10::Storage(emptyStorage()));
  impl->dropStorage();
  impl->ownVersions();  // for kernels that count versions themselves; the call counts the original's
  slot.alias.emplace(std::move(impl));
}

void makeBorrowing(AliasSlot& slot) {
  slot.storage = emptyStorage();
  slot.alias.emplace(c10::make_intrusive<AliasTensor>(c10::Storage(slot.storage)));
}

}  // namespace

AliasSlots& AliasSlots::ofThread() {
  thread_local AliasSlots* mine = nullptr;  // without a constructor, which each access would ask about
  if (C10_UNLIKELY(mine == nullptr)) {
    thread_local AliasSlots slots;
    mine = &slots;
  }
  return *mine;
}

AliasSlot& AliasSlots::shareStorage(const at::Tensor& original, c10::DispatchKeySet keys,
                                    c10::Device device) {
  if (C10_UNLIKELY(sharing_.top == sharing_.slots.size())) {
    sharing_.slots.push_back(std::make_unique<AliasSlot>());
    makeSharing(*sharing_.slots.back());
  }
  AliasSlot& slot = *sharing_.slots[sharing_.top++];
  slot.original = &original;
  const c10::TensorImpl& from = *original.unsafeGetTensorImpl();
  AliasTensor* impl = implOf(slot);
  impl->aim(from, keys, device);
  impl->borrowStorage(from.unsafe_storage().unsafeGetStorageImpl());
  return slot;
}

AliasSlot& AliasSlots::borrowMemory(const at::Tensor& original, c10::DispatchKeySet keys, c10::Device device,
                                    c10::Allocator* allocator, const Mark* since) {
  if (C10_UNLIKELY(borrowing_.top == borrowing_.slots.size())) {
    borrowing_.slots.push_back(std::make_unique<AliasSlot>());
    makeBorrowing(*borrowing_.slots.back());
  }
  AliasSlot& slot = *borrowing_.slots[borrowing_.top++];
  slot.original = &original;
  const c10::TensorImpl& from = *original.unsafeGetTensorImpl();
  c10::StorageImpl* memory = from.unsafe_storage().unsafeGetStorageImpl();
  if (since != nullptr && shareWithin(*since, slot, memory)) {
    implOf(slot)->aim(from, keys, device);
    return slot;
  }
  slot.storage->set_data_ptr_noswap(c10::DataPtr(memory->_mutable_data_ptr_no_checks().get(), device));
  slot.storage->set_nbytes(memory->nbytes());
  slot.storage->set_allocator(allocator);
  implOf(slot)->aim(from, keys, device);
  return slot;
}

bool AliasSlots::shareWithin(Mark since, AliasSlot& slot, const c10::StorageImpl* memory) {
  for (size_t i = since.borrowing; i + 1 < borrowing_.top; ++i) {
    const AliasSlot& other = *borrowing_.slots[i];
    if (other.original->unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() != memory) continue;
    slot.storage = other.storage;  // counted: both slots are made anew when they are released
    implOf(slot)->holdStorage(c10::Storage(other.storage));
    return true;
  }
  return false;
}

void AliasSlots::release(Mark mark) noexcept {
  while (sharing_.top > mark.sharing) {
    AliasSlot& slot = *sharing_.slots[--sharing_.top];
    slot.original = nullptr;
    const bool kept = slot.alias->use_count() != 1;
    implOf(slot)->returnStorage(kept);
    if (C10_UNLIKELY(kept)) makeSharing(slot);
  }
  while (borrowing_.top > mark.borrowing) {
    AliasSlot& slot = *borrowing_.slots[--borrowing_.top];
    slot.original = nullptr;
    // The slot and its alias hold the storage, and nobody else.
    if (C10_UNLIKELY(slot.alias->use_count() != 1 || slot.storage.use_count() != 2)) makeBorrowing(slot);
  }
}

const AliasSlot* AliasSlots::borrowedSince(Mark mark, const c10::StorageImpl* storage) const noexcept {
  for (size_t i = mark.borrowing; i < borrowing_.top; ++i) {
    if (borrowing_.slots[i]->storage.get() == storage) return borrowing_.slots[i].get();
  }
  return nullptr;
}

}  // namespace flagos::ops
