// Makes a whole HAL of a vendor's bare functions. What hal.h asks of every library is done here, once: init,
// fork and shutdown state, null outputs, device indices, sizes of 0, flags and kinds, handle and pointer
// lifetimes, the current device, lost devices, last errors, C++ exceptions. A vendor writes what is its own:
//
//   struct Acme {
//     static constexpr const char* kVendor = "acme";
//     static constexpr const char* kVersion = "0.1.0";
//     static flagos_hal_status open();                             // opens the SDK
//     static void close();
//     static flagos_hal_status count(int32_t* out);
//     static flagos_hal_status properties(int32_t device, flagos_hal_device_properties* out);
//     static flagos_hal_status memoryInfo(int32_t device, uint64_t* out_free, uint64_t* out_total);
//     static flagos_hal_status allocate(int32_t device, uint64_t size, void** out);
//     static flagos_hal_status release(int32_t device, void* pointer);
//     static flagos_hal_status copy(int32_t device, void* destination, const void* source, uint64_t size,
//                                   int32_t kind);
//     static flagos_hal_status fill(int32_t device, void* destination, int32_t value, uint64_t size);
//   };
//   FLAGOS_HAL_LIBRARY(Acme)
//
// That is a complete library: without more, every operation is done when its call returns, and streams and
// events are kept here. What a vendor may add, each found by its name:
//
//   setCurrent(int32_t), getCurrent(int32_t*)
//       The runtime has a current device: every function below that has a device is then called with that
//       device current, and the caller's is put back afterwards.
//   synchronize(int32_t), health(int32_t)
//   capability(int32_t, int64_t*)
//       Overrides the defaults below for what it answers OK to.
//   info(flagos_hal_info*)
//       Fills sdk_version, driver_version, sdk_path.
//   pointerInfo(const void*, flagos_hal_pointer_info*)
//       Asked about pointers that did not come from allocate.
//   Stream, Event (types) and their functions: queues.hpp
//   hostAllocate, hostRelease, …; peer…: groups.hpp
//   const flagos_hal_ipc_api* ipc(); graph(); trace(); asyncAlloc()
//       Whole tables of the other optional groups.
//
// All functions are static, return a flagos_hal_status (made by fail or failVendor where it is not OK) and
// are called only between open and close, with valid arguments: a device in range, sizes above 0, pointers
// that are not null, kinds and flags of the header.
#pragma once

#include "flagos/hal_support/groups.hpp"

// The one export of the library whose vendor functions are those of `Vendor`.
#define FLAGOS_HAL_LIBRARY(Vendor)                                                                           \
  extern "C" FLAGOS_HAL_EXPORT flagos_hal_status flagos_hal_query(uint32_t core_major, uint32_t core_minor,  \
                                                                  const flagos_hal_api** out_api) {          \
    (void)                                                                                                   \
        core_minor; /* tables only grow: an older core reads less of them, a newer one finds less in them */ \
    if (!out_api) return FLAGOS_HAL_STATUS_INVALID_ARGUMENT;                                                 \
    *out_api = ::flagos::hal_support::apiOf<Vendor>();                                                       \
    return core_major == FLAGOS_HAL_ABI_MAJOR ? FLAGOS_HAL_STATUS_OK : FLAGOS_HAL_STATUS_ABI_MISMATCH;       \
  }
