#include "csrc/runtime/device_arena.h"

#include <c10/util/Exception.h>

#include <utility>

#include "csrc/runtime/stream.h"

namespace flagos {

namespace {

using c10::CachingAllocator::StatArray;

constexpr size_t kDensePools = 512;         // stream ids below it are found by index
constexpr uint32_t kHitsBetweenPolls = 64;  // hits that may pass before finished events are looked for

inline void increase(StatArray& stat, bool large, size_t amount) {
  stat[0].increase(amount);
  stat[large ? 2 : 1].increase(amount);
}

inline void decrease(StatArray& stat, bool large, size_t amount) {
  stat[0].decrease(amount);
  stat[large ? 2 : 1].decrease(amount);
}

}  // namespace

DeviceArena::DeviceArena(const DeviceEntry& device) : device_(device) {
  stats_.max_split_size = static_cast<int64_t>(kOversize);
}

MemoryTotals DeviceArena::totals() const noexcept {
  return {stats_.allocated_bytes[0].current, stats_.reserved_bytes[0].current};
}

StreamPools& DeviceArena::poolsOf(c10::StreamId stream) {
  if (C10_LIKELY(stream >= 0 && static_cast<size_t>(stream) < dense_pools_.size())) {
    if (auto& pools = dense_pools_[static_cast<size_t>(stream)]) return *pools;
  }
  if (stream >= 0 && static_cast<size_t>(stream) < kDensePools) {
    if (static_cast<size_t>(stream) >= dense_pools_.size()) dense_pools_.resize(static_cast<size_t>(stream) + 1);
    auto& pools = dense_pools_[static_cast<size_t>(stream)];
    pools = std::make_unique<StreamPools>(stream);
    return *pools;
  }
  auto& pools = other_pools_[stream];
  if (!pools) pools = std::make_unique<StreamPools>(stream);
  return *pools;
}

void DeviceArena::addFree(Block* block) {
  Segment& segment = *block->segment;
  segment.pools->of(segment.large).insert(block);
  if (block->isSplit()) {
    increase(stats_.inactive_split, segment.large, 1);
    increase(stats_.inactive_split_bytes, segment.large, block->size);
  }
}

void DeviceArena::takeFree(Block* block) {
  Segment& segment = *block->segment;
  segment.pools->of(segment.large).remove(block);
  if (block->isSplit()) {
    decrease(stats_.inactive_split, segment.large, 1);
    decrease(stats_.inactive_split_bytes, segment.large, block->size);
  }
}

// Takes `bytes` out of `block`, which is in no free list, and counts it as allocated. What remains goes back as a block of its own.
Block* DeviceArena::hand(Block* block, size_t bytes, const ContextPtr& context) {
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
    addFree(rest);
  }
  block->allocated = true;
  block->requested = bytes;
  const bool large = segment.large;
  increase(stats_.allocation, large, 1);
  increase(stats_.allocated_bytes, large, block->size);
  increase(stats_.active, large, 1);
  increase(stats_.active_bytes, large, block->size);
  increase(stats_.requested_bytes, large, bytes);
  if (C10_UNLIKELY(isOversize(size))) stats_.oversize_allocations.increase(1);
  if (C10_UNLIKELY(context != nullptr)) block->more().context = context;
  note(MemoryAction::Alloc, reinterpret_cast<size_t>(block->address), block->size, segment.pools->stream, context);
  return block;
}

Block* DeviceArena::takeCached(size_t bytes, c10::StreamId stream, MemoryTotals& totals, const ContextPtr& context) {
  const size_t size = blockSizeFor(bytes);
  std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!closed_, "flagos: memory of flagos:", int(device_.index), " was asked for after shutdown.");
  FreeBlocks& blocks = poolsOf(stream).of(!isSmall(size));
  Block* block = blocks.find(size, largestUsefulBlock(size));
  if (block == nullptr) return nullptr;
  takeFree(block);
  hand(block, bytes, context);
  totals = this->totals();
  return block;
}

