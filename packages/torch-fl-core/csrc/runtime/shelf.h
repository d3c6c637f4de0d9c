// A thread's own few small free blocks of one device. A request that finds its size here, and a free that
// finds room, touch nothing that another thread touches: under eight threads that is twenty times faster than
// the arena's lock, whose cache lines would travel with every call.
//
// In the arena's lists a block on a shelf is still an allocated one. The shelf keeps what must be added to
// the arena's counters, so that sums are exact. A peak is exact while one thread allocates at a time; where
// several do at once, it may be off by what their shelves hold, kShelfBytes each at most.
#pragma once

#include <c10/core/Stream.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/runtime/block_pool.h"
#include "csrc/runtime/spin_lock.h"

namespace flagos {

inline constexpr size_t kShelfBlock = size_t{256} << 10;  // the largest block that is kept
inline constexpr size_t kShelfBytes = size_t{1} << 20;    // bytes on one shelf

// What a shelf counts: blocks, their bytes, and the bytes that were asked for.
struct ShelfCounts {
  int64_t blocks = 0;
  int64_t bytes = 0;
  int64_t requested = 0;

  ShelfCounts operator+(const ShelfCounts& other) const noexcept {
    return {blocks + other.blocks, bytes + other.bytes, requested + other.requested};
  }
  void raiseTo(const ShelfCounts& other) noexcept;
};

// What happened on a shelf since the arena last asked.
struct ShelfChange {
  ShelfCounts net;      // to be added to what the arena counts as allocated
  ShelfCounts highest;  // of `net`, at any time
  ShelfCounts in;       // allocations alone
};

class Shelf {
 public:
  // A block of exactly `size` bytes for `stream`, now allocated for `bytes`; null if there is none.
  Block* take(size_t size, size_t bytes, c10::StreamId stream) noexcept;
  // Keeps a block that is no longer used. False if there is no room for it; nothing has changed then.
  bool put(Block* block) noexcept;

  // Any thread may ask: what is to be added to the arena's counters now.
  ShelfCounts net() const noexcept;
  // The rest is called with the arena's lock held.
  ShelfChange settle() noexcept;
  // Also gives up the blocks, linked by free_next. Closed: nothing can be kept here any more.
  Block* clear(ShelfChange& change, bool close) noexcept;

 private:
  void add(ShelfCounts change) noexcept;
  ShelfChange settleLocked() noexcept;

  static constexpr size_t kBins = 64;
  static size_t binOf(size_t size, c10::StreamId stream) noexcept {
    return (size / kMinBlock + static_cast<size_t>(stream) * 7) % kBins;
  }

  SpinLock mutex_;  // taken by the thread itself, and by others only to empty the shelf
  bool closed_ = false;
  size_t held_ = 0;                   // bytes
  std::array<Block*, kBins> bins_{};  // blocks of one size and stream each, last in, first out
  // Written with the lock held.
  std::atomic<int64_t> blocks_{0};
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> requested_{0};
  ShelfCounts highest_;
  ShelfCounts in_;
};

// The calling thread's shelf for the device of that index; null if it has none yet, or is ending.
Shelf* shelfOfThread(c10::DeviceIndex device) noexcept;

class ShelfOwner {
 public:
  // The thread of `shelf` ends: takes back what it holds and forgets it.
  virtual void retire(Shelf* shelf) noexcept = 0;

 protected:
  ~ShelfOwner() = default;
};

// Makes the calling thread's shelf, which `owner` hears of again when the thread ends; null if it is ending.
Shelf* makeShelfOfThread(c10::DeviceIndex device, ShelfOwner& owner);

}  // namespace flagos
