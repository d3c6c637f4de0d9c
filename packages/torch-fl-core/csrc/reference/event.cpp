#include "csrc/reference/event.h"

#include <unistd.h>

#include <utility>

#include "csrc/reference/capture.h"
#include "csrc/reference/queue.h"
#include "csrc/reference/tables.h"

namespace flagos::reference {

namespace {

EventTable event_table;  // constant-initialised

constexpr uint32_t kKnownFlags =
    FLAGOS_HAL_EVENT_TIMING | FLAGOS_HAL_EVENT_BLOCKING | FLAGOS_HAL_EVENT_INTERPROCESS;

Mark markOf(Event& event) {
  std::lock_guard<std::mutex> lock(event.mutex);
  return event.mark;
}

struct Position {
  Stream* stream = nullptr;
  uint64_t sequence = 0;
  SharedEvent* shared = nullptr;  // of an interprocess event; then `number` is the record
  uint32_t number = 0;
  bool done() const noexcept {
    if (shared) return sharedReached(*shared, number);
    return !stream || reached(*stream, sequence);
  }
};

// Where the event was recorded last. Its mutex is held.
Position look(const Event& event) noexcept {
  Position position{event.mark.stream, event.mark.sequence, nullptr, 0};
  if (event.shared) {
    position.shared = &event.shared->event();
    position.number = position.shared->recorded.load(std::memory_order_acquire);
  }
  return position;
}

// Where in its stream the event was recorded last (without the stamp, whose count of owners costs); CAPTURE
// if in a capture.
flagos_hal_status positionOf(Event& event, const char* function, Position* position) {
  std::shared_ptr<const CapturePoint> captured;
  {
    std::lock_guard<std::mutex> lock(event.mutex);
    *position = look(event);
    if (__builtin_expect(!event.mark.captured, 1)) return kOk;
    captured = event.mark.captured;
  }
  return refuseCapturedEvent(*captured, function);
}

}  // namespace

EventTable& events() noexcept { return event_table; }

flagos_hal_status unknownEvent(const flagos_hal_event* handle) {
  if (!handle) return fail(FLAGOS_HAL_STATUS_INVALID_HANDLE, "the event is null");
  return fail(FLAGOS_HAL_STATUS_INVALID_HANDLE, "%p is not a live event of this library",
              static_cast<const void*>(handle));
}

flagos_hal_status openEvent(int32_t device, uint32_t flags, std::shared_ptr<SharedEventPart> shared,
                            flagos_hal_event** out_event) {
  flagos_hal_event* handle = nullptr;
  Event* event = events().reserve(&handle);
  FLAGOS_HAL_REQUIRE(event, OUT_OF_MEMORY, "all events of the library are in use");
  event->device = device;
  event->flags = flags;
  event->shared = std::move(shared);
  events().publish(handle);
  *out_event = handle;
  return kOk;
}

void closeEvent(Event& event) noexcept {
  Mark forgotten;
  event.shared.reset();
  std::lock_guard<std::mutex> lock(event.mutex);
  std::swap(event.mark, forgotten);
}

flagos_hal_status waitForEvent(Stream& stream, Event& event) {
  FLAGOS_HAL_TRY(checkDevice(event.device));
  Position position;
  std::shared_ptr<const CapturePoint> captured;
  {
    std::lock_guard<std::mutex> lock(event.mutex);
    position = look(event);
    if (event.mark.captured) captured = event.mark.captured;
  }
  if (captured) return captureWait(stream, captured.get());
  if (!position.stream && !position.shared) return kOk;
  if (capturing(stream)) return captureWait(stream, nullptr);
  // Work of one stream is in order anyway, and what was reached holds nothing up.
  const bool idle = (position.stream == &stream && !position.shared) || position.done();
  if (idle && workLatency(WorkKind::Other, Function::stream_wait_event) == 0) return kOk;
  decltype(Task::work) work = WaitWork{position.stream, position.sequence};
  if (position.shared) work = SharedWaitWork{event.shared, position.number};
  Task task = makeTask(std::move(work), WorkKind::Other, Function::stream_wait_event);
  return enqueue(stream, &task, 1);
}

// ------------------------------------------------------------------------------------ group event ----

namespace {

flagos_hal_status create(int32_t device, uint32_t flags, flagos_hal_event** out_event) {
  return invoke(Function::event_create, device, [&] {
    FLAGOS_HAL_REQUIRE(out_event, INVALID_ARGUMENT, "out_event is null");
    FLAGOS_HAL_TRY(checkDevice(device));
    FLAGOS_HAL_REQUIRE((flags & ~kKnownFlags) == 0, INVALID_ARGUMENT,
                       "event flags 0x%x have an undefined bit", flags);
    const bool interprocess = flags & FLAGOS_HAL_EVENT_INTERPROCESS;
    FLAGOS_HAL_REQUIRE(!interprocess || !(flags & FLAGOS_HAL_EVENT_TIMING), INVALID_ARGUMENT,
                       "an event cannot be both INTERPROCESS and TIMING");
    FLAGOS_HAL_REQUIRE(!interprocess || ipcWanted(), UNSUPPORTED,
                       "interprocess events need FLAGOS_REFERENCE_IPC=1 before the library is loaded");
    std::shared_ptr<SharedEventPart> shared;
    if (interprocess) {
      Block block;
      FLAGOS_HAL_TRY(mapSharedBlock(sizeof(SharedEvent), false, &block));
      shared = std::make_shared<SharedEventPart>(block);
    }
    return openEvent(device, flags, std::move(shared), out_event);
  });
}

flagos_hal_status destroy(flagos_hal_event* handle) {
  return hal_support::releaseCall(functionName(Function::event_destroy), [&]() -> flagos_hal_status {
    Event* event = events().find(handle);
    FLAGOS_HAL_TRY(inject(Function::event_destroy, event ? event->device : -1));
    if (!events().retire(handle)) return unknownEvent(handle);
    closeEvent(*event);
    events().recycle(handle);
    return kOk;
  });
}

flagos_hal_status recordShared(Event& event, Stream& stream) {
  SharedEvent& shared = event.shared->event();
  const uint32_t number = shared.next.fetch_add(1, std::memory_order_relaxed) + 1;
  Task task = makeTask(SharedReachWork{event.shared, number}, WorkKind::Event, Function::event_record);
  FLAGOS_HAL_TRY(enqueue(stream, &task, 1));  // on failure nobody has seen the number
  shared.recorder.store(getpid(), std::memory_order_release);
  shared.recorded.store(number, std::memory_order_release);
  Mark none;
  std::lock_guard<std::mutex> lock(event.mutex);
  std::swap(event.mark, none);  // what a capture may have left
  return kOk;
}

flagos_hal_status record(flagos_hal_event* handle, flagos_hal_stream* stream_handle) {
  return invokeOnEvent(Function::event_record, handle, [&](Event& event) {
    Stream* stream = streams().find(stream_handle);
    if (!stream) return unknownStream(stream_handle);
    FLAGOS_HAL_REQUIRE(stream->device == event.device, INVALID_ARGUMENT,
                       "the event belongs to device %d, the stream to device %d", event.device,
                       stream->device);
    Mark mark;
    if (capturing(*stream)) {
      FLAGOS_HAL_TRY(capturePoint(*stream, &mark.captured));
      std::lock_guard<std::mutex> lock(event.mutex);
      std::swap(event.mark, mark);
      return kOk;
    }
    if (event.shared) return recordShared(event, *stream);
    const bool timing = event.flags & FLAGOS_HAL_EVENT_TIMING;
    const int64_t latency_us = workLatency(WorkKind::Event, Function::event_record);
    mark.stream = stream;
    mark.sequence = stream->queued.load(std::memory_order_acquire);
    if (timing) mark.stamp = std::make_shared<Stamp>();
    if (latency_us == 0 && (!timing || reached(*stream, mark.sequence))) {
      // Nothing to queue: the mark is the count of work so far; on an idle stream the time is now.
      if (timing) mark.stamp->nanoseconds.store(steadyNanoseconds(), std::memory_order_release);
    } else {
      Task task = makeTask(StampWork{mark.stamp}, WorkKind::Event, Function::event_record);
      FLAGOS_HAL_TRY(enqueue(*stream, &task, 1));
      mark.sequence = stream->queued.load(std::memory_order_acquire);
    }
    std::lock_guard<std::mutex> lock(event.mutex);
    std::swap(event.mark, mark);
    return kOk;
  });
}

flagos_hal_status query(flagos_hal_event* handle) {
  return invokeOnEvent(Function::event_query, handle, [&](Event& event) {
    Position position;
    FLAGOS_HAL_TRY(positionOf(event, "event.query", &position));
    return position.done() ? kOk : kNotReady;
  });
}

flagos_hal_status synchronize(flagos_hal_event* handle) {
  return invokeOnEvent(Function::event_synchronize, handle, [&](Event& event) {
    Position position;
    FLAGOS_HAL_TRY(positionOf(event, "event.synchronize", &position));
    if (!position.done()) {
      FLAGOS_HAL_TRY(refuseOnWorker());
      if (position.shared) {
        waitForShared(*position.shared, position.number);
      } else {
        waitFor(*position.stream, position.sequence);
      }
    }
    return checkDevice(event.device);
  });
}

flagos_hal_status elapsed(flagos_hal_event* start_handle, flagos_hal_event* end_handle, double* out_ms) {
  return invokeOnEvent(Function::event_elapsed, start_handle, [&](Event& start) {
    FLAGOS_HAL_REQUIRE(out_ms, INVALID_ARGUMENT, "out_ms is null");
    Event* end = events().find(end_handle);
    if (!end) return unknownEvent(end_handle);
    FLAGOS_HAL_REQUIRE(start.device == end->device, INVALID_ARGUMENT,
                       "the events belong to devices %d and %d", start.device, end->device);
    FLAGOS_HAL_REQUIRE(start.flags & end->flags & FLAGOS_HAL_EVENT_TIMING, INVALID_STATE,
                       "elapsed needs two events that were made with TIMING");
    const Mark from = markOf(start);
    const Mark to = markOf(*end);
    for (const Mark* mark : {&from, &to}) {
      if (mark->captured) return refuseCapturedEvent(*mark->captured, "event.elapsed");
    }
    FLAGOS_HAL_REQUIRE(from.stream && to.stream, INVALID_STATE, "an event was never recorded");
    if (!reached(*from.stream, from.sequence) || !reached(*to.stream, to.sequence)) return kNotReady;
    const int64_t nanoseconds = to.stamp->nanoseconds.load(std::memory_order_acquire) -
                                from.stamp->nanoseconds.load(std::memory_order_acquire);
    *out_ms = static_cast<double>(nanoseconds) / 1e6;
    return kOk;
  });
}

}  // namespace

const flagos_hal_event_api kEventApi = {sizeof(kEventApi), create, destroy, record, query,
                                        synchronize,       elapsed};

}  // namespace flagos::reference
