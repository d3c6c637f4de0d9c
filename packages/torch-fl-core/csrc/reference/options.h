// What the environment asks of the reference backend. Read in system.init, each time anew. A variable that is
// unset or empty has its default.
//
//   FLAGOS_REFERENCE_DEVICES: number of devices, 0 … 64; default 2.
//
//   FLAGOS_REFERENCE_MEMORY: memory of each device, in bytes, or a number with KiB, MiB, GiB or TiB; default
//   4GiB.
//
//   FLAGOS_REFERENCE_MEMORY_FAULT: truth value; the host faults when it touches device memory; default 0.
//
//   FLAGOS_REFERENCE_IPC: truth value; device memory and events can be shared with other processes
//   (shared.h). Read by the first flagos_hal_query only, since the tables depend on it; default 0.
//
//   FLAGOS_REFERENCE_FAIL, FLAGOS_REFERENCE_LATENCY: failures and delays to inject (faults.h); default none.
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

// Reads FLAGOS_REFERENCE_IPC alone; false for a value that is not allowed.
bool readIpcOption(bool* wanted);

}  // namespace flagos::reference
