// Small blocking copies between the host and a device with a companion, past its copy kernel: one call of the
// HAL in place of an iterator, a queued copy and a wait.
#pragma once

#include <ATen/core/Tensor.h>

namespace flagos::ops {

// Copies if that is possible and right: both sides plain and alike, the stream the device's default one, which
// the HAL's blocking copy is ordered with, and the HAL knowing the companion's memory. False: nothing was done.
bool copyDirectly(const at::Tensor& destination, const at::Tensor& source);

}  // namespace flagos::ops
