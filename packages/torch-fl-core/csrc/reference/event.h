// Events: a mark in a stream's count of work, and for timed ones the time at which it was reached.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "csrc/reference/capture.h"
#include "csrc/reference/handle_table.h"
#include "csrc/reference/shared.h"
#include "csrc/reference/stream.h"

namespace flagos::reference {

// What was recorded last. A stream never goes away and its count only grows, so a mark needs no owner.
struct Mark {
  Stream* stream = nullptr;  // null: never recorded
  uint64_t sequence = 0;
  std::shared_ptr<Stamp> stamp;                  // of timed events
  std::shared_ptr<const CapturePoint> captured;  // recorded in a capture; then the rest is empty
};

struct Event {
  int32_t device = -1;
  uint32_t flags = 0;
  std::shared_ptr<SharedEventPart> shared;  // of INTERPROCESS events, which then do without the mark
  std::mutex mutex;                         // guards mark
  Mark mark;
};

using EventTable = HandleTable<flagos_hal_event, Event, 'E', 1u << 22>;
EventTable& events() noexcept;

flagos_hal_status unknownEvent(const flagos_hal_event* handle);

// Makes an event and its handle.
flagos_hal_status openEvent(int32_t device, uint32_t flags, std::shared_ptr<SharedEventPart> shared,
                            flagos_hal_event** out_event);

// Forgets what the event recorded; its handle was retired.
void closeEvent(Event& event) noexcept;

// What stream.wait_event does.
flagos_hal_status waitForEvent(Stream& stream, Event& event);

// Runs `body(event)` as HAL function `function` on a live event of a device that is not lost.
template <typename Body>
flagos_hal_status invokeOnEvent(Function function, flagos_hal_event* handle, Body&& body) noexcept {
  return hal_support::call(functionName(function), [&]() -> flagos_hal_status {
    Event* event = events().find(handle);
    FLAGOS_HAL_TRY(inject(function, event ? event->device : -1));
    if (!event) return unknownEvent(handle);
    if (deviceAt(event->device).lost.load(std::memory_order_acquire)) return failLost(event->device);
    return body(*event);
  });
}

}  // namespace flagos::reference
