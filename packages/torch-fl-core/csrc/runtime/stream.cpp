#include "csrc/runtime/stream.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "csrc/runtime/companion.h"
#include "csrc/runtime/stream_table.h"
#include "csrc/torch_version.h"

namespace flagos {
namespace {

// The streams of one device made for one priority, handed out in turn.
struct Pool {
  std::vector<c10::StreamId> ids;
  size_t next = 0;
};

struct DevicePools {
  std::mutex mutex;  // guards everything below; held while the HAL makes a stream
  std::map<int, Pool> by_priority;
  int made = 0;
};

// Leaked, like all state that streams and events may need after the last static destructor.
DevicePools& pools(c10::DeviceIndex device) {
  static auto* instance = new std::array<DevicePools, kMaxDevices>;
  return (*instance)[static_cast<size_t>(device)];
}

// Per thread and device; 0 is the default stream.
__thread c10::StreamId current_ids[kMaxDevices];

c10::Stream makeStream(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, device), id);
}

// A new HAL stream for the pool; null if the device cannot have more.
flagos_hal_stream* makeHandle(const DeviceEntry& entry, int priority, int made) {
  int64_t limit = 0;
  if (entry.hal->system.capability(FLAGOS_HAL_CAP_MAX_STREAMS, &limit) == FLAGOS_HAL_STATUS_OK && limit > 0 &&
      made >= limit) {
    return nullptr;
  }
  flagos_hal_stream_options options{};
  options.struct_size = sizeof(options);
  options.priority = priority;
  flagos_hal_stream* handle = nullptr;
  const flagos_hal_status status = entry.hal->stream.create(entry.local, &options, &handle);
  if (status == FLAGOS_HAL_STATUS_OUT_OF_MEMORY) return nullptr;
  FLAGOS_CHECK(entry, status, "make a stream");
  return handle;
}

// Where the device can have no more streams: the pool of the nearest priority that has any.
Pool* nearestPool(DevicePools& device, int priority) {
  Pool* best = nullptr;
  int distance = 0;
  for (auto& [other, pool] : device.by_priority) {
    const int gap = std::abs(other - priority);
    if (pool.ids.empty() || (best != nullptr && gap >= distance)) continue;
    best = &pool;
    distance = gap;
  }
  return best;
}

c10::Stream takeFromPool(const DeviceEntry& entry, int priority) {
  DevicePools& device = pools(entry.index);
  std::lock_guard<std::mutex> lock(device.mutex);
  Pool* pool = &device.by_priority[priority];
  if (pool->ids.size() < kStreamsPerPool) {
    if (flagos_hal_stream* handle = makeHandle(entry, priority, device.made)) {
      try {
        pool->ids.reserve(kStreamsPerPool);
        pool->ids.push_back(detail::addStream(entry, handle, priority, false));
      } catch (...) {  // the table is full, or no memory: the handle must not be lost
        entry.hal->stream.destroy(handle);
        throw;
      }
      ++device.made;
      return makeStream(entry.index, pool->ids.back());
    }
    pool = nearestPool(device, priority);
    TORCH_CHECK(
        pool != nullptr, "flagos: ", describeDevice(entry), " cannot make a stream besides its default one: ",
        hal::describeFailure(*entry.hal, entry.backend->request.name, FLAGOS_HAL_STATUS_OUT_OF_MEMORY));
  }
  const c10::StreamId id = pool->ids[pool->next];
  pool->next = (pool->next + 1) % pool->ids.size();
  return makeStream(entry.index, id);
}

// c10 tells no stream's priority, so that of the streams made here is kept.
struct Priorities {
  std::mutex mutex;
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, int> by_stream;  // guarded by mutex
};

Priorities& priorities() {
  static auto* instance = new Priorities;
  return *instance;
}

void rememberPriority(c10::Stream stream, int priority) {
  Priorities& known = priorities();
  const std::lock_guard<std::mutex> lock(known.mutex);
  known.by_stream[{stream.device_index(), stream.id()}] = priority;
}

int rememberedPriority(c10::Stream stream) {
  Priorities& known = priorities();
  const std::lock_guard<std::mutex> lock(known.mutex);
  const auto found = known.by_stream.find({stream.device_index(), stream.id()});
  return found == known.by_stream.end() ? 0 : found->second;
}

