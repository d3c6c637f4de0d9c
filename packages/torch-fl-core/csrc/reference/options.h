// What the environment asks of the reference backend. Read once, in system.init.
//
//   FLAGOS_REFERENCE_DEVICES       number of devices, 0 … 64; default 2
//   FLAGOS_REFERENCE_MEMORY        memory of each device: bytes, or a number with KiB, MiB, GiB or TiB;
//   default 4GiB FLAGOS_REFERENCE_MEMORY_FAULT  a truth value; with 1 the host faults when it touches device
//   memory; default 0 FLAGOS_REFERENCE_FAIL          failures to inject (faults.h) FLAGOS_REFERENCE_LATENCY
//   delays to inject (faults.h)
//
// A variable that is unset or empty has its default.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/reference/faults.h"
#include "flagos/hal.h"

namespace flagos::reference {

inline constexpr int32_t kMaxDevices = 64;

struct Options {
  int32_t devices = 2;
  uint64_t memory = uint64_t{4} << 30;
  bool memory_fault = false;
  FaultPlan faults;
};

// Reads and checks the variables. UNAVAILABLE, with variable, value and what is allowed in the message, for a
// bad one.
flagos_hal_status readOptions(Options* options);

}  // namespace flagos::reference
