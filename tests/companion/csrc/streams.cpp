#include "streams.h"

#include <c10/util/Exception.h>

#include <array>
#include <map>
#include <mutex>

#include "records.h"

namespace standin {
namespace {

constexpr int kKindBits = 3;
enum Kind : c10::StreamId { Normal = 1, HighPriority = 2, Fresh = 3 };
constexpr int64_t kPoolSize = 32;

struct StreamRecord {
  int priority = 0;
  int64_t submitted = 0;
};

struct DeviceStreams {
  std::map<c10::StreamId, StreamRecord> known{{0, StreamRecord{}}};
  std::array<int64_t, 4> handed_out{};  // by kind
};

struct Streams {
  std::mutex mutex;  // guards the rest; the addresses of records stay
  std::array<DeviceStreams, kMaxDevices> devices;
};

Streams& streams() {
  static auto* const instance = new Streams;
  return *instance;
}

thread_local std::array<c10::StreamId, kMaxDevices> current_streams{};

c10::Stream streamOf(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, deviceOf(device), id);
}

c10::Stream handOut(c10::DeviceIndex device, Kind kind, int priority) {
  Streams& all = streams();
  const std::lock_guard<std::mutex> lock(all.mutex);
  DeviceStreams& own = all.devices[static_cast<size_t>(device)];
  int64_t serial = own.handed_out[kind]++;
  if (kind != Fresh) serial %= kPoolSize;
  const c10::StreamId id = ((serial + 1) << kKindBits) | kind;
  own.known.try_emplace(id, StreamRecord{priority, 0});
  return streamOf(device, id);
}

// Under the mutex; null if never handed out.
StreamRecord* find(Streams& all, const c10::Stream& stream) {
  const c10::DeviceIndex index = stream.device_index();
  if (stream.device_type() != kType || index < 0 || index >= deviceCount()) return nullptr;
  auto& known = all.devices[static_cast<size_t>(index)].known;
  const auto found = known.find(stream.id());
  return found == known.end() ? nullptr : &found->second;
}

}  // namespace

c10::Stream defaultStream(c10::DeviceIndex device) {
  return streamOf(resolveIndex(device, "the default stream"), 0);
}

c10::Stream currentStream(c10::DeviceIndex device) {
  device = resolveIndex(device, "the current stream");
  return streamOf(device, current_streams[static_cast<size_t>(device)]);
}

c10::Stream exchangeStream(c10::Stream stream) {
  checkStream(stream, "making a stream current");
  const c10::Stream before = currentStream(stream.device_index());
  current_streams[static_cast<size_t>(stream.device_index())] = stream.id();
  return before;
}

c10::Stream pooledStream(c10::DeviceIndex device, bool high_priority) {
  device = resolveIndex(device, "a stream of the pool");
  return high_priority ? handOut(device, HighPriority, -1) : handOut(device, Normal, 0);
}

c10::Stream freshStream(c10::DeviceIndex device, int priority) {
  return handOut(resolveIndex(device, "a new stream"), Fresh, priority);
}

void checkStream(const c10::Stream& stream, const char* what) {
  TORCH_CHECK(stream.device_type() == kType, "standin: ", what, " was given ", stream,
              ", a stream of another device type.");
  checkedIndex(stream.device_index(), what);
  Streams& all = streams();
  const std::lock_guard<std::mutex> lock(all.mutex);
  TORCH_CHECK(find(all, stream) != nullptr, "standin: ", what, " was given ", stream,
              ", whose id was never handed out for this device.");
}

void* nativeHandle(const c10::Stream& stream) {
  checkStream(stream, "asking for a stream's handle");
  Streams& all = streams();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return stream.id() == 0 ? nullptr : find(all, stream);
}

void submit(const c10::Stream& stream, std::string what) {
  checkStream(stream, what.c_str());
  markInUse(stream.device_index());
  {
    Streams& all = streams();
    const std::lock_guard<std::mutex> lock(all.mutex);
    ++find(all, stream)->submitted;
  }
  recordWork(std::move(what), stream, currentDevice());
}

int64_t submitted(const c10::Stream& stream) {
  Streams& all = streams();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const StreamRecord* record = find(all, stream);
  return record == nullptr ? -1 : record->submitted;
}

}  // namespace standin
