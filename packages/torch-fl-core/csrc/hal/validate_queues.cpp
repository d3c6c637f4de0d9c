// The groups stream and event under the validating layer (stream.host_callback: validator.cpp).
#include "csrc/hal/validator_calls.h"
#include "flagos/hal_support/error.hpp"

namespace flagos::hal {

flagos_hal_status Validator::stream_create(int32_t device, const flagos_hal_stream_options* options,
                                           flagos_hal_stream** out_stream) {
  constexpr Member kMember = Member::stream_create;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_stream, "out_stream"));
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  if (options) {
    constexpr size_t kAbsurd = size_t{1} << 16;
    if (options->struct_size < sizeof(size_t) || options->struct_size > kAbsurd) {
      return violation(kMember, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "HAL-STR-01",
                       "options->struct_size is %zu; set it to the sizeof of the structure (%zu)",
                       options->struct_size, sizeof(*options));
    }
    if (options->struct_size >= sizeof(*options)) {
      FLAGOS_HAL_TRY(checkFlags(kMember, "options->flags", options->flags, 0));
    }
  }
  flagos_hal_stream* stream = nullptr;
  FLAGOS_HAL_TRY(returned(kMember, library_.stream.create(device, options, &stream)));
  if (!stream) return libraryFault(kMember, "HAL-STR-01", "it answered OK and a null stream");
  auto state = std::make_shared<StreamState>();
  state->device = device;
  bool taken = false;
  {
    Lock lock(mutex_);
    taken = streams_.find(stream) != nullptr;
    if (!taken) streams_.add(stream, std::move(state));
  }
  if (taken) {
    return libraryFault(kMember, "HAL-STR-01", "it gave out %p, which is a live stream",
                        static_cast<const void*>(stream));
  }
  *out_stream = stream;
  return FLAGOS_HAL_STATUS_OK;
}

flagos_hal_status Validator::stream_destroy(flagos_hal_stream* stream) {
  constexpr Member kMember = Member::stream_destroy;
  std::shared_ptr<StreamState> state;
  FLAGOS_HAL_TRY(checkStream(kMember, stream, &state));
  if (state->is_default) {
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_HANDLE, "HAL-STR-02",
                     "%p is the default stream of device %d", static_cast<const void*>(stream),
                     state->device);
  }
  if (state->in_progress.load() != 0) {
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_STATE, "HAL-STR-02",
                     "another thread is queueing on the stream");
  }
  {
    Lock lock(mutex_);
    streams_.remove(stream);
  }
  const flagos_hal_status status = returned(kMember, library_.stream.destroy(stream));
  if (status != FLAGOS_HAL_STATUS_OK) {
    Lock lock(mutex_);
    streams_.add(stream, std::move(state));
  }
  return status;
}

flagos_hal_status Validator::stream_default_stream(int32_t device, flagos_hal_stream** out_stream) {
  constexpr Member kMember = Member::stream_default_stream;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_stream, "out_stream"));
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  flagos_hal_stream* stream = nullptr;
  FLAGOS_HAL_TRY(returned(kMember, library_.stream.default_stream(device, &stream)));
  if (!stream) return libraryFault(kMember, "HAL-STR-03", "it answered OK and a null stream");
  const flagos_hal_stream* before = nullptr;
  {
    Lock lock(mutex_);
    const auto [entry, fresh] = default_streams_.emplace(device, stream);
    before = entry->second;
    if (fresh) {
      auto state = std::make_shared<StreamState>();
      state->device = device;
      state->is_default = true;
      streams_.add(stream, std::move(state));
    }
  }
  if (before != stream) {
    return libraryFault(kMember, "HAL-STR-03", "the default stream of device %d was %p and is %p now", device,
                        static_cast<const void*>(before), static_cast<const void*>(stream));
  }
  *out_stream = stream;
  return FLAGOS_HAL_STATUS_OK;
}

