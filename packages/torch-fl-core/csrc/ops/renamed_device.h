// Another device type's name for flagos: while it is on, operators that are given that type as a device make
// their tensors on flagos.
#pragma once

#include <c10/core/DeviceType.h>

#include "csrc/api.h"

namespace flagos::ops {

// From now on `type` means flagos wherever an operator of PyTorch's takes a device. For types that have no
// device in this process. Under torch.compile the graph holds flagos. Throws c10::Error if another name is on.
FLAGOS_API void renameDeviceType(c10::DeviceType type);

// Ends it; nothing remains. Nothing to do is no error.
FLAGOS_API void restoreDeviceType();

}  // namespace flagos::ops
