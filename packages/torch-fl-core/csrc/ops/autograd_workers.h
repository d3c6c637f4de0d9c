// The threads of PyTorch's autograd engine, seen from the end of the process.
#pragma once

#include "csrc/api.h"

namespace flagos::ops {

// Returns once every worker of the engine that serves a device in use has left the backward passes before
// this call, with all that it destroys on leaving. False if that could not be found out (a device is lost).
// To be called without the GIL, which a leaving worker may want.
FLAGOS_API bool settleAutogradWorkers() noexcept;

}  // namespace flagos::ops
