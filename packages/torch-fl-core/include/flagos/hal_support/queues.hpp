// The groups stream and event of hal.hpp. A vendor with queues of its own has the types Stream and Event
// (copyable: usually the SDK's handles) and
//
//   static flagos_hal_status createStream(int32_t device, int32_t priority, Stream* out);
//   static flagos_hal_status destroyStream(Stream);       // its work has finished
//   static flagos_hal_status defaultStream(int32_t device, Stream* out);
//   static flagos_hal_status queryStream(Stream);         // OK or NOT_READY, nothing sticky left behind
//   static flagos_hal_status synchronizeStream(Stream);
//   static flagos_hal_status waitEvent(Stream, Event);    // of an event that was recorded
//   static void* nativeHandle(Stream);
//   static flagos_hal_status copyAsync(Stream, void* destination, const void* source, uint64_t size,
//                                      int32_t kind);
//   static flagos_hal_status fillAsync(Stream, void* destination, int32_t value, uint64_t size);
//   static flagos_hal_status createEvent(int32_t device, uint32_t flags, Event* out);
//   static flagos_hal_status destroyEvent(Event);
//   static flagos_hal_status recordEvent(Event, Stream);
//   static flagos_hal_status queryEvent(Event);           // recorded; OK or NOT_READY
//   static flagos_hal_status synchronizeEvent(Event);
//   static flagos_hal_status elapsed(Event start, Event end, double* out_ms);  // both recorded, with timing
//
// and, if it can, priorityRange(int32_t device, int32_t* least, int32_t* greatest) and
// hostCallback(Stream, void (*function)(void*), void* argument). Included by hal.hpp.
#pragma once

#include <chrono>
#include <mutex>

#include "flagos/hal_support/devices.hpp"

namespace flagos {
namespace hal_support __attribute__((visibility("hidden"))) {

  FLAGOS_HAL_DETECT(HasPriorityRange, priorityRange)
  FLAGOS_HAL_DETECT(HasHostCallback, hostCallback)

  // For vendors without queues: everything has happened when its call returns, so a stream has nothing to
  // hold and an event is a time.
  template <typename V>
  struct SynchronousQueues {
    struct Stream {
      int32_t device;
      std::shared_ptr<char> identity;  // its address is the native handle
    };
    struct Event {
      std::shared_ptr<std::atomic<int64_t>> recorded_ns;
    };

    static flagos_hal_status createStream(int32_t device, int32_t, Stream* out) {
      *out = {device, std::make_shared<char>('\0')};
      return FLAGOS_HAL_STATUS_OK;
    }
    static flagos_hal_status destroyStream(const Stream&) { return FLAGOS_HAL_STATUS_OK; }
    static flagos_hal_status defaultStream(int32_t device, Stream* out) {
      return createStream(device, 0, out);
    }
    static flagos_hal_status queryStream(const Stream&) { return FLAGOS_HAL_STATUS_OK; }
    static flagos_hal_status synchronizeStream(const Stream&) { return FLAGOS_HAL_STATUS_OK; }
    static flagos_hal_status waitEvent(const Stream&, const Event&) { return FLAGOS_HAL_STATUS_OK; }
    static void* nativeHandle(const Stream& stream) { return stream.identity.get(); }
    static flagos_hal_status copyAsync(const Stream& stream, void* destination, const void* source,
                                       uint64_t size, int32_t kind) {
      return V::copy(stream.device, destination, source, size, kind);
    }
    static flagos_hal_status fillAsync(const Stream& stream, void* destination, int32_t value,
                                       uint64_t size) {
      return V::fill(stream.device, destination, value, size);
    }
    static flagos_hal_status hostCallback(const Stream&, void (*function)(void*), void* argument) {
      function(argument);
      return FLAGOS_HAL_STATUS_OK;
    }
    static flagos_hal_status createEvent(int32_t, uint32_t, Event* out) {
      out->recorded_ns = std::make_shared<std::atomic<int64_t>>(0);
      return FLAGOS_HAL_STATUS_OK;
    }
    static flagos_hal_status destroyEvent(const Event&) { return FLAGOS_HAL_STATUS_OK; }
    static flagos_hal_status recordEvent(const Event& event, const Stream&) {
      const auto now = std::chrono::steady_clock::now().time_since_epoch();
      event.recorded_ns->store(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
      return FLAGOS_HAL_STATUS_OK;
    }
    static flagos_hal_status queryEvent(const Event&) { return FLAGOS_HAL_STATUS_OK; }
    static flagos_hal_status synchronizeEvent(const Event&) { return FLAGOS_HAL_STATUS_OK; }
    static flagos_hal_status elapsed(const Event& start, const Event& end, double* out_ms) {
      *out_ms = static_cast<double>(end.recorded_ns->load() - start.recorded_ns->load()) / 1e6;
      return FLAGOS_HAL_STATUS_OK;
    }
  };

