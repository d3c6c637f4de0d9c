// The part of DeviceArena that deals with the shelves of threads: the road that most small blocks take.
#include <c10/core/Allocator.h>

#include <algorithm>
#include <new>

#include "csrc/runtime/device_arena.h"

namespace flagos {

namespace {

// A history and a profiler want to see every action.
bool watched() noexcept { return MemoryHistory::enabled() || c10::memoryProfilingEnabled(); }

}  // namespace

Block* DeviceArena::takeShelved(size_t bytes, c10::StreamId stream) noexcept {
  const size_t size = blockSizeFor(bytes);
  if (size > kShelfBlock) return nullptr;
  Shelf* shelf = shelfOfThread(device_.index);
  if (C10_UNLIKELY(shelf == nullptr || watched())) return nullptr;
  return shelf->take(size, bytes, stream);
}

// Keeps the block on the calling thread's shelf; false if it has to go the usual way.
bool DeviceArena::shelve(Block* block) noexcept {
  const bool suitable = block->size <= kShelfBlock && block->extra == nullptr && !block->segment->large &&
                        !block->segment->direct;
  if (C10_UNLIKELY(!suitable || watched())) return false;
  Shelf* shelf = shelfOfThread(device_.index);
  if (C10_UNLIKELY(shelf == nullptr)) {
    shelf = makeShelf();
    if (shelf == nullptr) return false;
  }
  if (C10_LIKELY(shelf->put(block))) return true;
  // Full, perhaps with sizes that nobody wants any more: start anew.
  std::lock_guard<SpinLock> lock(mutex_);
  if (closed_) return false;
  ShelfChange change;
  Block* blocks = shelf->clear(change, /*close=*/false);
  fold(change, elsewhere(shelf));
  returnShelved(blocks);
  return false;
}

Shelf* DeviceArena::makeShelf() noexcept {
  try {
    std::lock_guard<SpinLock> lock(mutex_);
    shelves_.reserve(shelves_.size() + 1);
    Shelf* shelf = makeShelfOfThread(device_.index, *this);
    if (shelf != nullptr) shelves_.push_back(shelf);
    return shelf;
  } catch (const std::bad_alloc&) {  // of the host's memory; the usual way needs none
    return nullptr;
  }
}

// Makes all shelves empty and the counters complete.
void DeviceArena::clearShelves(bool close) noexcept {
  std::lock_guard<SpinLock> lock(mutex_);
  if (closed_) return;
  for (Shelf* shelf : shelves_) {
    ShelfChange change;
    Block* blocks = shelf->clear(change, close);
    fold(change, elsewhere(shelf));
    returnShelved(blocks);
  }
}

void DeviceArena::retire(Shelf* shelf) noexcept {
  if (inBadFork()) return;  // the lock may be held by a thread that the child does not have
  {
    std::lock_guard<SpinLock> lock(mutex_);
    ShelfChange change;
    Block* blocks = shelf->clear(change, /*close=*/true);
    if (!closed_) {
      fold(change, elsewhere(shelf));
      returnShelved(blocks);
    }
    shelves_.erase(std::find(shelves_.begin(), shelves_.end(), shelf));
  }
  delete shelf;
}

// Takes over what the calling thread's shelf has counted; what the shelves of other threads would add.
ShelfCounts DeviceArena::foldShelf() noexcept {
  Shelf* own = shelfOfThread(device_.index);
  const ShelfCounts others = elsewhere(own);
  if (own != nullptr) fold(own->settle(), others);
  return others;
}

ShelfCounts DeviceArena::elsewhere(const Shelf* but) const noexcept {
  ShelfCounts sum;
  for (const Shelf* shelf : shelves_) {
    if (shelf != but) sum = sum + shelf->net();
  }
  return sum;
}

void DeviceArena::fold(const ShelfChange& change, const ShelfCounts& elsewhere) noexcept {
  // While the highest value lasted, something may have been waiting for other streams.
  counters_.active.follow(counters_.of(ArenaCounters::Allocation), change.highest.blocks + elsewhere.blocks);
  counters_.active_bytes.follow(counters_.of(ArenaCounters::AllocatedBytes),
                                change.highest.bytes + elsewhere.bytes);
  counters_.of(ArenaCounters::Allocation)
      .fold(change.net.blocks, change.highest.blocks, change.in.blocks, elsewhere.blocks);
  counters_.of(ArenaCounters::AllocatedBytes)
      .fold(change.net.bytes, change.highest.bytes, change.in.bytes, elsewhere.bytes);
  counters_.of(ArenaCounters::RequestedBytes)
      .fold(change.net.requested, change.highest.requested, change.in.requested, elsewhere.requested);
}

// Puts blocks that come from a shelf, and are counted as free already, among the free ones.
void DeviceArena::returnShelved(Block* blocks) noexcept {
  while (blocks != nullptr) {
    Block* block = blocks;
    blocks = block->free_next;
    block->free_next = nullptr;
    block->allocated = false;
    block->requested.store(0, std::memory_order_relaxed);
    if (block->segment->pools->of(/*is_large=*/false).recent_count >= kMaxRecent) {
      join(block);
    } else {
      addFree(block, /*recent=*/true);
    }
  }
}

}  // namespace flagos
