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
// and none of ours yet. Called once, when the Python module is loaded; operators that other libraries
// register later meet the fallback.
FLAGOS_API RegistrationCounts registerOperators();

}  // namespace flagos::ops
