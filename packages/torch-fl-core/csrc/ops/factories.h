// New tensors on a flagos device.
#pragma once

#include <ATen/core/Tensor.h>

#include "csrc/runtime/devices.h"

namespace flagos::ops {

// An uninitialised tensor on `device`. `strides` empty with a non-empty size: contiguous.
at::Tensor emptyOn(c10::DeviceIndex device, at::IntArrayRef size, at::ScalarType dtype,
                   std::optional<at::IntArrayRef> strides = std::nullopt);

}  // namespace flagos::ops