flagos_hal_status Validator::stream_priority_range(int32_t device, int32_t* out_least,
                                                   int32_t* out_greatest) {
  constexpr Member kMember = Member::stream_priority_range;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_least, "out_least"));
  FLAGOS_HAL_TRY(checkOutput(kMember, out_greatest, "out_greatest"));
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  FLAGOS_HAL_TRY(returned(kMember, library_.stream.priority_range(device, out_least, out_greatest)));
  if (*out_least < 0 || *out_greatest > 0) {
    return libraryFault(kMember, "HAL-STR-04", "the range is least %d, greatest %d; 0 is not in it",
                        *out_least, *out_greatest);
  }
  return FLAGOS_HAL_STATUS_OK;
}

flagos_hal_status Validator::stream_query(flagos_hal_stream* stream) {
  constexpr Member kMember = Member::stream_query;
  std::shared_ptr<StreamState> state;
  FLAGOS_HAL_TRY(checkStream(kMember, stream, &state));
  return returned(kMember, library_.stream.query(stream));
}

flagos_hal_status Validator::stream_synchronize(flagos_hal_stream* stream) {
  constexpr Member kMember = Member::stream_synchronize;
  std::shared_ptr<StreamState> state;
  FLAGOS_HAL_TRY(checkStream(kMember, stream, &state));
  return returned(kMember, library_.stream.synchronize(stream));
}

flagos_hal_status Validator::stream_wait_event(flagos_hal_stream* stream, flagos_hal_event* event) {
  constexpr Member kMember = Member::stream_wait_event;
  std::shared_ptr<StreamState> state;
  std::shared_ptr<EventState> event_state;
  FLAGOS_HAL_TRY(checkStream(kMember, stream, &state));
  FLAGOS_HAL_TRY(checkEvent(kMember, event, &event_state));
  Queueing queueing(*state, true);
  if (queueing.conflict()) return refuseConcurrent(kMember);
  return returned(kMember, library_.stream.wait_event(stream, event));
}

flagos_hal_status Validator::stream_native_handle(flagos_hal_stream* stream, void** out_handle) {
  constexpr Member kMember = Member::stream_native_handle;
  std::shared_ptr<StreamState> state;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_handle, "out_handle"));
  FLAGOS_HAL_TRY(checkStream(kMember, stream, &state));
  return returned(kMember, library_.stream.native_handle(stream, out_handle));
}

flagos_hal_status Validator::stream_device(flagos_hal_stream* stream, int32_t* out_device) {
  constexpr Member kMember = Member::stream_device;
  std::shared_ptr<StreamState> state;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_device, "out_device"));
  FLAGOS_HAL_TRY(checkStream(kMember, stream, &state));
  FLAGOS_HAL_TRY(returned(kMember, library_.stream.device(stream, out_device)));
  if (*out_device != state->device) {
    return libraryFault(kMember, "HAL-STR-09", "the stream was made on device %d, it says %d", state->device,
                        *out_device);
  }
  return FLAGOS_HAL_STATUS_OK;
}

flagos_hal_status Validator::event_create(int32_t device, uint32_t flags, flagos_hal_event** out_event) {
  constexpr Member kMember = Member::event_create;
  constexpr uint32_t kKnown =
      FLAGOS_HAL_EVENT_TIMING | FLAGOS_HAL_EVENT_BLOCKING | FLAGOS_HAL_EVENT_INTERPROCESS;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_event, "out_event"));
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  FLAGOS_HAL_TRY(checkFlags(kMember, "flags", flags, kKnown));
  if ((flags & FLAGOS_HAL_EVENT_INTERPROCESS) && (flags & FLAGOS_HAL_EVENT_TIMING)) {
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "HAL-EVT-01",
                     "INTERPROCESS excludes TIMING");
  }
  flagos_hal_event* event = nullptr;
  FLAGOS_HAL_TRY(returned(kMember, library_.event.create(device, flags, &event)));
  if (!event) return libraryFault(kMember, "HAL-EVT-01", "it answered OK and a null event");
  auto state = std::make_shared<EventState>();
  state->device = device;
  state->flags = flags;
  bool taken = false;
  {
    Lock lock(mutex_);
    taken = events_.find(event) != nullptr;
    if (!taken) events_.add(event, std::move(state));
  }
  if (taken) {
    return libraryFault(kMember, "HAL-EVT-01", "it gave out %p, which is a live event",
                        static_cast<const void*>(event));
  }
  *out_event = event;
  return FLAGOS_HAL_STATUS_OK;
}