  template <typename V>
  using QueuesOf = std::conditional_t<HasQueues<V>::value, V, SynchronousQueues<V>>;

  // Whether `kind` and the pointers beside it can be meant.
  inline flagos_hal_status checkCopy(const void* destination, const void* source, uint64_t size,
                                     int32_t kind) noexcept {
    FLAGOS_HAL_REQUIRE(kind >= FLAGOS_HAL_COPY_HOST_TO_HOST && kind <= FLAGOS_HAL_COPY_DEVICE_TO_DEVICE,
                       INVALID_ARGUMENT, "%d is not a flagos_hal_copy_kind", kind);
    FLAGOS_HAL_REQUIRE((destination && source) || size == 0, INVALID_ARGUMENT,
                       "destination %p or source %p is null, with %" PRIu64 " bytes", destination, source,
                       size);
    return FLAGOS_HAL_STATUS_OK;
  }

  inline flagos_hal_status checkFill(const void* destination, int32_t value, uint64_t size) noexcept {
    FLAGOS_HAL_REQUIRE(value >= 0 && value <= 255, INVALID_ARGUMENT, "the value is %d, expected 0 to 255",
                       value);
    FLAGOS_HAL_REQUIRE(destination || size == 0, INVALID_ARGUMENT,
                       "the destination is null, with %" PRIu64 " bytes", size);
    return FLAGOS_HAL_STATUS_OK;
  }

  template <typename V>
  class Queues {
    using Q = QueuesOf<V>;

   public:
    struct Stream {
      int32_t device;
      bool is_default;
      typename Q::Stream native;
    };
    struct Event {
      int32_t device;
      uint32_t flags;
      std::atomic<bool> recorded;
      typename Q::Event native;
    };

    // The objects behind handles, for the vendor's own tables of optional groups; null for a handle that is
    // not alive.
    static Registry<flagos_hal_stream, Stream>& streams() {
      static auto& all = *new Registry<flagos_hal_stream, Stream>("stream");
      return all;
    }
    static Registry<flagos_hal_event, Event>& events() {
      static auto& all = *new Registry<flagos_hal_event, Event>("event");
      return all;
    }

    // Runs `body(Stream&)` on the stream's device.
    template <typename Body>
    static flagos_hal_status onStream(const char* function, flagos_hal_stream* handle, Body&& body) noexcept {
      return call(function, [&]() -> flagos_hal_status {
        const std::shared_ptr<Stream> stream = streams().find(handle);
        if (!stream) return streams().unknown(handle);
        return Devices<V>::onKnown(stream->device, [&] { return body(*stream); });
      });
    }
    template <typename Body>
    static flagos_hal_status onEvent(const char* function, flagos_hal_event* handle, Body&& body) noexcept {
      return call(function, [&]() -> flagos_hal_status {
        const std::shared_ptr<Event> event = events().find(handle);
        if (!event) return events().unknown(handle);
        return Devices<V>::onKnown(event->device, [&] { return body(*event); });
      });
    }

    static const flagos_hal_stream_api* streamApi() {
      static const flagos_hal_stream_api api = {sizeof(flagos_hal_stream_api),
                                                create,
                                                destroy,
                                                defaultStream,
                                                priorityRange,
                                                query,
                                                synchronize,
                                                waitEvent,
                                                nativeHandle,
                                                streamDevice,
                                                hostCallback()};
      return &api;
    }
    static const flagos_hal_event_api* eventApi() {
      static const flagos_hal_event_api api = {sizeof(flagos_hal_event_api),
                                               createEvent,
                                               destroyEvent,
                                               record,
                                               queryEvent,
                                               synchronizeEvent,
                                               elapsed};
      return &api;
    }

