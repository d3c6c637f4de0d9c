#include "csrc/runtime/stream_table.h"

namespace flagos::detail {

StreamTable* const stream_tables =
    new StreamTable[kMaxDevices];  // leaked: streams outlive static destructors

StreamEntry& makeDefaultEntry(const DeviceEntry& device) {
  StreamTable& table = stream_tables[device.index];
  std::lock_guard<std::mutex> lock(table.mutex);
  if (!table.default_ready.load(std::memory_order_relaxed)) {
    flagos_hal_stream* handle = nullptr;
    FLAGOS_CHECK(device, device.hal->stream.default_stream(device.local, &handle), "get the default stream");
    table.fallback.handle = handle;
    table.default_ready.store(true, std::memory_order_release);
    markDeviceInUse(device.index);
  }
  return table.fallback;
}

void badStreamId(const DeviceEntry& device, c10::StreamId id) {
  TORCH_CHECK(false, "flagos: ", describeDevice(device), " has no stream with id ", id,
              ". Streams come from torch.Stream, torch.flagos.Stream and torch.flagos.ExternalStream; ids "
              "are not made up.");
}

c10::StreamId addStream(const DeviceEntry& device, flagos_hal_stream* handle, int priority, bool external) {
  StreamTable& table = stream_tables[device.index];
  if (external && findStream(device, 0).handle == handle) return 0;
  std::lock_guard<std::mutex> lock(table.mutex);
  const c10::StreamId size = table.size.load(std::memory_order_relaxed);
  for (c10::StreamId id = 1; external && id <= size; ++id) {
    const auto place = static_cast<size_t>(id - 1);
    if (table.chunks[place / kStreamsPerChunk].load()[place % kStreamsPerChunk].handle == handle) return id;
  }
  const auto place = static_cast<size_t>(size);
  TORCH_CHECK(place < static_cast<size_t>(kStreamChunks) * kStreamsPerChunk,
              "flagos: ", describeDevice(device), " was given ", size,
              " streams, and core's table holds no more. Use each external stream more than once.");
  std::atomic<StreamEntry*>& chunk = table.chunks[place / kStreamsPerChunk];
  if (chunk.load(std::memory_order_relaxed) == nullptr) {
    chunk.store(new StreamEntry[kStreamsPerChunk], std::memory_order_release);
  }
  StreamEntry& entry = chunk.load(std::memory_order_relaxed)[place % kStreamsPerChunk];
  entry.handle = handle;
  entry.priority = priority;
  entry.external = external;
  table.size.store(size + 1, std::memory_order_release);
  markDeviceInUse(device.index);
  return size + 1;
}

void destroyAllStreams() noexcept {
  for (c10::DeviceIndex device = 0; device < kMaxDevices; ++device) {
    StreamTable& table = stream_tables[device];
    std::lock_guard<std::mutex> lock(table.mutex);
    const c10::StreamId size = table.size.load(std::memory_order_relaxed);
    for (c10::StreamId id = 1; id <= size; ++id) {
      const auto place = static_cast<size_t>(id - 1);
      const StreamEntry& entry =
          table.chunks[place / kStreamsPerChunk].load(std::memory_order_relaxed)[place % kStreamsPerChunk];
      if (!entry.external) device_table[device].hal->stream.destroy(entry.handle);
    }
  }
}

}  // namespace flagos::detail
