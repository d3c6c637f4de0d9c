// Group system: start, end and description of the library.
#include "csrc/reference/device.h"
#include "csrc/reference/event.h"
#include "csrc/reference/graph.h"
#include "csrc/reference/memory.h"
#include "csrc/reference/options.h"
#include "csrc/reference/shared.h"
#include "csrc/reference/stream.h"
#include "csrc/reference/tables.h"
#include "csrc/reference/trace.h"

#ifndef FLAGOS_REFERENCE_VERSION
#define FLAGOS_REFERENCE_VERSION "1.0"
#endif

namespace flagos::reference {

namespace {

// Ends everything that init began, also a half-finished init.
void closeAll() noexcept {
  streams().forEach([](flagos_hal_stream* handle) {
    // Non-default streams first: what they failed with passes to the default one.
    Stream* stream = streams().find(handle);
    if (stream && deviceAt(stream->device).default_handle != handle && streams().retire(handle)) {
      closeStream(*stream);
    }
  });
  streams().forEach([](flagos_hal_stream* handle) {
    if (Stream* stream = streams().retire(handle)) closeStream(*stream);
  });
  events().forEach([](flagos_hal_event* handle) {
    if (Event* event = events().retire(handle)) {
      closeEvent(*event);
      events().recycle(handle);
    }
  });
  closeGraphs();
  closeTrace();
  closeMemory();
  closeShared();
  closeDevices();
}

flagos_hal_status open() {
  Options options;
  FLAGOS_HAL_TRY(readOptions(&options));
  const std::vector<int32_t> lost = options.faults.lost_devices;
  installFaults(std::move(options.faults));
  FLAGOS_HAL_TRY(inject(Function::system_init, -1));
  FLAGOS_HAL_TRY(openShared());
  openTrace();
  openMemory(options.memory_fault);
  const flagos_hal_status status = openDevices(options.devices, options.memory);
  if (status != kOk) {
    closeAll();
    return status;
  }
  for (const int32_t device : lost) loseDevice(device);
  return kOk;
}

flagos_hal_status init() { return hal_support::state().init(open); }

flagos_hal_status shutdown() {
  if (hal_support::state().ready()) {
    hal_support::FunctionScope scope(functionName(Function::system_shutdown));
    FLAGOS_HAL_TRY(inject(Function::system_shutdown, -1));
  }
  return hal_support::state().shutdown(closeAll);
}

flagos_hal_status info(flagos_hal_info* out_info) {
  return hal_support::callAnytime(functionName(Function::system_info), [&]() -> flagos_hal_status {
    FLAGOS_HAL_TRY(inject(Function::system_info, -1));
    flagos_hal_info value = {};
    value.vendor = "reference";
    value.library_version = FLAGOS_REFERENCE_VERSION;
    // There is no vendor's runtime below.
    value.sdk_version = "";
    value.driver_version = "";
    value.sdk_path = "";
    return hal_support::writeSized(out_info, value);
  });
}

flagos_hal_status lastError(flagos_hal_error* out_error) { return hal_support::lastError(out_error); }

flagos_hal_status capability(int32_t number, int64_t* out_value) {
  return invoke(Function::system_capability, -1, [&] {
    FLAGOS_HAL_REQUIRE(out_value, INVALID_ARGUMENT, "out_value is null");
    switch (number) {
      case FLAGOS_HAL_CAP_HOST_ACCESS:
        *out_value = memoryFaultMode() ? FLAGOS_HAL_HOST_ACCESS_NONE : FLAGOS_HAL_HOST_ACCESS_COHERENT;
        return kOk;
      case FLAGOS_HAL_CAP_ALIGNMENT:
        *out_value = kAlignment;
        return kOk;
      case FLAGOS_HAL_CAP_ASYNC_STREAMS:
      case FLAGOS_HAL_CAP_EVENT_TIMING:
        *out_value = 1;
        return kOk;
      case FLAGOS_HAL_CAP_MAX_STREAMS:
        *out_value = kMaxStreamsPerDevice;
        return kOk;
      case FLAGOS_HAL_CAP_POINTER_INFO:
        *out_value = 0;
        return kOk;
      default:
        return fail(FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "capability %d is not known to this library", number);
    }
  });
}

}  // namespace

const flagos_hal_system_api kSystemApi = {sizeof(kSystemApi), init, shutdown, info, lastError, capability};

}  // namespace flagos::reference
