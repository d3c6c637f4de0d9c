// The part of DeviceArena that talks to the HAL: growing, giving back, and what is tried when memory runs
// out.
#include <c10/util/Exception.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "csrc/runtime/device_arena.h"
#include "csrc/runtime/stream.h"

namespace flagos {

namespace {

c10::Stream streamOf(const DeviceEntry& device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, device.index), id);
}

void keepFirst(std::exception_ptr& first) {
  if (!first) first = std::current_exception();
}

std::string text(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& caught) {
    return caught.what_without_backtrace();
  } catch (const std::exception& caught) {
    return caught.what();
  } catch (...) {
    return "unknown error";
  }
}

std::string bytesInWords(size_t bytes) { return c10::CachingAllocator::format_size(bytes); }

}  // namespace

// What the out-of-memory ladder has tried so far, for its message.
struct DeviceArena::Ladder {
  bool over_limit = false;     // the last refusal came from the fraction limit, not from the HAL
  size_t given_back = 0;       // bytes of free segments
  std::exception_ptr trouble;  // a failure on the way
};

// Gets a segment from the HAL and `bytes` out of it. The block comes back through `block` if Given.
DeviceArena::Grant DeviceArena::growBy(size_t segment_size, size_t bytes, c10::StreamId stream,
                                       MemoryTotals& totals, const ContextPtr& context, Block*& block) {
  const bool direct = allocatorMode() == AllocatorMode::Direct;
  {
    std::lock_guard<SpinLock> lock(mutex_);
    TORCH_CHECK(!closed_, "flagos: memory of flagos:", int(device_.index), " was asked for after shutdown.");
    const size_t reserved =
        static_cast<size_t>(counters_.of(ArenaCounters::ReservedBytes).current()) + reserving_;
    if (reserved > limit_ || segment_size > limit_ - reserved) return Grant::OverLimit;
    reserving_ += segment_size;
  }
  void* address = nullptr;
  const flagos_hal_status status = device_.hal->memory.allocate(device_.local, segment_size, &address);
  if (status != FLAGOS_HAL_STATUS_OK) {
    {
      std::lock_guard<SpinLock> lock(mutex_);
      reserving_ -= segment_size;
    }
    if (status == FLAGOS_HAL_STATUS_OUT_OF_MEMORY) return Grant::NoMemory;
    const std::string what = "allocate " + bytesInWords(segment_size) + " of device memory";
    throwHalError(device_, status, what.c_str());
  }
  std::lock_guard<SpinLock> lock(mutex_);
  reserving_ -= segment_size;
  auto segment = std::make_unique<Segment>();
  segment->address = static_cast<char*>(address);
  segment->size = segment_size;
  segment->pools = &poolsOf(stream);
  segment->large = !isSmall(blockSizeFor(bytes));
  segment->direct = direct;
  segment->context = context;
  Block* whole = objects_.make();
  whole->arena = this;
  whole->segment = segment.get();
  whole->address = segment->address;
  whole->size = segment_size;
  segment->first = whole;
  const bool large = segment->large;
  segments_[reinterpret_cast<uintptr_t>(address)] = std::move(segment);
  counters_.of(ArenaCounters::Segments).increase(large, 1);
  counters_.of(ArenaCounters::ReservedBytes).increase(large, segment_size);
  ++counters_.num_device_alloc;
  if (isOversize(segment_size)) counters_.oversize_segments.increase(1);
  note(MemoryAction::SegmentAlloc, reinterpret_cast<size_t>(address), segment_size, stream, context);
  const ShelfCounts elsewhere = foldShelf();
  block = hand(whole, bytes, context, elsewhere);
  totals = this->totals(elsewhere);
  return Grant::Given;
}

Block* DeviceArena::allocateSlowly(size_t bytes, c10::StreamId stream, MemoryTotals& totals,
                                   ContextPtr context) {
  if (bytes > kMaxRequest) failAllocation(bytes, Ladder{}, context);
  const bool direct = allocatorMode() == AllocatorMode::Direct;
  if (!direct) {
    // What threads keep for themselves, and what other streams have finished with, before more is asked for.
    clearShelves();
    if (pending_.size() != 0) collect(PendingEvents::Mode::Poll);
    if (Block* block = takeCached(bytes, stream, totals, context)) return block;
  }
  const size_t size = blockSizeFor(bytes);
  Block* block = nullptr;
  const Grant grant = growBy(direct ? size : segmentSizeFor(size), bytes, stream, totals, context, block);
  return grant == Grant::Given ? block : climbLadder(bytes, stream, totals, context, grant);
}