    static flagos_hal_status copyAsync(flagos_hal_stream* handle, void* destination, const void* source,
                                       uint64_t size, int32_t kind) noexcept {
      return onStream("memory.copy_async", handle, [&](Stream& stream) -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkCopy(destination, source, size, kind));
        return size == 0 ? FLAGOS_HAL_STATUS_OK
                         : Q::copyAsync(stream.native, destination, source, size, kind);
      });
    }
    static flagos_hal_status fillAsync(flagos_hal_stream* handle, void* destination, int32_t value,
                                       uint64_t size) noexcept {
      return onStream("memory.fill_async", handle, [&](Stream& stream) -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkFill(destination, value, size));
        return size == 0 ? FLAGOS_HAL_STATUS_OK : Q::fillAsync(stream.native, destination, value, size);
      });
    }

    // Waits for all work of `device`: stream by stream, for vendors that have no call for it.
    static flagos_hal_status synchronizeDevice(int32_t device) {
      for (const std::shared_ptr<Stream>& stream : streams().all()) {
        if (stream->device == device) FLAGOS_HAL_TRY(Q::synchronizeStream(stream->native));
      }
      return FLAGOS_HAL_STATUS_OK;
    }

    // For shutdown: waits, frees, skips what fails.
    static void close() noexcept {
      for (const std::shared_ptr<Stream>& stream : streams().takeAll()) {
        static_cast<void>(Devices<V>::onReleasing(stream->device, [&] {
          static_cast<void>(Q::synchronizeStream(stream->native));
          return stream->is_default ? FLAGOS_HAL_STATUS_OK : Q::destroyStream(stream->native);
        }));
      }
      for (const std::shared_ptr<Event>& event : events().takeAll()) {
        static_cast<void>(
            Devices<V>::onReleasing(event->device, [&] { return Q::destroyEvent(event->native); }));
      }
      for (std::atomic<flagos_hal_stream*>& handle : default_streams_) handle.store(nullptr);
    }

   private:
    static flagos_hal_status create(int32_t device, const flagos_hal_stream_options* options,
                                    flagos_hal_stream** out_stream) noexcept {
      return call("stream.create", [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(out_stream, "out_stream"));
        FLAGOS_HAL_TRY(Devices<V>::check(device));
        const flagos_hal_stream_options wanted = readSized(options);
        FLAGOS_HAL_REQUIRE(wanted.flags == 0, INVALID_ARGUMENT, "flags 0x%x: none are defined", wanted.flags);
        return Devices<V>::onKnown(device, [&]() -> flagos_hal_status {
          int32_t least = 0;
          int32_t greatest = 0;
          if constexpr (HasPriorityRange<Q>::value)
            FLAGOS_HAL_TRY(Q::priorityRange(device, &least, &greatest));
          const int32_t priority = wanted.priority > least      ? least
                                   : wanted.priority < greatest ? greatest
                                                                : wanted.priority;
          auto stream = std::make_shared<Stream>(Stream{device, false, {}});
          FLAGOS_HAL_TRY(Q::createStream(device, priority, &stream->native));
          *out_stream = streams().add(std::move(stream));
          return FLAGOS_HAL_STATUS_OK;
        });
      });
    }

    static flagos_hal_status destroy(flagos_hal_stream* handle) noexcept {
      return releaseCall("stream.destroy", [&]() -> flagos_hal_status {
        std::shared_ptr<Stream> stream = streams().find(handle);
        if (!stream) return streams().unknown(handle);
        FLAGOS_HAL_REQUIRE(!stream->is_default, INVALID_HANDLE, "%p is the default stream of device %d",
                           static_cast<void*>(handle), stream->device);
        if (!streams().take(handle)) return streams().unknown(handle);  // another thread was faster
        return Devices<V>::onReleasing(stream->device, [&]() -> flagos_hal_status {
          const flagos_hal_status work = Q::synchronizeStream(stream->native);
          const flagos_hal_status freed = Q::destroyStream(stream->native);
          if (freed == FLAGOS_HAL_STATUS_OK) return work;
          if (freed != FLAGOS_HAL_STATUS_DEVICE_LOST) streams().add(stream);  // it is still there
          return freed;
        });
      });
    }

    static flagos_hal_status defaultStream(int32_t device, flagos_hal_stream** out_stream) noexcept {
      return call("stream.default_stream", [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(out_stream, "out_stream"));
        FLAGOS_HAL_TRY(Devices<V>::check(device));
        flagos_hal_stream* known = default_streams_[device].load(std::memory_order_acquire);
        if (!known) {
          static std::mutex& making = *new std::mutex;
          std::lock_guard<std::mutex> lock(making);
          known = default_streams_[device].load(std::memory_order_acquire);
          if (!known) {
            auto stream = std::make_shared<Stream>(Stream{device, true, {}});
            FLAGOS_HAL_TRY(
                Devices<V>::onKnown(device, [&] { return Q::defaultStream(device, &stream->native); }));
            known = streams().add(std::move(stream));
            default_streams_[device].store(known, std::memory_order_release);
          }
        }
        *out_stream = known;
        return FLAGOS_HAL_STATUS_OK;
      });
    }

    static flagos_hal_status priorityRange(int32_t device, int32_t* out_least,
                                           int32_t* out_greatest) noexcept {
      return call("stream.priority_range", [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(out_least, "out_least"));
        FLAGOS_HAL_TRY(checkOutput(out_greatest, "out_greatest"));
        return Devices<V>::on(device, [&]() -> flagos_hal_status {
          int32_t least = 0;
          int32_t greatest = 0;
          if constexpr (HasPriorityRange<Q>::value)
            FLAGOS_HAL_TRY(Q::priorityRange(device, &least, &greatest));
          *out_least = least;
          *out_greatest = greatest;
          return FLAGOS_HAL_STATUS_OK;
        });
      });
    }

    static flagos_hal_status query(flagos_hal_stream* handle) noexcept {
      return onStream("stream.query", handle, [](Stream& stream) { return Q::queryStream(stream.native); });
    }
    static flagos_hal_status synchronize(flagos_hal_stream* handle) noexcept {
      return onStream("stream.synchronize", handle,
                      [](Stream& stream) { return Q::synchronizeStream(stream.native); });
    }
    static flagos_hal_status waitEvent(flagos_hal_stream* handle, flagos_hal_event* event_handle) noexcept {
      return onStream("stream.wait_event", handle, [&](Stream& stream) -> flagos_hal_status {
        const std::shared_ptr<Event> event = events().find(event_handle);
        if (!event) return events().unknown(event_handle);
        if (!event->recorded.load(std::memory_order_acquire)) return FLAGOS_HAL_STATUS_OK;
        return Q::waitEvent(stream.native, event->native);
      });
    }
    static flagos_hal_status nativeHandle(flagos_hal_stream* handle, void** out_handle) noexcept {
      return onStream("stream.native_handle", handle, [&](Stream& stream) -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(out_handle, "out_handle"));
        *out_handle = Q::nativeHandle(stream.native);
        return FLAGOS_HAL_STATUS_OK;
      });
    }
    static flagos_hal_status streamDevice(flagos_hal_stream* handle, int32_t* out_device) noexcept {
      return onStream("stream.device", handle, [&](Stream& stream) -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(out_device, "out_device"));
        *out_device = stream.device;
        return FLAGOS_HAL_STATUS_OK;
      });
    }

    using HostCallback = flagos_hal_status (*)(flagos_hal_stream*, void (*)(void*), void*);
    static HostCallback hostCallback() {
      if constexpr (HasHostCallback<Q>::value) {
        return [](flagos_hal_stream* handle, void (*function)(void*), void* argument) noexcept {
          return onStream("stream.host_callback", handle, [&](Stream& stream) -> flagos_hal_status {
            FLAGOS_HAL_REQUIRE(function, INVALID_ARGUMENT, "the function is null");
            return Q::hostCallback(stream.native, function, argument);
          });
        };
      } else {
        return nullptr;
      }
    }

    static flagos_hal_status createEvent(int32_t device, uint32_t flags,
                                         flagos_hal_event** out_event) noexcept {
      return call("event.create", [&]() -> flagos_hal_status {
        constexpr uint32_t kKnown =
            FLAGOS_HAL_EVENT_TIMING | FLAGOS_HAL_EVENT_BLOCKING | FLAGOS_HAL_EVENT_INTERPROCESS;
        FLAGOS_HAL_TRY(checkOutput(out_event, "out_event"));
        FLAGOS_HAL_REQUIRE((flags & ~kKnown) == 0, INVALID_ARGUMENT, "flags 0x%x: bits 0x%x are not defined",
                           flags, flags & ~kKnown);
        const bool interprocess = (flags & FLAGOS_HAL_EVENT_INTERPROCESS) != 0;
        FLAGOS_HAL_REQUIRE(!interprocess || !(flags & FLAGOS_HAL_EVENT_TIMING), INVALID_ARGUMENT,
                           "INTERPROCESS excludes TIMING");
        FLAGOS_HAL_TRY(Devices<V>::check(device));
        FLAGOS_HAL_REQUIRE(!interprocess || HasIpc<V>::value, UNSUPPORTED,
                           "events of several processes need the group ipc");
        return Devices<V>::onKnown(device, [&]() -> flagos_hal_status {
          auto event = std::make_shared<Event>();
          event->device = device;
          event->flags = flags;
          event->recorded.store(false);
          FLAGOS_HAL_TRY(Q::createEvent(device, flags, &event->native));
          *out_event = events().add(std::move(event));
          return FLAGOS_HAL_STATUS_OK;
        });
      });
    }

    static flagos_hal_status destroyEvent(flagos_hal_event* handle) noexcept {
      return releaseCall("event.destroy", [&]() -> flagos_hal_status {
        const std::shared_ptr<Event> event = events().take(handle);
        if (!event) return events().unknown(handle);
        const flagos_hal_status status =
            Devices<V>::onReleasing(event->device, [&] { return Q::destroyEvent(event->native); });
        if (status != FLAGOS_HAL_STATUS_OK) events().add(event);  // it is still there
        return status;
      });
    }

    static flagos_hal_status record(flagos_hal_event* handle, flagos_hal_stream* stream_handle) noexcept {
      return onEvent("event.record", handle, [&](Event& event) -> flagos_hal_status {
        const std::shared_ptr<Stream> stream = streams().find(stream_handle);
        if (!stream) return streams().unknown(stream_handle);
        FLAGOS_HAL_REQUIRE(stream->device == event.device, INVALID_ARGUMENT,
                           "the event is of device %d, the stream of device %d", event.device,
                           stream->device);
        FLAGOS_HAL_TRY(Q::recordEvent(event.native, stream->native));
        event.recorded.store(true, std::memory_order_release);
        return FLAGOS_HAL_STATUS_OK;
      });
    }
    static flagos_hal_status queryEvent(flagos_hal_event* handle) noexcept {
      return onEvent("event.query", handle, [](Event& event) -> flagos_hal_status {
        return event.recorded.load(std::memory_order_acquire) ? Q::queryEvent(event.native)
                                                              : FLAGOS_HAL_STATUS_OK;
      });
    }
    static flagos_hal_status synchronizeEvent(flagos_hal_event* handle) noexcept {
      return onEvent("event.synchronize", handle, [](Event& event) -> flagos_hal_status {
        return event.recorded.load(std::memory_order_acquire) ? Q::synchronizeEvent(event.native)
                                                              : FLAGOS_HAL_STATUS_OK;
      });
    }
    static flagos_hal_status elapsed(flagos_hal_event* start, flagos_hal_event* end,
                                     double* out_ms) noexcept {
      return onEvent("event.elapsed", start, [&](Event& first) -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(out_ms, "out_ms"));
        const std::shared_ptr<Event> second = events().find(end);
        if (!second) return events().unknown(end);
        FLAGOS_HAL_REQUIRE(first.device == second->device, INVALID_ARGUMENT,
                           "start is of device %d, end of device %d", first.device, second->device);
        FLAGOS_HAL_REQUIRE(first.flags & second->flags & FLAGOS_HAL_EVENT_TIMING, INVALID_STATE,
                           "an event was made without FLAGOS_HAL_EVENT_TIMING");
        FLAGOS_HAL_REQUIRE(first.recorded.load(std::memory_order_acquire) &&
                               second->recorded.load(std::memory_order_acquire),
                           INVALID_STATE, "an event was never recorded");
        return Q::elapsed(first.native, second->native, out_ms);
      });
    }

    static inline std::atomic<flagos_hal_stream*> default_streams_[Devices<V>::kMost] = {};
  };

}  // namespace hal_support
}  // namespace flagos
