// Gives every operator that needs one a kernel on the flagos device.
#pragma once

#include <cstdint>

#include "csrc/api.h"

namespace flagos::ops {

struct RegistrationCounts {
  int64_t hot = 0;    // unboxed wrappers
  int64_t boxed = 0;  // by schema
};

// Walks torch's dispatcher and registers a kernel for every aten overload that has a CPU kernel of its own
// and none of ours yet. The first call does it, all return the same counts. Thread-safe. Operators that other
// libraries register later meet the fallback.
FLAGOS_API const RegistrationCounts& registerOperators();

// Has registerOperators called when a device is first used. Before that there is no tensor that an operator
// could be called with, and a process that only has core installed pays nothing for its 1,282 kernels.
FLAGOS_API void registerOperatorsOnActivation();

}  // namespace flagos::ops