const DeviceEntry& entryOf(c10::Stream stream) {
  TORCH_CHECK(stream.device_type() == kDeviceType, "flagos: a stream of ", stream.device(),
              " was given where one of a flagos ", "device is needed.");
  return deviceEntry(stream.device_index());
}

}  // namespace

c10::Stream defaultStream(c10::DeviceIndex device) {
  const DeviceEntry& entry = deviceEntry(resolveIndex(device));
  if (entry.companion != nullptr)
    return fromCompanion(entry, entry.companion->guard->getDefaultStream(companionDevice(entry)));
  return makeStream(entry.index, 0);
}

c10::Stream currentStream(c10::DeviceIndex device) {
  const DeviceEntry& entry = deviceEntry(resolveIndex(device));
  if (entry.companion != nullptr)
    return fromCompanion(entry, entry.companion->guard->getStream(companionDevice(entry)));
  return makeStream(entry.index, current_ids[entry.index]);
}

void setCurrentStream(c10::Stream stream) { exchangeCurrentStream(stream); }

c10::Stream exchangeCurrentStream(c10::Stream stream) {
  TORCH_CHECK(stream.device_type() == kDeviceType, "flagos: a stream of ", stream.device(),
              " was to become the current one of a flagos ", "device.");
  const c10::DeviceIndex index = stream.device_index();
  const int size = detail::device_table_size.load(std::memory_order_acquire);
  if (C10_LIKELY(index >= 0 && index < size)) {
    const DeviceEntry& entry = detail::device_table[index];
    if (entry.companion != nullptr)
      return fromCompanion(entry, entry.companion->guard->exchangeStream(toCompanion(entry, stream)));
    detail::checkStreamId(entry, stream.id());
  } else if (index < 0 || index >= kMaxDevices ||
             !(isShutDown() || inBadFork())) {  // the table empties after these are true
    detail::checkStreamId(deviceEntry(index), stream.id());
  }
  return makeStream(index, std::exchange(current_ids[index], stream.id()));
}

std::pair<int, int> streamPriorityRange(c10::DeviceIndex device) {
  const DeviceEntry& entry = deviceEntry(resolveIndex(device));
  int32_t least = 0;
  int32_t greatest = 0;
  FLAGOS_CHECK(entry, entry.hal->stream.priority_range(entry.local, &least, &greatest),
               "ask for the stream priorities");
  return {least, greatest};
}

c10::Stream streamFromPool(c10::DeviceIndex device, bool high_priority) {
  const DeviceEntry& entry = deviceEntry(resolveIndex(device));
  if (entry.companion != nullptr) {
    return fromCompanion(
        entry, entry.companion->guard->getStreamFromGlobalPool(companionDevice(entry), high_priority));
  }
  return takeFromPool(entry, high_priority ? streamPriorityRange(entry.index).second : 0);
}

c10::Stream newStream(c10::DeviceIndex device, int priority) {
  const DeviceEntry& entry = deviceEntry(resolveIndex(device));
  const auto [least, greatest] = streamPriorityRange(entry.index);
  if (entry.companion != nullptr) {
    const int clamped = std::clamp(priority, std::min(greatest, least), least);
    const c10::Stream stream =
        fromCompanion(entry, entry.companion->guard->getNewStream(companionDevice(entry), clamped));
    rememberPriority(stream, clamped);
    return stream;
  }
  return takeFromPool(entry, std::clamp(priority, std::min(greatest, least), least));
}

c10::Stream externalStream(flagos_hal_stream* stream, c10::DeviceIndex device) {
  const DeviceEntry& entry = deviceEntry(resolveIndex(device));
  TORCH_CHECK(entry.companion == nullptr, "flagos: streams of ", describeDevice(entry),
              " are those of torch's device type '", entry.companion->name,
              "'. Make the external stream there (torch.", entry.companion->name,
              ".ExternalStream) and hand it over with torch_fl.from_companion.");
  TORCH_CHECK(stream != nullptr, "flagos: an external stream was given as a null handle.");
  int32_t local = -1;
  FLAGOS_CHECK(entry, entry.hal->stream.device(stream, &local), "take over an external stream");
  TORCH_CHECK(local == entry.local, "flagos: an external stream of local device ", local, " of backend '",
              entry.backend->request.name, "' was given as one of ", describeDevice(entry), ".");
  return makeStream(entry.index, detail::addStream(entry, stream, 0, true));
}

