// The HAL of __vendor__: what is this SDK's own. Everything that hal.h asks of every library (arguments,
// handles, fork, errors, devices that are lost) is done by flagos/hal_support.
//
// It is written against an SDK with the names of symbols.def. Put your SDK's names there and its calls here;
// then add what your chip has besides, each found by its name: queues and events (hal_support/queues.hpp),
// pinned memory and peers (hal_support/groups.hpp). Run the conformance kit after each: torch-fl-conformance
// __vendor__
#include "flagos/hal_support/hal.hpp"
#include "flagos/hal_support/sdk.hpp"

#define FLAGOS_SDK_STRUCT Sdk
#define FLAGOS_SDK_SYMBOLS "symbols.def"
#include "flagos/hal_support/sdk_table.hpp"

namespace {

using flagos::hal_support::failVendor;
using flagos::hal_support::SdkLibrary;

SdkLibrary library;
Sdk sdk;

// The one place that knows the SDK's numbers.
flagos_hal_status toStatus(int code) {
  switch (code) {
    case 0:
      return FLAGOS_HAL_STATUS_OK;
    case 2:
      return FLAGOS_HAL_STATUS_OUT_OF_MEMORY;
    default:
      return FLAGOS_HAL_STATUS_UNKNOWN;
  }
}

// Turns the result of a call into a status, and keeps the SDK's number and name of a failure.
flagos_hal_status check(int code, const char* call) {
  const flagos_hal_status status = toStatus(code);
  if (status == FLAGOS_HAL_STATUS_OK) return status;
  const char* name = sdk.__vendor__GetErrorName ? sdk.__vendor__GetErrorName(code) : "";
  return failVendor(status, code, name, "%s failed", call);
}

struct Vendor {
  static constexpr const char* kVendor = "__vendor__";
  static constexpr const char* kVersion = "0.1.0";

  static flagos_hal_status open() {
    FLAGOS_HAL_TRY(library.open(
        {"__vendor__ runtime",
         {"lib__vendor__rt.so"},
         {SdkLibrary::kLoaded, "$__VENDOR___HOME/lib", SdkLibrary::kLoaderPath, "/opt/__vendor__/lib"},
         "Install the __vendor__ runtime or set __VENDOR___HOME"}));
    return sdk.load(library);
  }
  static void close() {}  // the SDK stays loaded: it may have threads and exit handlers of its own

  static flagos_hal_status info(flagos_hal_info* out) {
    out->sdk_path = library.path();
    return FLAGOS_HAL_STATUS_OK;
  }

  static flagos_hal_status count(int32_t* out) {
    return check(sdk.__vendor__GetDeviceCount(out), "__vendor__GetDeviceCount");
  }

  // With these two, every function below that is given a device is called with that device current.
  static flagos_hal_status setCurrent(int32_t device) {
    return check(sdk.__vendor__SetDevice(device), "__vendor__SetDevice");
  }
  static flagos_hal_status getCurrent(int32_t* out) {
    return check(sdk.__vendor__GetDevice(out), "__vendor__GetDevice");
  }

  // What is not set here stays "not told"; never a guess.
  static flagos_hal_status properties(int32_t device, flagos_hal_device_properties* out) {
    size_t free = 0, total = 0;
    FLAGOS_HAL_TRY(
        check(sdk.__vendor__GetDeviceName(out->name, sizeof(out->name), device), "__vendor__GetDeviceName"));
    FLAGOS_HAL_TRY(check(sdk.__vendor__MemGetInfo(&free, &total), "__vendor__MemGetInfo"));
    out->total_memory = static_cast<int64_t>(total);
    return FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status memoryInfo(int32_t, uint64_t* out_free, uint64_t* out_total) {
    size_t free = 0, total = 0;
    FLAGOS_HAL_TRY(check(sdk.__vendor__MemGetInfo(&free, &total), "__vendor__MemGetInfo"));
    *out_free = free;
    *out_total = total;
    return FLAGOS_HAL_STATUS_OK;
  }

  static flagos_hal_status allocate(int32_t, uint64_t size, void** out) {
    return check(sdk.__vendor__Malloc(out, size), "__vendor__Malloc");
  }
  static flagos_hal_status release(int32_t, void* pointer) {
    return check(sdk.__vendor__Free(pointer), "__vendor__Free");
  }

  // FLAGOS_HAL_COPY_… has the numbers of many SDKs; if yours has others, translate them here.
  static flagos_hal_status copy(int32_t, void* destination, const void* source, uint64_t size, int32_t kind) {
    return check(sdk.__vendor__Memcpy(destination, source, size, kind), "__vendor__Memcpy");
  }
  static flagos_hal_status fill(int32_t, void* destination, int32_t value, uint64_t size) {
    return check(sdk.__vendor__Memset(destination, value, size), "__vendor__Memset");
  }
};

}  // namespace

FLAGOS_HAL_LIBRARY(Vendor)
