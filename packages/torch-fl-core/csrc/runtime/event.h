// Events: a HAL event, or the companion's, made at its first record, of the device of the stream it is
// recorded on.
#pragma once

#include <c10/core/Stream.h>

#include "csrc/runtime/devices.h"

namespace flagos {

// Move-only owner of one event. Destruction never throws and is a no-op after shutdown, which destroys
// the HAL events itself.
class FLAGOS_API Event {
 public:
  explicit Event(bool timing = false, bool blocking = false, bool interprocess = false) noexcept;
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(c10::Stream stream);  // throws if the event was made for another device
  // What is queued on `stream` from here on waits. A no-op if never recorded. Streams of any device; of
  // another backend too, but then this call waits on the host: no library can wait for another one's event.
  void block(c10::Stream stream) const;
  bool query() const;  // true if never recorded
  void synchronize() const;
  double elapsedMs(const Event& end) const;
  bool recorded() const noexcept { return handle_ != nullptr || companion_event_ != nullptr; }
  c10::DeviceIndex device() const noexcept { return device_; }
  flagos_hal_event* handle() const noexcept { return handle_; }

 private:
  void recordOnCompanion(const DeviceEntry& entry, c10::Stream stream);
  void checkDevice(const DeviceEntry& entry) const;

  flagos_hal_event* handle_ = nullptr;
  void* companion_event_ = nullptr;  // on a device with a companion, in place of handle_
  c10::DeviceIndex device_ = -1;
  uint32_t flags_ = 0;
};

// At shutdown: gives back the HAL events of all Event objects that are still there.
void destroyAllEvents() noexcept;

}  // namespace flagos
