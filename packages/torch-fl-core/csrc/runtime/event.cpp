#include "csrc/runtime/event.h"

#include <array>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "csrc/runtime/companion.h"
#include "csrc/runtime/stream.h"
#include "csrc/runtime/stream_table.h"

namespace flagos {
namespace {

// The HAL events alive on one device. A vendor's shutdown may complain of handles left, or crash on them, and
// Python keeps events as long as it likes.
struct LiveEvents {
  std::mutex mutex;  // guards handles
  std::unordered_set<flagos_hal_event*> handles;
};

LiveEvents& liveEvents(c10::DeviceIndex device) {
  static auto* instance = new std::array<LiveEvents, kMaxDevices>;
  return (*instance)[static_cast<size_t>(device)];
}

const DeviceEntry& entryOf(c10::Stream stream) {
  TORCH_CHECK(stream.device_type() == kDeviceType, "flagos: an event was used with a stream of ",
              stream.device(), ".");
  return deviceEntry(stream.device_index());
}

void recordOn(const DeviceEntry& entry, detail::StreamEntry& stream, flagos_hal_event* event) {
  std::lock_guard<std::mutex> lock(stream.order);
  FLAGOS_CHECK(entry, entry.hal->event.record(event, stream.handle), "record an event");
}

}  // namespace

Event::Event(bool timing, bool blocking, bool interprocess) noexcept {
  if (timing) flags_ |= FLAGOS_HAL_EVENT_TIMING;
  if (blocking) flags_ |= FLAGOS_HAL_EVENT_BLOCKING;
  if (interprocess) flags_ |= FLAGOS_HAL_EVENT_INTERPROCESS;
}

Event::~Event() {
  // Not through deviceEntry, which throws after shutdown and in a fork; there the library does nothing, so it
  // is not asked.
  if (!recorded() || isShutDown() || inBadFork()) return;
  if (companion_event_ != nullptr) {
    const DeviceEntry& entry = detail::device_table[device_];
    entry.companion->guard->destroyEvent(companion_event_, companionDevice(entry).index());
    return;
  }
  LiveEvents& live = liveEvents(device_);
  {
    std::lock_guard<std::mutex> lock(live.mutex);
    if (live.handles.erase(handle_) == 0) return;  // the shutdown was faster
  }
  detail::device_table[device_].hal->event.destroy(handle_);
}

Event::Event(Event&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      companion_event_(std::exchange(other.companion_event_, nullptr)),
      device_(std::exchange(other.device_, -1)),
      flags_(other.flags_) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(companion_event_, other.companion_event_);
  std::swap(device_, other.device_);
  std::swap(flags_, other.flags_);
  return *this;
}

void Event::checkDevice(const DeviceEntry& entry) const {
  TORCH_CHECK(!recorded() || device_ == entry.index, "flagos: an event of flagos:", static_cast<int>(device_),
              " was recorded on a stream of flagos:", static_cast<int>(entry.index),
              ". An event belongs to the device that it was recorded on first; make another one.");
}

// The companion's guard makes the event at the first record. It knows of the flags only whether to keep the
// time.
void Event::recordOnCompanion(const DeviceEntry& entry, c10::Stream stream) {
  TORCH_CHECK((flags_ & FLAGOS_HAL_EVENT_INTERPROCESS) == 0, "flagos: events of ", describeDevice(entry),
              " are those of torch's device type '", entry.companion->name,
              "', which core cannot make for sharing between processes; make it with torch.",
              entry.companion->name, ".Event.");
  const c10::EventFlag flag = (flags_ & FLAGOS_HAL_EVENT_TIMING) != 0 ? c10::EventFlag::BACKEND_DEFAULT
                                                                      : c10::EventFlag::PYTORCH_DEFAULT;
  entry.companion->guard->record(&companion_event_, toCompanion(entry, stream),
                                 companionDevice(entry).index(), flag);
  device_ = entry.index;
}

void Event::record(c10::Stream stream) {
  const DeviceEntry& entry = entryOf(stream);
  checkDevice(entry);
  if (entry.companion != nullptr) {
    recordOnCompanion(entry, stream);
    return;
  }
  detail::StreamEntry& target = detail::findStream(entry, stream.id());
  if (handle_ != nullptr) {
    recordOn(entry, target, handle_);
    return;
  }
  flagos_hal_event* fresh = nullptr;
  FLAGOS_CHECK(entry, entry.hal->event.create(entry.local, flags_, &fresh), "make an event");
  try {
    recordOn(entry, target, fresh);
    LiveEvents& live = liveEvents(entry.index);
    std::lock_guard<std::mutex> lock(live.mutex);
    live.handles.insert(fresh);
  } catch (...) {
    entry.hal->event.destroy(fresh);
    throw;
  }
  handle_ = fresh;
  device_ = entry.index;
}

void Event::block(c10::Stream stream) const {
  const DeviceEntry& entry = entryOf(stream);
  if (!recorded()) return;
  const DeviceEntry& own = deviceEntry(device_);
  if (entry.companion != nullptr && own.companion == entry.companion) {
    entry.companion->guard->block(companion_event_, toCompanion(entry, stream));
    return;
  }
  if (own.hal != entry.hal || own.companion != nullptr) {
    // No library can wait for another one's event, so the host stands in between: what is queued on `stream`
    // from here on is queued after the event was reached. A host callback would keep the call asynchronous,
    // but it is optional in the HAL, may not call the HAL, and would hold one of the library's threads for as
    // long as the other device works.
    synchronize();
    return;
  }
  detail::StreamEntry& target = detail::findStream(entry, stream.id());
  std::lock_guard<std::mutex> lock(target.order);
  FLAGOS_CHECK(entry, entry.hal->stream.wait_event(target.handle, handle_),
               "make a stream wait for an event");
}

bool Event::query() const {
  if (!recorded()) return true;
  const DeviceEntry& entry = deviceEntry(device_);
  if (companion_event_ != nullptr) return entry.companion->guard->queryEvent(companion_event_);
  const flagos_hal_status status = entry.hal->event.query(handle_);
  if (status == FLAGOS_HAL_STATUS_NOT_READY) return false;
  FLAGOS_CHECK(entry, status, "query an event");
  return true;
}

void Event::synchronize() const {
  if (!recorded()) return;
  const DeviceEntry& entry = deviceEntry(device_);
  if (companion_event_ != nullptr) {
    entry.companion->guard->synchronizeEvent(companion_event_);
    return;
  }
  FLAGOS_CHECK(entry, entry.hal->event.synchronize(handle_), "wait for an event");
}

double Event::elapsedMs(const Event& end) const {
  TORCH_CHECK(recorded() && end.recorded(),
              "flagos: the time between two events was asked for before both were recorded.");
  TORCH_CHECK((flags_ & end.flags_ & FLAGOS_HAL_EVENT_TIMING) != 0,
              "flagos: the time between two events was asked for; make both with enable_timing=True.");
  TORCH_CHECK(device_ == end.device_,
              "flagos: the time between events of two devices, flagos:", static_cast<int>(device_),
              " and flagos:", static_cast<int>(end.device_), ", is not defined: their clocks differ.");
  const DeviceEntry& entry = deviceEntry(device_);
  if (companion_event_ != nullptr) {
    TORCH_CHECK(query() && end.query(),
                "flagos: the time between two events was asked for before both were reached. Call "
                "synchronize() on the later one first.");
    return entry.companion->guard->elapsedTime(companion_event_, end.companion_event_,
                                               companionDevice(entry).index());
  }
  double milliseconds = 0.0;
  const flagos_hal_status status = entry.hal->event.elapsed(handle_, end.handle_, &milliseconds);
  TORCH_CHECK(status != FLAGOS_HAL_STATUS_NOT_READY,
              "flagos: the time between two events was asked for before both were reached. Call "
              "synchronize() on the later one first.");
  FLAGOS_CHECK(entry, status, "measure the time between two events");
  return milliseconds;
}

void destroyAllEvents() noexcept {
  for (c10::DeviceIndex device = 0; device < kMaxDevices; ++device) {
    std::unordered_set<flagos_hal_event*> handles;
    {
      std::lock_guard<std::mutex> lock(liveEvents(device).mutex);
      handles.swap(liveEvents(device).handles);
    }
    for (flagos_hal_event* handle : handles) detail::device_table[device].hal->event.destroy(handle);
  }
}

}  // namespace flagos