flagos_hal_status Validator::event_destroy(flagos_hal_event* event) {
  constexpr Member kMember = Member::event_destroy;
  std::shared_ptr<EventState> state;
  FLAGOS_HAL_TRY(checkEvent(kMember, event, &state));
  {
    Lock lock(mutex_);
    events_.remove(event);
  }
  const flagos_hal_status status = returned(kMember, library_.event.destroy(event));
  if (status != FLAGOS_HAL_STATUS_OK) {
    Lock lock(mutex_);
    events_.add(event, std::move(state));
  }
  return status;
}

flagos_hal_status Validator::event_record(flagos_hal_event* event, flagos_hal_stream* stream) {
  constexpr Member kMember = Member::event_record;
  std::shared_ptr<EventState> event_state;
  std::shared_ptr<StreamState> state;
  FLAGOS_HAL_TRY(checkEvent(kMember, event, &event_state));
  FLAGOS_HAL_TRY(checkStream(kMember, stream, &state));
  if (event_state->device != state->device) {
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "HAL-EVT-03",
                     "the event is of device %d, the stream of device %d", event_state->device,
                     state->device);
  }
  Queueing queueing(*state, true);
  if (queueing.conflict()) return refuseConcurrent(kMember);
  const flagos_hal_status status = returned(kMember, library_.event.record(event, stream));
  if (status == FLAGOS_HAL_STATUS_OK) event_state->recorded.store(true, std::memory_order_release);
  return status;
}

flagos_hal_status Validator::event_query(flagos_hal_event* event) {
  constexpr Member kMember = Member::event_query;
  std::shared_ptr<EventState> state;
  FLAGOS_HAL_TRY(checkEvent(kMember, event, &state));
  return returned(kMember, library_.event.query(event));
}

flagos_hal_status Validator::event_synchronize(flagos_hal_event* event) {
  constexpr Member kMember = Member::event_synchronize;
  std::shared_ptr<EventState> state;
  FLAGOS_HAL_TRY(checkEvent(kMember, event, &state));
  return returned(kMember, library_.event.synchronize(event));
}

flagos_hal_status Validator::event_elapsed(flagos_hal_event* start, flagos_hal_event* end, double* out_ms) {
  constexpr Member kMember = Member::event_elapsed;
  std::shared_ptr<EventState> first;
  std::shared_ptr<EventState> second;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_ms, "out_ms"));
  FLAGOS_HAL_TRY(checkEvent(kMember, start, &first));
  FLAGOS_HAL_TRY(checkEvent(kMember, end, &second));
  if (first->device != second->device) {
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "HAL-EVT-06",
                     "start is of device %d, end of device %d", first->device, second->device);
  }
  const auto usable = [&](const EventState& event, const char* name) {
    if ((event.flags & FLAGOS_HAL_EVENT_TIMING) == 0) {
      return violation(kMember, FLAGOS_HAL_STATUS_INVALID_STATE, "HAL-EVT-06",
                       "%s was made without FLAGOS_HAL_EVENT_TIMING", name);
    }
    if (!event.recorded.load(std::memory_order_acquire)) {
      return violation(kMember, FLAGOS_HAL_STATUS_INVALID_STATE, "HAL-EVT-06", "%s was never recorded", name);
    }
    return flagos_hal_status{FLAGOS_HAL_STATUS_OK};
  };
  FLAGOS_HAL_TRY(usable(*first, "start"));
  FLAGOS_HAL_TRY(usable(*second, "end"));
  return returned(kMember, library_.event.elapsed(start, end, out_ms));
}

}  // namespace flagos::hal
