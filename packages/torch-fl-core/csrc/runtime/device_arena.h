// The memory of one device: its segments, the free blocks of each stream, statistics and history.
//
// Locks, in the order in which a thread may take them:
//   slow_mutex_    one thread at a time runs the out-of-memory ladder or empties the cache; held across HAL
//                  calls.
//   PendingEvents' own (collecting_, mutex_).
//   mutex_         all bookkeeping; never held across a HAL call, so that a free never waits for a driver.
//   Shelf's own    a thread's few small free blocks (shelf.h).
// Most frees and allocations of small blocks take the shelf's lock only, other frees mutex_. Memory that the
// HAL is asked for or given back meanwhile is accounted for by `reserving_` and by taking its block out of
// the free lists first.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <array>
#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/runtime/block_pool.h"
#include "csrc/runtime/device_allocator.h"
#include "csrc/runtime/devices.h"
#include "csrc/runtime/memory_history.h"
#include "csrc/runtime/pending_events.h"
#include "csrc/runtime/shelf.h"
#include "csrc/runtime/spin_lock.h"
#include "csrc/runtime/tally.h"

namespace flagos {

// Bytes in use and reserved, as the profiler wants them beside each allocation.
struct MemoryTotals {
  int64_t allocated = 0;
  int64_t reserved = 0;
};

struct ArenaCounters {
  enum Which : size_t {
    Allocation,  // blocks
    AllocatedBytes,
    RequestedBytes,  // what active blocks were asked for
    InactiveSplit,   // free blocks that are not a whole segment
    InactiveSplitBytes,
    Segments,
    ReservedBytes,
    Count_
  };
  Tally& of(Which which) noexcept { return tallies[which]; }
  const Tally& of(Which which) const noexcept { return tallies[which]; }

  std::array<Tally, Count_> tallies;
  ActiveTally active;  // blocks that are allocated, or freed but still in use on other streams
  ActiveTally active_bytes;
  std::array<TallyOrigin, Count_> origins;
  TallyOrigin active_origin;
  TallyOrigin active_bytes_origin;
  c10::CachingAllocator::Stat oversize_allocations;
  c10::CachingAllocator::Stat oversize_segments;
  int64_t num_alloc_retries = 0;
  int64_t num_ooms = 0;
  int64_t num_sync_all_streams = 0;
  int64_t num_device_alloc = 0;
  int64_t num_device_free = 0;
};

class DeviceArena final : private ShelfOwner {
 public:
  explicit DeviceArena(const DeviceEntry& device);

  // A block of at least `bytes` > 0 for use on `stream` of this device. Throws c10::OutOfMemoryError when the
  // ladder has failed.
  Block* allocate(size_t bytes, c10::StreamId stream, MemoryTotals& totals);
  void release(Block* block, MemoryTotals& totals) noexcept;

  // `stream`, of any device, uses the block until it has passed the point where the block is freed.
  void recordUse(Block* block, c10::Stream stream);
  bool recordUse(const void* pointer, c10::Stream stream);

  // The allocated block that starts at `pointer`, or null.
  Block* blockAt(const void* pointer);
  bool contains(const void* pointer);

  // Gives free segments back to the HAL, after waiting for the work that may still use them. Returns the
  // bytes given back; throws the first failure after doing all that could be done.
  size_t emptyCache();

  c10::CachingDeviceAllocator::DeviceStats stats();
  void resetPeakStats();
  void resetAccumulatedStats();
  void setFraction(double fraction);
  double fraction();
  void snapshot(std::vector<SegmentSnapshot>& out);
  std::vector<TraceRecord> trace();
  void clearTrace();

  void shutDown() noexcept;
  const DeviceEntry& device() const noexcept { return device_; }

 private:
  void retire(Shelf* shelf) noexcept override;

  enum class Grant { Given, NoMemory, OverLimit };
  struct Ladder;

  Block* allocateSlowly(size_t bytes, c10::StreamId stream, MemoryTotals& totals, ContextPtr context);
  Block* climbLadder(size_t bytes, c10::StreamId stream, MemoryTotals& totals, const ContextPtr& context,
                     Grant first);
  [[noreturn]] void failAllocation(size_t bytes, const Ladder& ladder, const ContextPtr& context);
  Grant growBy(size_t segment_size, size_t bytes, c10::StreamId stream, MemoryTotals& totals,
               const ContextPtr& context, Block*& block);
  Block* takeCached(size_t bytes, c10::StreamId stream, MemoryTotals& totals, const ContextPtr& context);
  std::exception_ptr collect(PendingEvents::Mode mode);
  size_t releaseFreeSegments(std::exception_ptr& error);
  bool settle(const StreamPools& pools, std::exception_ptr& error);
  bool releaseSegment(Segment* segment, std::exception_ptr& error);
  void releaseDirect(Block* block, const std::vector<c10::Stream>& uses) noexcept;

  Block* takeShelved(size_t bytes, c10::StreamId stream) noexcept;
  bool shelve(Block* block) noexcept;
  Shelf* makeShelf() noexcept;
  void clearShelves(bool close = false) noexcept;

  // With mutex_ held.
  ShelfCounts foldShelf() noexcept;
  void fold(const ShelfChange& change, const ShelfCounts& elsewhere) noexcept;
  ShelfCounts elsewhere(const Shelf* but) const noexcept;
  void returnShelved(Block* blocks) noexcept;
  StreamPools& poolsOf(c10::StreamId stream);
  Block* hand(Block* block, size_t bytes, const ContextPtr& context, const ShelfCounts& elsewhere);
  void addUse(Block* block, c10::Stream stream);
  void finishFree(Block* block);
  void finishWaiting(Block* block);
  void addFree(Block* block, bool recent);
  void takeFree(Block* block);
  void join(Block* block);
  void joinRecent(FreePool& pool);
  void joinAllRecent();
  void absorb(Block* block, Block* neighbour);
  void note(MemoryAction action, size_t address, size_t size, c10::StreamId stream,
            const ContextPtr& context);
  MemoryTotals totals(const ShelfCounts& elsewhere) const noexcept;
  Segment* segmentOf(const void* pointer) const;

  const DeviceEntry& device_;
  std::mutex slow_mutex_;
  SpinLock mutex_;
  PendingEvents pending_;
  // The rest is guarded by mutex_.
  std::vector<std::unique_ptr<StreamPools>> dense_pools_;  // by stream id, for the ids that are small
  std::unordered_map<c10::StreamId, std::unique_ptr<StreamPools>> other_pools_;
  std::map<uintptr_t, std::unique_ptr<Segment>> segments_;
  BlockObjects objects_;
  std::vector<Shelf*> shelves_;  // of all threads that have one; owned
  ArenaCounters counters_;
  TraceRing trace_;
  size_t reserving_ = 0;       // bytes that are being asked of the HAL now
  size_t limit_ = ~size_t{0};  // of reserved bytes
  double fraction_ = 1.0;
  std::atomic<uint32_t> hits_{0};  // allocations served while events were outstanding
  bool closed_ = false;
};

}  // namespace flagos