Block* DeviceArena::allocate(size_t bytes, c10::StreamId stream, MemoryTotals& totals) {
  ContextPtr context = MemoryHistory::gather(ContextLevel::State);
  if (C10_LIKELY(bytes <= kMaxRequest && allocatorMode() == AllocatorMode::Caching)) {
    if (Block* block = takeCached(bytes, stream, totals, context)) {
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

// Joins `neighbour`, which is free and beside `block`, to `block`.
void DeviceArena::merge(Block* block, Block* neighbour) {
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

// The block is used by nobody any more.
void DeviceArena::finishFree(Block* block) {
  Segment& segment = *block->segment;
  const bool large = segment.large;
  decrease(stats_.active, large, 1);
  decrease(stats_.active_bytes, large, block->size);
  decrease(stats_.requested_bytes, large, block->requested);
  if (C10_UNLIKELY(isOversize(block->size))) stats_.oversize_allocations.decrease(1);
  note(MemoryAction::FreeCompleted, reinterpret_cast<size_t>(block->address), block->size, segment.pools->stream, nullptr);
  if (C10_UNLIKELY(block->extra != nullptr)) block->extra.reset();
  block->requested = 0;
  if (block->previous != nullptr && block->previous->free) merge(block, block->previous);
  if (block->next != nullptr && block->next->free) merge(block, block->next);
  addFree(block);
}

void DeviceArena::release(Block* block, MemoryTotals& totals) noexcept {
  ContextPtr context = MemoryHistory::gather(ContextLevel::All);
  std::vector<c10::Stream> uses;
  bool direct;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (C10_UNLIKELY(closed_)) return;
    Segment& segment = *block->segment;
    decrease(stats_.allocation, segment.large, 1);
    decrease(stats_.allocated_bytes, segment.large, block->size);
    block->allocated = false;
    note(MemoryAction::FreeRequested, reinterpret_cast<size_t>(block->address), block->size, segment.pools->stream,
         context);
    totals = this->totals();
    direct = segment.direct;
    if (C10_UNLIKELY(block->extra != nullptr)) uses = std::move(block->extra->uses);
    if (C10_LIKELY(uses.empty() && !direct)) return finishFree(block);
    block->pending = static_cast<uint32_t>(uses.size()) + (direct ? 1 : 0);  // releaseDirect counts as one itself
  }
  if (direct) return releaseDirect(block, uses);
  std::vector<PendingEvents::Token> finished;
  pending_.defer(block, uses, finished);
  if (finished.empty()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  for (PendingEvents::Token token : finished) {
    auto* done = static_cast<Block*>(token);
    if (--done->pending == 0) finishFree(done);
  }
}

std::exception_ptr DeviceArena::collect(PendingEvents::Mode mode) {
  PendingEvents::Result result = pending_.collect(mode);
  if (!result.finished.empty()) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return result.error;
    for (PendingEvents::Token token : result.finished) {
      auto* block = static_cast<Block*>(token);
      if (--block->pending == 0) finishFree(block);
    }
  }
  return result.error;
}

void DeviceArena::recordUse(Block* block, c10::Stream stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!block->allocated) return;
  if (stream.device_index() == device_.index && stream.id() == block->segment->pools->stream) return;
  std::vector<c10::Stream>& uses = block->more().uses;
  for (const c10::Stream known : uses) {
    if (known == stream) return;
  }
  uses.push_back(stream);
}

Segment* DeviceArena::segmentOf(const void* pointer) const {
  auto after = segments_.upper_bound(reinterpret_cast<uintptr_t>(pointer));
  if (after == segments_.begin()) return nullptr;
  Segment* segment = std::prev(after)->second.get();
  return static_cast<const char*>(pointer) < segment->address + segment->size ? segment : nullptr;
}

bool DeviceArena::contains(const void* pointer) {
  std::lock_guard<std::mutex> lock(mutex_);
  return segmentOf(pointer) != nullptr;
}

Block* DeviceArena::blockAt(const void* pointer) {
  std::lock_guard<std::mutex> lock(mutex_);
  Segment* segment = segmentOf(pointer);
  Block* block = segment == nullptr ? nullptr : segment->first;
  while (block != nullptr && block->address != pointer) block = block->next;
  return block != nullptr && block->allocated ? block : nullptr;
}

bool DeviceArena::recordUse(const void* pointer, c10::Stream stream) {
  Block* block = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Segment* segment = segmentOf(pointer);
    if (segment == nullptr) return false;
    block = segment->first;
    while (block->next != nullptr && block->next->address <= pointer) block = block->next;
  }
  // Whoever names an address inside the block keeps the block alive during the call.
  recordUse(block, stream);
  return true;
}

}  // namespace flagos