Block* DeviceArena::climbLadder(size_t bytes, c10::StreamId stream, MemoryTotals& totals,
                                const ContextPtr& context, Grant first) {
  const bool direct = allocatorMode() == AllocatorMode::Direct;
  const size_t size = blockSizeFor(bytes);
  const size_t usual = direct ? size : segmentSizeFor(size);
  const size_t tight = direct ? size : tightSegmentSizeFor(size);
  Ladder ladder;
  ladder.over_limit = first == Grant::OverLimit;
  std::unique_lock<std::mutex> one_at_a_time(slow_mutex_);
  {
    std::lock_guard<SpinLock> lock(mutex_);
    ++counters_.num_alloc_retries;
  }
  // 1. What other streams have finished with; 2. what they still use, by waiting for it.
  for (const auto mode : {PendingEvents::Mode::Sweep, PendingEvents::Mode::Wait}) {
    if (pending_.size() != 0) {
      if (mode == PendingEvents::Mode::Wait) {
        std::lock_guard<SpinLock> lock(mutex_);
        ++counters_.num_sync_all_streams;
      }
      if (std::exception_ptr error = collect(mode)) ladder.trouble = error;
    }
    if (direct) continue;
    clearShelves();
    if (Block* block = takeCached(bytes, stream, totals, context)) return block;
  }
  // 3. Give the cache back to the device and ask again, at last for no more than needed.
  ladder.given_back = releaseFreeSegments(ladder.trouble);
  for (const size_t segment_size : {usual, tight}) {
    Block* block = nullptr;
    const Grant grant = growBy(segment_size, bytes, stream, totals, context, block);
    if (grant == Grant::Given) return block;
    ladder.over_limit = grant == Grant::OverLimit;
  }
  one_at_a_time.unlock();  // the observers may use the allocator
  failAllocation(bytes, ladder, context);
}

void DeviceArena::failAllocation(size_t bytes, const Ladder& ladder, const ContextPtr& context) {
  uint64_t device_free = 0;
  uint64_t device_total = 0;
  const bool known =
      device_.hal->device.memory_info(device_.local, &device_free, &device_total) == FLAGOS_HAL_STATUS_OK;
  size_t allocated, reserved, waiting, limit, largest = 0;
  double fraction;
  clearShelves();
  {
    std::lock_guard<SpinLock> lock(mutex_);
    ++counters_.num_ooms;
    joinAllRecent();
    note(MemoryAction::Oom, static_cast<size_t>(device_free), bytes, 0, context);
    allocated = static_cast<size_t>(counters_.of(ArenaCounters::AllocatedBytes).current());
    reserved = static_cast<size_t>(counters_.of(ArenaCounters::ReservedBytes).current());
    waiting = static_cast<size_t>(counters_.active_bytes.waiting());
    limit = limit_;
    fraction = fraction_;
    for (const auto& [address, segment] : segments_) {
      for (Block* block = segment->first; block != nullptr; block = block->next) {
        if (block->free) largest = std::max(largest, block->size);
      }
    }
  }
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(std::min(bytes, size_t{1} << 62)), allocated,
                                   reserved, c10::Device(kDeviceType, device_.index));
  notifyOutOfMemory(device_.index, bytes, device_total, device_free);

  std::ostringstream message;
  message << "flagos: out of memory on flagos:" << int(device_.index) << " (backend '"
          << device_.backend->request.name << "'). Asked for " << bytesInWords(bytes);
  if (known && bytes > device_total) message << ", more than the device has";
  message << "; ";
  if (known) {
    message << bytesInWords(device_free) << " of the device's " << bytesInWords(device_total)
            << " are free. ";
  } else {
    message << "the device did not tell its free memory. ";
  }
  message << "This process has " << bytesInWords(allocated) << " allocated and " << bytesInWords(reserved)
          << " reserved; the largest free block it holds has " << bytesInWords(largest) << ". ";
  if (limit != ~size_t{0}) {
    message << "It may reserve " << bytesInWords(limit) << " (set_per_process_memory_fraction: " << fraction
            << "). ";
  }
  if (waiting != 0) message << bytesInWords(waiting) << " are freed but still in use on other streams. ";
  message << "Tried: waiting for memory in use on other streams, giving back the cache ("
          << bytesInWords(ladder.given_back) << "), asking again. ";
  if (ladder.trouble) message << "Meanwhile: " << text(ladder.trouble) << " ";
  message << "What to do: ";
  if (ladder.over_limit) message << "raise the fraction; ";
  if (reserved - allocated > bytes) {
    message << "reserved memory that is not allocated would do but lies in pieces: free the tensors that "
               "keep its segments alive "
               "(torch.flagos.memory_snapshot() shows them), or allocate the large ones first; ";
  }
  message << "delete tensors that are no longer needed, use a smaller batch, or activation checkpointing. "
             "torch.flagos.memory_summary() shows where it went.";
  TORCH_CHECK_WITH(OutOfMemoryError, false, message.str());
}

