#include "events.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <mutex>
#include <unordered_map>

#include "records.h"
#include "streams.h"

namespace standin {
namespace {

using Clock = std::chrono::steady_clock;

struct Event {
  int64_t serial;
  c10::DeviceIndex device;
  bool timing;
  Clock::time_point recorded;
};

struct Events {
  std::mutex mutex;  // guards the rest
  std::unordered_map<void*, Event> live;
  uintptr_t next = 1;
};

Events& events() {
  static auto* const instance = new Events;
  return *instance;
}

// The handles are numbers, no addresses, and never used twice: a stale or foreign one is always noticed.
void* newHandle(Events& all) { return reinterpret_cast<void*>((all.next++ << 4) | 0x5); }

Event copyOf(void* event, const char* what) {
  Events& all = events();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.live.find(event);
  TORCH_CHECK(found != all.live.end(), "standin: ", what, " was given ", event,
              ", which is no live event of the stand-in.");
  return found->second;
}

std::string named(const char* what, const Event& event) {
  return std::string(what) + " " + std::to_string(event.serial);
}

}  // namespace

void recordEvent(void** event, const c10::Stream& stream, c10::DeviceIndex device, c10::EventFlag flag) {
  count("record");
  TORCH_CHECK(event != nullptr, "standin: an event was recorded without a place for its handle.");
  checkStream(stream, "recording an event");
  TORCH_CHECK(device == -1 || device == stream.device_index(), "Event device index ",
              static_cast<int>(device), " does not match recording stream's device index ",
              static_cast<int>(stream.device_index()), ".");
  TORCH_CHECK(flag == c10::EventFlag::PYTORCH_DEFAULT || flag == c10::EventFlag::BACKEND_DEFAULT,
              "standin: an event was recorded with the flag ", static_cast<int>(flag),
              ", which is not known.");
  if (*event != nullptr) {
    const Event known = copyOf(*event, "recording an event");
    TORCH_CHECK(known.device == stream.device_index(),
                "standin: an event of hpu:", static_cast<int>(known.device),
                " was recorded on a stream of hpu:", static_cast<int>(stream.device_index()), ".");
  }
  Events& all = events();
  std::string text;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (*event == nullptr) {
      *event = newHandle(all);
      const auto serial = static_cast<int64_t>(all.next - 1);
      all.live[*event] = {serial, stream.device_index(), flag == c10::EventFlag::BACKEND_DEFAULT, {}};
    }
    Event& own = all.live.at(*event);
    own.recorded = Clock::now();
    text = named("record event", own);
  }
  submit(stream, std::move(text));
}

void blockOnEvent(void* event, const c10::Stream& stream) {
  count("block");
  checkStream(stream, "waiting for an event");
  if (event != nullptr) submit(stream, named("wait for event", copyOf(event, "waiting for an event")));
}

bool queryEvent(void* event) {
  count("queryEvent");
  if (event != nullptr) copyOf(event, "querying an event");
  return true;
}

void synchronizeEvent(void* event) {
  count("synchronizeEvent");
  if (event != nullptr) copyOf(event, "synchronizing an event");
}

void destroyEvent(void* event, c10::DeviceIndex device) noexcept {
  count("destroyEvent");
  if (event == nullptr) return;
  Events& all = events();
  std::string complaint;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.live.find(event);
    if (found == all.live.end()) {
      complaint = "an event was destroyed that is not alive";
    } else {
      if (device != found->second.device) complaint = "an event was destroyed with another device's index";
      all.live.erase(found);
    }
  }
  if (!complaint.empty()) fault(complaint);
}

double elapsedTime(void* start, void* end, c10::DeviceIndex device) {
  count("elapsedTime");
  TORCH_CHECK(start != nullptr && end != nullptr,
              "Both events must be recorded before calculating elapsed time.");
  const Event first = copyOf(start, "the time between two events");
  const Event last = copyOf(end, "the time between two events");
  TORCH_CHECK(first.device == last.device,
              "standin: the time between events of hpu:", static_cast<int>(first.device),
              " and hpu:", static_cast<int>(last.device), " was asked for.");
  TORCH_CHECK(device == first.device,
              "standin: the time between events of hpu:", static_cast<int>(first.device),
              " was asked for with the device index ", static_cast<int>(device), ".");
  TORCH_CHECK(first.timing && last.timing,
              "standin: the time between events was asked for that were made without timing "
              "(EventFlag::PYTORCH_DEFAULT).");
  return std::chrono::duration<double, std::milli>(last.recorded - first.recorded).count();
}

size_t liveEvents() {
  Events& all = events();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.live.size();
}

}  // namespace standin
