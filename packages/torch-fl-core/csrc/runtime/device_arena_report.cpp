// What a DeviceArena tells about itself: statistics, snapshot, history; and the memory fraction.
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "csrc/runtime/device_arena.h"

namespace flagos {

namespace {

using c10::CachingAllocator::StatArray;
using c10::CachingDeviceAllocator::DeviceStats;

// The statistics that are kept for each pool; the fields that later minors added do not concern us.
template <typename Function>
void eachStat(DeviceStats& stats, Function function) {
  for (StatArray* array :
       {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split, &stats.allocated_bytes,
        &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes, &stats.requested_bytes}) {
    for (auto& stat : *array) function(stat);
  }
  function(stats.oversize_allocations);
  function(stats.oversize_segments);
}

const char* stateOf(const Block& block) {
  if (block.allocated) return "active_allocated";
  return block.pending != 0 ? "active_pending_free" : "inactive";
}

}  // namespace

DeviceStats DeviceArena::stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

void DeviceArena::resetPeakStats() {
  std::lock_guard<std::mutex> lock(mutex_);
  eachStat(stats_, [](auto& stat) { stat.reset_peak(); });
}

void DeviceArena::resetAccumulatedStats() {
  std::lock_guard<std::mutex> lock(mutex_);
  eachStat(stats_, [](auto& stat) { stat.reset_accumulated(); });
  stats_.num_alloc_retries = 0;
  stats_.num_ooms = 0;
  stats_.num_sync_all_streams = 0;
  stats_.num_device_alloc = 0;
  stats_.num_device_free = 0;
}

void DeviceArena::setFraction(double fraction) {
  TORCH_CHECK_VALUE(fraction >= 0.0 && fraction <= 1.0, "flagos: a memory fraction lies between 0 and 1; got ", fraction,
                    " for flagos:", int(device_.index), ".");
  uint64_t free = 0;
  uint64_t total = 0;
  FLAGOS_CHECK(device_, device_.hal->device.memory_info(device_.local, &free, &total), "ask for the device's memory");
  std::lock_guard<std::mutex> lock(mutex_);
  fraction_ = fraction;
  limit_ = fraction == 1.0 ? ~size_t{0} : static_cast<size_t>(fraction * static_cast<double>(total));
}

double DeviceArena::fraction() {
  std::lock_guard<std::mutex> lock(mutex_);
  return fraction_;
}

void DeviceArena::note(MemoryAction action, size_t address, size_t size, c10::StreamId stream, const ContextPtr& context) {
  if (C10_LIKELY(!MemoryHistory::enabled())) return;
  const HistoryOptions options = MemoryHistory::options();
  if (!options.keep_trace) return;
  const bool with_context = static_cast<int>(options.level) >= static_cast<int>(ContextLevel::Alloc);
  trace_.add({action, address, size, stream, nowMicroseconds(), with_context ? context : nullptr}, options.max_entries);
}

std::vector<TraceRecord> DeviceArena::trace() {
  std::lock_guard<std::mutex> lock(mutex_);
  return trace_.inOrder();
}

void DeviceArena::clearTrace() {
  std::lock_guard<std::mutex> lock(mutex_);
  trace_.clear();
}

void DeviceArena::snapshot(std::vector<SegmentSnapshot>& out) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [address, segment] : segments_) {
    SegmentSnapshot shot{};
    shot.device = device_.index;
    shot.address = address;
    shot.total_size = segment->size;
    shot.stream = segment->pools->stream;
    shot.is_large = segment->large;
    shot.context = segment->context;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      shot.blocks.push_back({reinterpret_cast<size_t>(block->address), block->size, block->requested, stateOf(*block),
                             block->extra ? block->extra->context : nullptr});
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
