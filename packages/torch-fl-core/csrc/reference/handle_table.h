// Handles that can be checked without a lock: a handle is a number (tag, generation, index), not an address.
// Looking one up is an index and one comparison, and a handle that was destroyed is told from a later one in
// the same slot.
//
// Slots are never given back to the system, and an object lives as long as its slot: code that raced with a
// destroy sees an idle object, not freed memory, and counters in it only ever grow.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace flagos::reference {

static_assert(sizeof(void*) == 8, "handles are 64-bit numbers");

// Object is default-constructed once per slot. kTag differs between tables, so a handle of one is foreign to
// the others.
template <typename Handle, typename Object, uint8_t kTag, uint32_t kMaxSlots>
class HandleTable {
 public:
  // The object of a live handle, else null.
  Object* find(const Handle* handle) const noexcept {
    const uint64_t value = reinterpret_cast<uint64_t>(handle);
    const uint32_t index = static_cast<uint32_t>(value & 0xFFFFFFu);
    if (index >= kMaxSlots) return nullptr;
    Slot* chunk = chunks_[index / kChunkSlots].load(std::memory_order_acquire);
    if (!chunk) return nullptr;
    Slot& slot = chunk[index % kChunkSlots];
    return value != 0 && slot.live.load(std::memory_order_acquire) == value ? &slot.object : nullptr;
  }

  // Takes a slot: its object is the caller's to prepare, and can be found by `*out_handle` after publish.
  // Null when all slots are taken. May throw bad_alloc, having taken nothing.
  Object* reserve(Handle** out_handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    uint32_t index;
    if (free_head_ != kNone) {
      index = free_head_;
      free_head_ = slot(index).next_free;
      if (free_head_ == kNone) free_tail_ = kNone;
    } else {
      if (used_ == kMaxSlots) return nullptr;
      index = used_;
      std::atomic<Slot*>& chunk = chunks_[index / kChunkSlots];
      if (!chunk.load(std::memory_order_relaxed))
        chunk.store(new Slot[kChunkSlots], std::memory_order_release);
      ++used_;
    }
    Slot& taken = slot(index);
    ++taken.generation;
    const uint64_t value = uint64_t{kTag} << 56 | uint64_t{taken.generation} << 24 | index;
    *out_handle = reinterpret_cast<Handle*>(value);
    return &taken.object;
  }

  void publish(Handle* handle) noexcept {
    slotOf(handle).live.store(reinterpret_cast<uint64_t>(handle), std::memory_order_release);
  }

  // Makes a live handle dead; null if it was not alive. The object stays the caller's until recycle.
  Object* retire(const Handle* handle) noexcept {
    if (!find(handle)) return nullptr;
    Slot& slot = slotOf(handle);
    uint64_t value = reinterpret_cast<uint64_t>(handle);
    return slot.live.compare_exchange_strong(value, 0, std::memory_order_acq_rel) ? &slot.object : nullptr;
  }

  // Gives the slot of a retired, or never published, handle back.
  void recycle(const Handle* handle) noexcept {
    const uint32_t index = static_cast<uint32_t>(reinterpret_cast<uint64_t>(handle) & 0xFFFFFFu);
    std::lock_guard<std::mutex> lock(mutex_);
    slot(index).next_free = kNone;
    if (free_tail_ == kNone) {
      free_head_ = index;
    } else {
      slot(free_tail_).next_free = index;
    }
    free_tail_ = index;
  }

  // Calls `visit(handle)` for every live handle at this moment; `visit` may retire and recycle.
  template <typename Visit>
  void forEach(Visit&& visit) {
    uint32_t used;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      used = used_;
    }
    for (uint32_t index = 0; index < used; ++index) {
      const uint64_t value = slot(index).live.load(std::memory_order_acquire);
      if (value) visit(reinterpret_cast<Handle*>(value));
    }
  }

 private:
  struct Slot {
    std::atomic<uint64_t> live{0};  // the handle while it is alive, else 0
    uint32_t generation = 0;        // guarded by mutex_, as next_free
    uint32_t next_free = kNone;
    Object object;
  };
  static constexpr uint32_t kChunkSlots = 64;
  static constexpr uint32_t kNone = UINT32_MAX;
  static_assert(kMaxSlots <= 1u << 24 && kMaxSlots % kChunkSlots == 0, "an index has 24 bits");

  Slot& slot(uint32_t index) const noexcept {
    return chunks_[index / kChunkSlots].load(std::memory_order_acquire)[index % kChunkSlots];
  }
  Slot& slotOf(const Handle* handle) const noexcept {
    return slot(static_cast<uint32_t>(reinterpret_cast<uint64_t>(handle) & 0xFFFFFFu));
  }

  std::atomic<Slot*> chunks_[kMaxSlots / kChunkSlots] = {};
  std::mutex mutex_;  // guards what follows
  uint32_t used_ = 0;
  uint32_t free_head_ = kNone;
  uint32_t free_tail_ = kNone;
};

}  // namespace flagos::reference
