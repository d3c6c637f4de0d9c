#include "csrc/reference/stream.h"

#include <algorithm>
#include <utility>

#include "csrc/reference/capture.h"
#include "csrc/reference/event.h"
#include "csrc/reference/queue.h"
#include "csrc/reference/tables.h"

namespace flagos::reference {

namespace {
StreamTable stream_table;  // constant-initialised
std::atomic<uint64_t> stream_number{0};
}  // namespace

StreamTable& streams() noexcept { return stream_table; }

flagos_hal_status unknownStream(const flagos_hal_stream* handle) {
  if (!handle) return fail(FLAGOS_HAL_STATUS_INVALID_HANDLE, "the stream is null");
  return fail(FLAGOS_HAL_STATUS_INVALID_HANDLE, "%p is not a live stream of this library",
              static_cast<const void*>(handle));
}

flagos_hal_status openStream(Device& device, int32_t priority, flagos_hal_stream** out_handle) {
  flagos_hal_stream* handle = nullptr;
  Stream* stream = streams().reserve(&handle);
  FLAGOS_HAL_REQUIRE(stream, OUT_OF_MEMORY, "all streams of the library are in use");
  try {
    std::lock_guard<std::mutex> lock(device.mutex);
    if (device.streams.size() > static_cast<size_t>(kMaxStreamsPerDevice)) {
      streams().recycle(handle);
      return fail(FLAGOS_HAL_STATUS_OUT_OF_MEMORY, "device %d has %d streams, as many as it can have",
                  device.index, kMaxStreamsPerDevice);
    }
    device.streams.push_back(stream);
    stream->device = device.index;
    stream->priority = priority;
    stream->number = stream_number.fetch_add(1, std::memory_order_relaxed) + 1;
    stream->handle = handle;
    stream->failure = Failure{};
    // Under the device's lock, so that a loss at this moment reaches the stream.
    stream->flags.store(device.lost.load(std::memory_order_acquire) ? kStreamLost : 0,
                        std::memory_order_release);
    if (priority != 0) device.has_priorities.store(true, std::memory_order_release);
  } catch (...) {
    streams().recycle(handle);
    throw;
  }
  streams().publish(handle);
  *out_handle = handle;
  return kOk;
}

void closeStream(Stream& stream) noexcept {
  abandonCapture(stream);
  stopThread(stream);
  Device& device = deviceAt(stream.device);
  {
    std::lock_guard<std::mutex> lock(device.mutex);
    device.streams.erase(std::remove(device.streams.begin(), device.streams.end(), &stream),
                         device.streams.end());
  }
  // A failure that nobody was told of passes to the device's default stream, rather than being swallowed.
  if (stream.flags.load(std::memory_order_acquire) & kStreamFailed) {
    Stream* heir = device.default_stream;
    if (heir && heir != &stream) {
      std::lock_guard<std::mutex> lock(heir->mutex);
      if (!(heir->flags.load(std::memory_order_relaxed) & kStreamFailed)) {
        heir->failure = stream.failure;
        heir->flags.fetch_or(kStreamFailed, std::memory_order_acq_rel);
      }
    }
  }
  streams().recycle(stream.handle);
}

void waitFor(Stream& stream, uint64_t sequence) {
  if (reached(stream, sequence)) return;
  std::unique_lock<std::mutex> lock(stream.mutex);
  stream.waiters.fetch_add(1, std::memory_order_seq_cst);
  stream.progress.wait(lock, [&] { return stream.finished.load(std::memory_order_seq_cst) >= sequence; });
  stream.waiters.fetch_sub(1, std::memory_order_relaxed);
}

flagos_hal_status takeFailure(Stream& stream) {
  Failure failure;
  {
    std::lock_guard<std::mutex> lock(stream.mutex);
    if (!(stream.flags.load(std::memory_order_relaxed) & kStreamFailed)) return kOk;
    failure = stream.failure;
    stream.flags.fetch_and(~kStreamFailed, std::memory_order_acq_rel);
  }
  FLAGOS_HAL_REQUIRE(
      failure.kind != WorkKind::Other, INVALID_STATE,
      "async_alloc.release_async that was queued earlier on stream %llu of device %d released nothing: "
      "transfers of other streams still used the memory",
      static_cast<unsigned long long>(stream.number), stream.device);
  const char* what = failure.kind == WorkKind::Fill ? "a fill" : "a copy";
  return failVendor(failure.status, kCodeInjected + failure.status, "referenceErrorInjected",
                    "%s that was queued earlier on stream %llu of device %d failed", what,
                    static_cast<unsigned long long>(stream.number), stream.device);
}

flagos_hal_status takeDeviceFailure(Device& device) {
  std::vector<Stream*> all;
  {
    std::lock_guard<std::mutex> lock(device.mutex);
    all = device.streams;
  }
  for (Stream* stream : all) {
    if (stream->flags.load(std::memory_order_acquire) & kStreamFailed) FLAGOS_HAL_TRY(takeFailure(*stream));
  }
  return kOk;
}

flagos_hal_status refuseOnWorker() {
  FLAGOS_HAL_REQUIRE(!onWorkerThread(), INVALID_STATE,
                     "a host callback must not wait for the device: its stream waits for it");
  return kOk;
}

// ------------------------------------------------------------------------------------ group stream ----

namespace {

flagos_hal_status create(int32_t device, const flagos_hal_stream_options* options,
                         flagos_hal_stream** out_stream) {
  return invoke(Function::stream_create, device, [&] {
    FLAGOS_HAL_REQUIRE(out_stream, INVALID_ARGUMENT, "out_stream is null");
    FLAGOS_HAL_TRY(checkDevice(device));
    const flagos_hal_stream_options known = hal_support::readSized(options);
    FLAGOS_HAL_REQUIRE(known.flags == 0, INVALID_ARGUMENT, "stream flags 0x%x are not defined", known.flags);
    const int32_t priority = std::min(kLeastPriority, std::max(kGreatestPriority, known.priority));
    return openStream(deviceAt(device), priority, out_stream);
  });
}

flagos_hal_status destroy(flagos_hal_stream* handle) {
  return hal_support::releaseCall(functionName(Function::stream_destroy), [&]() -> flagos_hal_status {
    Stream* stream = streams().find(handle);
    FLAGOS_HAL_TRY(inject(Function::stream_destroy, stream ? stream->device : -1));
    if (!stream) return unknownStream(handle);
    FLAGOS_HAL_REQUIRE(deviceAt(stream->device).default_handle != handle, INVALID_HANDLE,
                       "the default stream of device %d belongs to the library and cannot be destroyed",
                       stream->device);
    FLAGOS_HAL_TRY(refuseOnWorker());
    if (!streams().retire(handle)) return unknownStream(handle);
    closeStream(*stream);
    return kOk;
  });
}

flagos_hal_status defaultStream(int32_t device, flagos_hal_stream** out_stream) {
  return invoke(Function::stream_default_stream, device, [&] {
    FLAGOS_HAL_REQUIRE(out_stream, INVALID_ARGUMENT, "out_stream is null");
    FLAGOS_HAL_TRY(checkDevice(device));
    *out_stream = deviceAt(device).default_handle;
    return kOk;
  });
}

flagos_hal_status priorityRange(int32_t device, int32_t* out_least, int32_t* out_greatest) {
  return invoke(Function::stream_priority_range, device, [&] {
    FLAGOS_HAL_REQUIRE(out_least && out_greatest, INVALID_ARGUMENT, "out_least or out_greatest is null");
    FLAGOS_HAL_TRY(checkDevice(device));
    *out_least = kLeastPriority;
    *out_greatest = kGreatestPriority;
    return kOk;
  });
}

flagos_hal_status query(flagos_hal_stream* handle) {
  // The common case without the wrapper: core asks before every operator of the host.
  if (hal_support::state().ready() && !faults_installed) {
    const Stream* stream = streams().find(handle);
    if (stream && stream->flags.load(std::memory_order_acquire) == 0) {
      const uint64_t queued = stream->queued.load(std::memory_order_acquire);
      return reached(*stream, queued) ? kOk : kNotReady;
    }
  }
  return invokeOnStream(Function::stream_query, handle, [&](Stream& stream) {
    FLAGOS_HAL_TRY(refuseCapturing(stream, "stream.query"));
    const uint64_t queued = stream.queued.load(std::memory_order_acquire);
    const bool idle = reached(stream, queued);
    FLAGOS_HAL_TRY(takeFailure(stream));
    return idle ? kOk : kNotReady;
  });
}

flagos_hal_status synchronize(flagos_hal_stream* handle) {
  if (hal_support::state().ready() && !faults_installed) {
    const Stream* stream = streams().find(handle);
    if (stream && stream->flags.load(std::memory_order_acquire) == 0 &&
        reached(*stream, stream->queued.load(std::memory_order_acquire))) {
      return kOk;
    }
  }
  return invokeOnStream(Function::stream_synchronize, handle, [&](Stream& stream) {
    FLAGOS_HAL_TRY(refuseCapturing(stream, "stream.synchronize"));
    const uint64_t queued = stream.queued.load(std::memory_order_acquire);
    if (!reached(stream, queued)) {
      FLAGOS_HAL_TRY(refuseOnWorker());
      waitFor(stream, queued);
    }
    if (stream.flags.load(std::memory_order_acquire) & kStreamLost) return failLost(stream.device);
    return takeFailure(stream);
  });
}

flagos_hal_status waitEvent(flagos_hal_stream* handle, flagos_hal_event* event_handle) {
  return invokeOnStream(Function::stream_wait_event, handle, [&](Stream& stream) {
    Event* event = events().find(event_handle);
    if (!event) return unknownEvent(event_handle);
    return waitForEvent(stream, *event);
  });
}

flagos_hal_status nativeHandle(flagos_hal_stream* handle, void** out_handle) {
  return invokeOnStream(Function::stream_native_handle, handle, [&](Stream& stream) {
    FLAGOS_HAL_REQUIRE(out_handle, INVALID_ARGUMENT, "out_handle is null");
    *out_handle = &stream;
    return kOk;
  });
}

flagos_hal_status streamDevice(flagos_hal_stream* handle, int32_t* out_device) {
  return invokeOnStream(Function::stream_device, handle, [&](Stream& stream) {
    FLAGOS_HAL_REQUIRE(out_device, INVALID_ARGUMENT, "out_device is null");
    *out_device = stream.device;
    return kOk;
  });
}

flagos_hal_status hostCallback(flagos_hal_stream* handle, void (*function)(void* argument), void* argument) {
  return invokeOnStream(Function::stream_host_callback, handle, [&](Stream& stream) {
    FLAGOS_HAL_REQUIRE(function, INVALID_ARGUMENT, "the function is null");
    const CallbackWork work{function, argument};
    if (capturing(stream)) {
      return captureWork(stream, {{work, WorkKind::Callback, Function::stream_host_callback}});
    }
    Task task = makeTask(work, WorkKind::Callback, Function::stream_host_callback);
    return enqueue(stream, &task, 1);
  });
}

}  // namespace

const flagos_hal_stream_api kStreamApi = {sizeof(kStreamApi), create,       destroy,     defaultStream,
                                          priorityRange,      query,        synchronize, waitEvent,
                                          nativeHandle,       streamDevice, hostCallback};

}  // namespace flagos::reference