flagos_hal_stream* streamHandle(c10::Stream stream) {
  const DeviceEntry& entry = entryOf(stream);
  TORCH_CHECK(entry.companion == nullptr, "flagos: streams of ", describeDevice(entry),
              " are those of torch's device type '", entry.companion->name,
              "' and have no handle of the HAL. Ask for native_handle.");
  return detail::findStream(entry, stream.id()).handle;
}

void* nativeHandle(c10::Stream stream) {
  const DeviceEntry& entry = entryOf(stream);
  if (entry.companion != nullptr) {
#if FLAGOS_TORCH_AT_LEAST(2, 11)
    return entry.companion->guard->getStreamNativeHandle(toCompanion(entry, stream));
#else
    TORCH_CHECK_NOT_IMPLEMENTED(false,
                                "flagos: this torch (2.10) does not tell the native handle of a stream; ",
                                "ask torch.", entry.companion->name, " for it.");
#endif
  }
  void* handle = nullptr;
  FLAGOS_CHECK(entry, entry.hal->stream.native_handle(detail::findStream(entry, stream.id()).handle, &handle),
               "get a stream's native handle");
  return handle;
}

int streamPriority(c10::Stream stream) {
  const DeviceEntry& entry = entryOf(stream);
  if (entry.companion != nullptr) return rememberedPriority(stream);
  return detail::findStream(entry, stream.id()).priority;
}

bool queryStream(c10::Stream stream) {
  const DeviceEntry& entry = entryOf(stream);
  if (entry.companion != nullptr) return entry.companion->guard->queryStream(toCompanion(entry, stream));
  const flagos_hal_status status = entry.hal->stream.query(detail::findStream(entry, stream.id()).handle);
  if (status == FLAGOS_HAL_STATUS_NOT_READY) return false;
  FLAGOS_CHECK(entry, status, "query a stream");
  return true;
}

void synchronizeStream(c10::Stream stream) {
  const DeviceEntry& entry = entryOf(stream);
  if (entry.companion != nullptr)
    return entry.companion->guard->synchronizeStream(toCompanion(entry, stream));
  FLAGOS_CHECK(entry, entry.hal->stream.synchronize(detail::findStream(entry, stream.id()).handle),
               "wait for a stream");
}

void synchronizeDevice(c10::DeviceIndex device) {
  const DeviceEntry& entry = deviceEntry(resolveIndex(device));
  if (entry.companion != nullptr) {
    entry.companion->guard->synchronizeDevice(companionDevice(entry).index());
    return;
  }
  FLAGOS_CHECK(entry, entry.hal->device.synchronize(entry.local), "wait for the device");
}

bool isStreamCapturing(c10::Stream stream) {
  const DeviceEntry& entry = entryOf(stream);
  if (entry.companion != nullptr) {
#if FLAGOS_TORCH_AT_LEAST(2, 12)
    return entry.companion->guard->isStreamCapturing(toCompanion(entry, stream));
#else
    return false;  // this torch has no way to ask a device type that is not linked
#endif
  }
  if (!entry.hal->has_graph) return false;
  int32_t yes = 0;
  FLAGOS_CHECK(entry, entry.hal->graph.is_capturing(detail::findStream(entry, stream.id()).handle, &yes),
               "ask whether a stream is being captured");
  return yes != 0;
}

void drainCurrentStream(const DeviceEntry& device) {
  if (device.companion != nullptr) {
    const auto* guard = device.companion->guard;
    const c10::Stream stream = guard->getStream(companionDevice(device));
    if (!guard->queryStream(stream)) guard->synchronizeStream(stream);
    return;
  }
  if (!device.backend->async_streams) return;  // everything that was queued is done
  flagos_hal_stream* handle = detail::findStream(device, current_ids[device.index]).handle;
  flagos_hal_status status = device.hal->stream.query(handle);
  if (status == FLAGOS_HAL_STATUS_NOT_READY) status = device.hal->stream.synchronize(handle);
  FLAGOS_CHECK(device, status, "wait for the work queued before");
}

}  // namespace flagos
