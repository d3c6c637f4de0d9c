#include "csrc/runtime/device_arena.h"

#include <c10/util/Exception.h>

#include <utility>

#include "csrc/runtime/stream.h"

namespace flagos {

namespace {

constexpr size_t kDensePools = 512;         // stream ids below it are found by index
constexpr uint32_t kHitsBetweenPolls = 64;  // hits that may pass before finished events are looked for

}  // namespace

DeviceArena::DeviceArena(const DeviceEntry& device) : device_(device) {}

MemoryTotals DeviceArena::totals(const ShelfCounts& elsewhere) const noexcept {
  return {counters_.of(ArenaCounters::AllocatedBytes).current() + elsewhere.bytes,
          counters_.of(ArenaCounters::ReservedBytes).current()};
}

StreamPools& DeviceArena::poolsOf(c10::StreamId stream) {
  if (C10_LIKELY(stream >= 0 && static_cast<size_t>(stream) < dense_pools_.size())) {
    if (auto& pools = dense_pools_[static_cast<size_t>(stream)]) return *pools;
  }
  if (stream >= 0 && static_cast<size_t>(stream) < kDensePools) {
    if (static_cast<size_t>(stream) >= dense_pools_.size())
      dense_pools_.resize(static_cast<size_t>(stream) + 1);
    auto& pools = dense_pools_[static_cast<size_t>(stream)];
    pools = std::make_unique<StreamPools>(stream);
    return *pools;
  }
  auto& pools = other_pools_[stream];
  if (!pools) pools = std::make_unique<StreamPools>(stream);
  return *pools;
}

void DeviceArena::addFree(Block* block, bool recent) {
  Segment& segment = *block->segment;
  FreePool& pool = segment.pools->of(segment.large);
  (recent ? pool.recent : pool.joined).insert(block);
  block->recent = recent;
  pool.recent_count += recent;
  if (block->isSplit()) {
    counters_.of(ArenaCounters::InactiveSplit).increase(segment.large, 1);
    counters_.of(ArenaCounters::InactiveSplitBytes).increase(segment.large, block->size);
  }
}

void DeviceArena::takeFree(Block* block) {
  Segment& segment = *block->segment;
  FreePool& pool = segment.pools->of(segment.large);
  (block->recent ? pool.recent : pool.joined).remove(block);
  pool.recent_count -= block->recent;
  block->recent = false;
  if (block->isSplit()) {
    counters_.of(ArenaCounters::InactiveSplit).decrease(segment.large, 1);
    counters_.of(ArenaCounters::InactiveSplitBytes).decrease(segment.large, block->size);
  }
}

// Takes `bytes` out of `block`, which is in no free list, and counts it as allocated. What remains goes back
// as a block of its own.
Block* DeviceArena::hand(Block* block, size_t bytes, const ContextPtr& context,
                         const ShelfCounts& elsewhere) {
  const size_t size = blockSizeFor(bytes);
  Segment& segment = *block->segment;
  if (!segment.direct && worthSplitting(*block, size)) {
    Block* rest = objects_.make();
    rest->arena = this;
    rest->segment = &segment;
    rest->address = block->address + size;
    rest->size = block->size - size;
    rest->previous = block;
    rest->next = block->next;
    if (rest->next != nullptr) rest->next->previous = rest;
    block->next = rest;
    block->size = size;
    addFree(rest, /*recent=*/false);
  }
  block->allocated = true;
  block->requested = bytes;
  const bool large = segment.large;
  counters_.of(ArenaCounters::Allocation).increase(large, 1, elsewhere.blocks);
  counters_.of(ArenaCounters::AllocatedBytes).increase(large, block->size, elsewhere.bytes);
  counters_.of(ArenaCounters::RequestedBytes).increase(large, bytes, elsewhere.requested);
  counters_.active.follow(counters_.of(ArenaCounters::Allocation), elsewhere.blocks);
  counters_.active_bytes.follow(counters_.of(ArenaCounters::AllocatedBytes), elsewhere.bytes);
  if (C10_UNLIKELY(isOversize(size))) counters_.oversize_allocations.increase(1);
  if (C10_UNLIKELY(context != nullptr)) block->more().context = context;
  note(MemoryAction::Alloc, reinterpret_cast<size_t>(block->address), block->size, segment.pools->stream,
       context);
  return block;
}

Block* DeviceArena::takeCached(size_t bytes, c10::StreamId stream, MemoryTotals& totals,
                               const ContextPtr& context) {
  const size_t size = blockSizeFor(bytes);
  std::lock_guard<SpinLock> lock(mutex_);
  TORCH_CHECK(!closed_, "flagos: memory of flagos:", int(device_.index), " was asked for after shutdown.");
  FreePool& pool = poolsOf(stream).of(!isSmall(size));
  Block* block = pool.recent.findExact(size);
  if (C10_UNLIKELY(block == nullptr)) {
    if (pool.recent_count != 0) joinRecent(pool);
    block = pool.joined.find(size, largestUsefulBlock(size));
    if (block == nullptr) return nullptr;
  }
  takeFree(block);
  const ShelfCounts elsewhere = foldShelf();
  hand(block, bytes, context, elsewhere);
  totals = this->totals(elsewhere);
  return block;
}

Block* DeviceArena::allocate(size_t bytes, c10::StreamId stream, MemoryTotals& totals) {
  ContextPtr context = MemoryHistory::gather(ContextLevel::State);
  if (C10_LIKELY(bytes <= kMaxRequest && allocatorMode() == AllocatorMode::Caching)) {
    Block* block = takeShelved(bytes, stream);
    if (block == nullptr) block = takeCached(bytes, stream, totals, context);
    if (C10_LIKELY(block != nullptr)) {
      // A hit asks the HAL nothing, but what waits for other streams must not wait for the next miss alone.
      if (C10_UNLIKELY(pending_.size() != 0) &&
          hits_.fetch_add(1, std::memory_order_relaxed) % kHitsBetweenPolls == kHitsBetweenPolls - 1) {
        collect(PendingEvents::Mode::Poll);
      }
      return block;
    }
  }
  return allocateSlowly(bytes, stream, totals, std::move(context));
}

// Makes `neighbour`, which is free and beside `block`, part of `block`.
void DeviceArena::absorb(Block* block, Block* neighbour) {
  takeFree(neighbour);
  if (neighbour == block->previous) {
    block->address = neighbour->address;
    block->previous = neighbour->previous;
    if (block->previous != nullptr) block->previous->next = block;
    if (block->segment->first == neighbour) block->segment->first = block;
  } else {
    block->next = neighbour->next;
    if (block->next != nullptr) block->next->previous = block;
  }
  block->size += neighbour->size;
  objects_.discard(neighbour);
}

// Joins a block that is in no list with its free neighbours and puts it among the joined ones. A neighbour
// that is recent is left: it will find this block when its turn comes.
void DeviceArena::join(Block* block) {
  if (Block* before = block->previous; before != nullptr && before->free && !before->recent)
    absorb(block, before);
  if (Block* after = block->next; after != nullptr && after->free && !after->recent) absorb(block, after);
  addFree(block, /*recent=*/false);
}

void DeviceArena::joinRecent(FreePool& pool) {
  while (Block* block = pool.recent.any()) {
    takeFree(block);
    join(block);
  }
}

void DeviceArena::joinAllRecent() {
  const auto both = [this](StreamPools& pools) {
    joinRecent(pools.small);
    joinRecent(pools.large);
  };
  for (auto& pools : dense_pools_) {
    if (pools) both(*pools);
  }
  for (auto& [stream, pools] : other_pools_) both(*pools);
}

// The block is used by nobody any more.
void DeviceArena::finishFree(Block* block) {
  Segment& segment = *block->segment;
  const bool large = segment.large;
  counters_.of(ArenaCounters::RequestedBytes).decrease(large, block->requested);
  if (C10_UNLIKELY(isOversize(block->size))) counters_.oversize_allocations.decrease(1);
  note(MemoryAction::FreeCompleted, reinterpret_cast<size_t>(block->address), block->size,
       segment.pools->stream, nullptr);
  if (C10_UNLIKELY(block->extra != nullptr)) block->extra.reset();
  block->requested = 0;
  if (C10_UNLIKELY(segment.pools->of(large).recent_count >= kMaxRecent)) return join(block);
  addFree(block, /*recent=*/true);
}

// The last event that a freed block waited for has been reached.
void DeviceArena::finishWaiting(Block* block) {
  foldShelf();
  counters_.active.stopWaiting(block->segment->large, 1);
  counters_.active_bytes.stopWaiting(block->segment->large, block->size);
  finishFree(block);
}

void DeviceArena::release(Block* block, MemoryTotals& totals) noexcept {
  if (C10_LIKELY(shelve(block))) return;
  ContextPtr context = MemoryHistory::gather(ContextLevel::All);
  std::vector<c10::Stream> uses;
  bool direct;
  {
    std::lock_guard<SpinLock> lock(mutex_);
    if (C10_UNLIKELY(closed_)) return;
    Segment& segment = *block->segment;
    const ShelfCounts elsewhere = foldShelf();
    counters_.of(ArenaCounters::Allocation).decrease(segment.large, 1);
    counters_.of(ArenaCounters::AllocatedBytes).decrease(segment.large, block->size);
    block->allocated = false;
    note(MemoryAction::FreeRequested, reinterpret_cast<size_t>(block->address), block->size,
         segment.pools->stream, context);
    totals = this->totals(elsewhere);
    direct = segment.direct;
    if (C10_UNLIKELY(block->extra != nullptr)) uses = std::move(block->extra->uses);
    if (C10_LIKELY(uses.empty() && !direct)) return finishFree(block);
    counters_.active.startWaiting(segment.large, 1);
    counters_.active_bytes.startWaiting(segment.large, block->size);
    block->pending =
        static_cast<uint32_t>(uses.size()) + (direct ? 1 : 0);  // releaseDirect counts as one itself
  }
  if (direct) return releaseDirect(block, uses);
  std::vector<PendingEvents::Token> finished;
  pending_.defer(block, uses, finished);
  if (finished.empty()) return;
  std::lock_guard<SpinLock> lock(mutex_);
  for (PendingEvents::Token token : finished) {
    auto* done = static_cast<Block*>(token);
    if (--done->pending == 0) finishWaiting(done);
  }
}

std::exception_ptr DeviceArena::collect(PendingEvents::Mode mode) {
  PendingEvents::Result result = pending_.collect(mode);
  if (!result.finished.empty()) {
    std::lock_guard<SpinLock> lock(mutex_);
    if (closed_) return result.error;
    for (PendingEvents::Token token : result.finished) {
      auto* block = static_cast<Block*>(token);
      if (--block->pending == 0) finishWaiting(block);
    }
  }
  return result.error;
}

void DeviceArena::addUse(Block* block, c10::Stream stream) {
  if (!block->allocated) return;
  if (stream.device_index() == device_.index && stream.id() == block->segment->pools->stream) return;
  std::vector<c10::Stream>& uses = block->more().uses;
  for (const c10::Stream known : uses) {
    if (known == stream) return;
  }
  uses.push_back(stream);
}

void DeviceArena::recordUse(Block* block, c10::Stream stream) {
  std::lock_guard<SpinLock> lock(mutex_);
  addUse(block, stream);
}

Segment* DeviceArena::segmentOf(const void* pointer) const {
  auto after = segments_.upper_bound(reinterpret_cast<uintptr_t>(pointer));
  if (after == segments_.begin()) return nullptr;
  Segment* segment = std::prev(after)->second.get();
  return static_cast<const char*>(pointer) < segment->address + segment->size ? segment : nullptr;
}

bool DeviceArena::contains(const void* pointer) {
  std::lock_guard<SpinLock> lock(mutex_);
  return segmentOf(pointer) != nullptr;
}

Block* DeviceArena::blockAt(const void* pointer) {
  clearShelves();
  std::lock_guard<SpinLock> lock(mutex_);
  Segment* segment = segmentOf(pointer);
  Block* block = segment == nullptr ? nullptr : segment->first;
  while (block != nullptr && block->address != pointer) block = block->next;
  return block != nullptr && block->allocated ? block : nullptr;
}

bool DeviceArena::recordUse(const void* pointer, c10::Stream stream) {
  std::lock_guard<SpinLock> lock(mutex_);
  Segment* segment = segmentOf(pointer);
  if (segment == nullptr) return false;
  Block* block = segment->first;
  while (block->next != nullptr && block->next->address <= pointer) block = block->next;
  addUse(block, stream);
  return true;
}

}  // namespace flagos
