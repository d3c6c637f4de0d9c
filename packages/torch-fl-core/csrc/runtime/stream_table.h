// Which HAL stream a StreamId of a device means. Private to the runtime.
//
// Tables only grow, entries never change or move, so a look-up takes no lock: ids are given out after their
// entry was written.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <mutex>

#include "csrc/runtime/devices.h"

namespace flagos::detail {

struct StreamEntry {
  flagos_hal_stream* handle = nullptr;
  int priority = 0;
  bool external = false;
  // The HAL leaves the order of event records and waits on one stream to its caller; threads may share a
  // stream.
  std::mutex order;
};

inline constexpr int kStreamsPerChunk = 64;
inline constexpr int kStreamChunks = 1024;

struct StreamTable {
  StreamEntry fallback;  // id 0; written before default_ready
  std::atomic<bool> default_ready{false};
  std::atomic<c10::StreamId> size{0};  // ids 1 … size exist
  std::atomic<StreamEntry*> chunks[kStreamChunks] = {};
  std::mutex mutex;  // held by writers
};

// A plain pointer, made at load: reading it costs one load and no guard.
extern __attribute__((visibility("hidden"))) StreamTable* const stream_tables;

StreamEntry& makeDefaultEntry(const DeviceEntry& device);
[[noreturn]] void badStreamId(const DeviceEntry& device, c10::StreamId id);

// Throws for an id that was never given out. Asks nothing of the HAL.
inline void checkStreamId(const DeviceEntry& device, c10::StreamId id) {
  if (C10_UNLIKELY(id < 0 || id > stream_tables[device.index].size.load(std::memory_order_acquire)))
    badStreamId(device, id);
}

// The entry of an id. Throws for one that was never given out.
inline StreamEntry& findStream(const DeviceEntry& device, c10::StreamId id) {
  StreamTable& table = stream_tables[device.index];
  if (id == 0) {
    if (C10_LIKELY(table.default_ready.load(std::memory_order_acquire))) return table.fallback;
    return makeDefaultEntry(device);
  }
  checkStreamId(device, id);
  const auto place = static_cast<size_t>(id - 1);
  return table.chunks[place / kStreamsPerChunk].load(std::memory_order_acquire)[place % kStreamsPerChunk];
}

// Enters a HAL stream and returns its id; a stream that is there already keeps its id.
c10::StreamId addStream(const DeviceEntry& device, flagos_hal_stream* handle, int priority, bool external);

// At shutdown: gives back every stream that core made.
void destroyAllStreams() noexcept;

}  // namespace flagos::detail
