// How every HAL function of the reference backend begins, and the vendor codes that it reports.
#pragma once

#include <utility>

#include "csrc/reference/faults.h"
#include "flagos/hal_support/error.hpp"
#include "flagos/hal_support/state.hpp"

namespace flagos::reference {

using hal_support::fail;
using hal_support::failVendor;

// The reference device's own error numbers, as a vendor's runtime has them. Failures of the operating system
// carry errno.
enum VendorCode : int64_t {
  kCodeCapacity = 1001,    // the simulated device is full
  kCodeDeviceLost = 1002,  // the device was lost
  kCodeInjected = 1100     // + the class: asked for by FLAGOS_REFERENCE_FAIL
};

// UNKNOWN or OUT_OF_MEMORY for a failed call of the operating system, with errno's number and name.
flagos_hal_status failSystem(flagos_hal_status status, int error, const char* what);

// Runs `body` as HAL function `function` that acts on `device` (−1: on none): refused before init and in a
// forked child, failing where FLAGOS_REFERENCE_FAIL says so.
template <typename Body>
flagos_hal_status invoke(Function function, int32_t device, Body&& body) noexcept {
  return hal_support::call(functionName(function), [&]() -> flagos_hal_status {
    FLAGOS_HAL_TRY(inject(function, device));
    return body();
  });
}

// The same for a function that releases something: OK and without effect where others are refused.
template <typename Body>
flagos_hal_status invokeRelease(Function function, int32_t device, Body&& body) noexcept {
  return hal_support::releaseCall(functionName(function), [&]() -> flagos_hal_status {
    FLAGOS_HAL_TRY(inject(function, device));
    return body();
  });
}

}  // namespace flagos::reference
