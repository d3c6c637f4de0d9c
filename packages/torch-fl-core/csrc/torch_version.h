// The torch minor that this build is for, as one condition. All differences between torch 2.10 and 2.15 are
// written with it.
#pragma once

#include <torch/version.h>

// True from torch <major>.<minor>.0 on, also for its pre-releases (a nightly "2.14.0a0" counts as 2.14).
#define FLAGOS_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if !FLAGOS_TORCH_AT_LEAST(2, 10)
#error \
    "torch-fl-core needs torch 2.10 or newer: older versions lack c10::DeviceAllocator's and the hooks' present form"
#endif
