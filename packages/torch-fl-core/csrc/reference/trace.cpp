#include "csrc/reference/trace.h"

#include <time.h>

#include <mutex>
#include <shared_mutex>

#include "csrc/reference/status.h"
#include "csrc/reference/tables.h"
#include "csrc/reference/work.h"

namespace flagos::reference {

std::atomic<bool> trace_running{false};

namespace {

thread_local uint64_t correlation_of_thread = 0;

struct Sink {
  void (*function)(void* context, const flagos_hal_activity* activity) = nullptr;
  void* context = nullptr;
};

// Held shared while an activity is delivered, so that stop can wait for those. Never destroyed.
std::shared_mutex& sinkMutex() {
  static std::shared_mutex& mutex = *new std::shared_mutex;
  return mutex;
}
Sink sink;  // guarded by sinkMutex

// Nanoseconds from the steady clock to the Unix epoch. Fixed at init: a trace does not jump when the wall
// clock is set.
int64_t epoch_offset = 0;

void deliver(flagos_hal_activity& activity) {
  activity.struct_size = sizeof(activity);
  activity.start_ns += epoch_offset;
  activity.end_ns += epoch_offset;
  std::shared_lock<std::shared_mutex> lock(sinkMutex());
  if (sink.function) sink.function(sink.context, &activity);
}

}  // namespace

uint64_t currentCorrelation() noexcept { return correlation_of_thread; }

void traceTransfer(int32_t device, uint64_t stream, uint64_t correlation, int64_t start, int64_t end,
                   const Transfer& transfer) {
  flagos_hal_activity activity = {};
  const char* name = "copy host to host";
  if (transfer.isFill()) {
    name = "fill";
  } else if (transfer.destination_device != kHost && transfer.source_device != kHost) {
    name =
        transfer.destination_device == transfer.source_device ? "copy device to device" : "copy peer to peer";
  } else if (transfer.destination_device != kHost) {
    name = "copy host to device";
  } else if (transfer.source_device != kHost) {
    name = "copy device to host";
  }
  activity.kind = transfer.isFill() ? FLAGOS_HAL_ACTIVITY_FILL : FLAGOS_HAL_ACTIVITY_COPY;
  activity.device = device;
  activity.stream = stream;
  activity.correlation = correlation;
  activity.start_ns = start;
  activity.end_ns = end;
  activity.bytes = transfer.size;
  activity.name = name;
  deliver(activity);
}

void traceCallback(int32_t device, uint64_t stream, uint64_t correlation, int64_t start, int64_t end) {
  flagos_hal_activity activity = {};
  activity.kind = FLAGOS_HAL_ACTIVITY_CALLBACK;
  activity.device = device;
  activity.stream = stream;
  activity.correlation = correlation;
  activity.start_ns = start;
  activity.end_ns = end;
  activity.name = "host callback";
  deliver(activity);
}

void openTrace() noexcept {
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  epoch_offset = static_cast<int64_t>(wall.tv_sec) * 1000000000 + wall.tv_nsec - steadyNanoseconds();
}

void closeTrace() noexcept {
  trace_running.store(false, std::memory_order_release);
  std::unique_lock<std::shared_mutex> lock(sinkMutex());
  sink = Sink{};
}

// ------------------------------------------------------------------------------------ group trace ----

namespace {

flagos_hal_status start(void (*function)(void* context, const flagos_hal_activity* activity), void* context) {
  return invoke(Function::trace_start, -1, [&] {
    FLAGOS_HAL_REQUIRE(function, INVALID_ARGUMENT, "the sink is null");
    std::unique_lock<std::shared_mutex> lock(sinkMutex());
    FLAGOS_HAL_REQUIRE(!sink.function, INVALID_STATE, "a trace is running already; stop it first");
    sink = {function, context};
    trace_running.store(true, std::memory_order_release);
    return kOk;
  });
}

flagos_hal_status stop() {
  return invoke(Function::trace_stop, -1, [&] {
    closeTrace();
    return kOk;
  });
}

flagos_hal_status now(int64_t* out_ns) {
  return invoke(Function::trace_now, -1, [&] {
    FLAGOS_HAL_REQUIRE(out_ns, INVALID_ARGUMENT, "out_ns is null");
    *out_ns = steadyNanoseconds() + epoch_offset;
    return kOk;
  });
}

flagos_hal_status exchangeCorrelation(uint64_t* inout_correlation) {
  return invoke(Function::trace_exchange_correlation, -1, [&] {
    FLAGOS_HAL_REQUIRE(inout_correlation, INVALID_ARGUMENT, "inout_correlation is null");
    std::swap(correlation_of_thread, *inout_correlation);
    return kOk;
  });
}

}  // namespace

const flagos_hal_trace_api kTraceApi = {sizeof(kTraceApi), start, stop, now, exchangeCorrelation};

}  // namespace flagos::reference
