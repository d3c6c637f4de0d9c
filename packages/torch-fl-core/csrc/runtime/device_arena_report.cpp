// What a DeviceArena tells about itself: statistics, snapshot, history; and the memory fraction.
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "csrc/runtime/device_arena.h"

namespace flagos {

namespace {

using c10::CachingDeviceAllocator::DeviceStats;

const char* stateOf(const Block& block) {
  if (block.allocated) return "active_allocated";
  return block.pending != 0 ? "active_pending_free" : "inactive";
}

}  // namespace

// By name, so that the fields which torch minors add or move do not matter.
DeviceStats DeviceArena::stats() {
  ArenaCounters now;
  clearShelves();
  {
    std::lock_guard<SpinLock> lock(mutex_);
    joinAllRecent();  // what is told does not depend on how much of the joining is still to be done
    now = counters_;
  }
  const auto told = [&now](ArenaCounters::Which which) { return now.of(which).stats(now.origins[which]); };
  const Tally active = now.active.over(now.of(ArenaCounters::Allocation));
  const Tally active_bytes = now.active_bytes.over(now.of(ArenaCounters::AllocatedBytes));
  DeviceStats out;
  out.allocation = told(ArenaCounters::Allocation);
  out.segment = told(ArenaCounters::Segments);
  out.active = active.stats(now.active_origin);
  out.inactive_split = told(ArenaCounters::InactiveSplit);
  out.allocated_bytes = told(ArenaCounters::AllocatedBytes);
  out.reserved_bytes = told(ArenaCounters::ReservedBytes);
  out.active_bytes = active_bytes.stats(now.active_bytes_origin);
  out.inactive_split_bytes = told(ArenaCounters::InactiveSplitBytes);
  out.requested_bytes = told(ArenaCounters::RequestedBytes);
  out.oversize_allocations = now.oversize_allocations;
  out.oversize_segments = now.oversize_segments;
  out.num_alloc_retries = now.num_alloc_retries;
  out.num_ooms = now.num_ooms;
  out.num_sync_all_streams = now.num_sync_all_streams;
  out.num_device_alloc = now.num_device_alloc;
  out.num_device_free = now.num_device_free;
  out.max_split_size = static_cast<int64_t>(kOversize);
  return out;
}

void DeviceArena::resetPeakStats() {
  clearShelves();
  std::lock_guard<SpinLock> lock(mutex_);
  for (Tally& tally : counters_.tallies) tally.resetPeak();
  counters_.active.resetPeak(counters_.of(ArenaCounters::Allocation));
  counters_.active_bytes.resetPeak(counters_.of(ArenaCounters::AllocatedBytes));
  counters_.oversize_allocations.reset_peak();
  counters_.oversize_segments.reset_peak();
}

void DeviceArena::resetAccumulatedStats() {
  clearShelves();
  std::lock_guard<SpinLock> lock(mutex_);
  for (size_t i = 0; i < ArenaCounters::Count_; ++i) counters_.origins[i] = counters_.tallies[i].originNow();
  counters_.active_origin = counters_.active.over(counters_.of(ArenaCounters::Allocation)).originNow();
  counters_.active_bytes_origin =
      counters_.active_bytes.over(counters_.of(ArenaCounters::AllocatedBytes)).originNow();
  counters_.oversize_allocations.reset_accumulated();
  counters_.oversize_segments.reset_accumulated();
  counters_.num_alloc_retries = 0;
  counters_.num_ooms = 0;
  counters_.num_sync_all_streams = 0;
  counters_.num_device_alloc = 0;
  counters_.num_device_free = 0;
}

void DeviceArena::setFraction(double fraction) {
  TORCH_CHECK_VALUE(fraction >= 0.0 && fraction <= 1.0,
                    "flagos: a memory fraction lies between 0 and 1; got ", fraction,
                    " for flagos:", int(device_.index), ".");
  uint64_t free = 0;
  uint64_t total = 0;
  FLAGOS_CHECK(device_, device_.hal->device.memory_info(device_.local, &free, &total),
               "ask for the device's memory");
  std::lock_guard<SpinLock> lock(mutex_);
  fraction_ = fraction;
  limit_ = fraction == 1.0 ? ~size_t{0} : static_cast<size_t>(fraction * static_cast<double>(total));
}

double DeviceArena::fraction() {
  std::lock_guard<SpinLock> lock(mutex_);
  return fraction_;
}

void DeviceArena::note(MemoryAction action, size_t address, size_t size, c10::StreamId stream,
                       const ContextPtr& context) {
  if (C10_LIKELY(!MemoryHistory::enabled())) return;
  const HistoryOptions options = MemoryHistory::options();
  if (!options.keep_trace) return;
  const bool with_context = static_cast<int>(options.level) >= static_cast<int>(ContextLevel::Alloc);
  trace_.add({action, address, size, stream, nowMicroseconds(), with_context ? context : nullptr},
             options.max_entries);
}

std::vector<TraceRecord> DeviceArena::trace() {
  std::lock_guard<SpinLock> lock(mutex_);
  return trace_.inOrder();
}

void DeviceArena::clearTrace() {
  std::lock_guard<SpinLock> lock(mutex_);
  trace_.clear();
}

void DeviceArena::snapshot(std::vector<SegmentSnapshot>& out) {
  clearShelves();
  std::lock_guard<SpinLock> lock(mutex_);
  joinAllRecent();
  for (const auto& [address, segment] : segments_) {
    SegmentSnapshot shot{};
    shot.device = device_.index;
    shot.address = address;
    shot.total_size = segment->size;
    shot.stream = segment->pools->stream;
    shot.is_large = segment->large;
    shot.context = segment->context;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      shot.blocks.push_back({reinterpret_cast<size_t>(block->address), block->size, block->requested,
                             stateOf(*block), block->extra ? block->extra->context : nullptr});
      if (block->allocated) shot.allocated_size += block->size;
      if (block->allocated || block->pending != 0) {
        shot.active_size += block->size;
        shot.requested_size += block->requested;
      }
    }
    out.push_back(std::move(shot));
  }
}

}  // namespace flagos