// Whether the work queued on the stream of `pools`, which may still use its free blocks, has finished (waits
// for it).
bool DeviceArena::settle(const StreamPools& pools, std::exception_ptr& error) {
  try {
    flagos_hal_status status = device_.hal->stream.synchronize(streamHandle(streamOf(device_, pools.stream)));
    // A stream that its owner has destroyed: its work may still be running, so the whole device is waited
    // for.
    if (status == FLAGOS_HAL_STATUS_INVALID_HANDLE) status = device_.hal->device.synchronize(device_.local);
    FLAGOS_CHECK(device_, status, "wait for a stream before giving memory back");
    return true;
  } catch (...) {
    keepFirst(error);
    return false;
  }
}

bool DeviceArena::releaseSegment(Segment* segment, std::exception_ptr& error) {
  // Out of the map first: once the HAL has taken the memory back, it may give the same address to another
  // thread.
  std::unique_ptr<Segment> owned;
  const auto key = reinterpret_cast<uintptr_t>(segment->address);
  {
    std::lock_guard<SpinLock> lock(mutex_);
    auto place = segments_.find(key);
    owned = std::move(place->second);
    segments_.erase(place);
  }
  const flagos_hal_status status = device_.hal->memory.release(device_.local, segment->address);
  if (status != FLAGOS_HAL_STATUS_OK) {
    try {
      throwHalError(device_, status, "give device memory back");
    } catch (...) {
      keepFirst(error);
    }
    std::lock_guard<SpinLock> lock(mutex_);
    addFree(segment->first, /*recent=*/false);
    segments_[key] = std::move(owned);
    return false;
  }
  std::lock_guard<SpinLock> lock(mutex_);
  counters_.of(ArenaCounters::Segments).decrease(segment->large, 1);
  counters_.of(ArenaCounters::ReservedBytes).decrease(segment->large, segment->size);
  ++counters_.num_device_free;
  if (isOversize(segment->size)) counters_.oversize_segments.decrease(1);
  note(MemoryAction::SegmentFree, key, segment->size, segment->pools->stream, nullptr);
  objects_.discard(segment->first);
  return true;
}

size_t DeviceArena::releaseFreeSegments(std::exception_ptr& error) {
  // Taken out of the free lists first, so that no other thread hands them out meanwhile.
  std::vector<Segment*> victims;
  clearShelves();
  {
    std::lock_guard<SpinLock> lock(mutex_);
    joinAllRecent();
    for (auto& [address, segment] : segments_) {
      Block* block = segment->first;
      if (!block->free || block->isSplit()) continue;
      takeFree(block);
      victims.push_back(segment.get());
    }
  }
  size_t given_back = 0;
  std::sort(victims.begin(), victims.end(),
            [](const Segment* a, const Segment* b) { return a->pools->stream < b->pools->stream; });
  const StreamPools* waited_for = nullptr;
  bool settled = false;
  for (Segment* segment : victims) {
    if (segment->pools != waited_for) {
      waited_for = segment->pools;
      settled = settle(*waited_for, error);
    }
    if (!settled) {
      std::lock_guard<SpinLock> lock(mutex_);
      addFree(segment->first, /*recent=*/false);
      continue;
    }
    const size_t size = segment->size;
    if (releaseSegment(segment, error)) given_back += size;
  }
  return given_back;
}

// A free of direct memory. The streams are waited for here; where that fails the block goes the way of the
// cache and is given back by the next emptyCache or ladder that can.
void DeviceArena::releaseDirect(Block* block, const std::vector<c10::Stream>& uses) noexcept {
  std::exception_ptr error;
  std::vector<PendingEvents::Token> finished;
  for (const c10::Stream stream : uses) {
    try {
      synchronizeStream(stream);
      finished.push_back(block);
    } catch (const std::exception&) {
      pending_.defer(block, {stream}, finished);
    }
  }
  const bool settled = settle(*block->segment->pools, error);
  {
    std::lock_guard<SpinLock> lock(mutex_);
    block->pending -= static_cast<uint32_t>(finished.size()) + 1;
    if (block->pending != 0) return;
    finishWaiting(block);
    if (!settled) return;
    takeFree(block);
  }
  releaseSegment(block->segment, error);
}

size_t DeviceArena::emptyCache() {
  std::lock_guard<std::mutex> one_at_a_time(slow_mutex_);
  std::exception_ptr error = collect(PendingEvents::Mode::Wait);
  const size_t given_back = releaseFreeSegments(error);
  if (error) std::rethrow_exception(error);
  return given_back;
}

void DeviceArena::shutDown() noexcept {
  std::lock_guard<std::mutex> one_at_a_time(slow_mutex_);
  std::exception_ptr error;
  {
    PendingEvents::Result result = pending_.collect(PendingEvents::Mode::Sweep);
    std::lock_guard<SpinLock> lock(mutex_);
    for (PendingEvents::Token token : result.finished) {
      auto* block = static_cast<Block*>(token);
      if (--block->pending == 0) finishWaiting(block);
    }
  }
  releaseFreeSegments(error);
  clearShelves(/*close=*/true);
  {
    std::lock_guard<SpinLock> lock(mutex_);
    closed_ = true;
  }
  pending_.clear();
}

}  // namespace flagos
