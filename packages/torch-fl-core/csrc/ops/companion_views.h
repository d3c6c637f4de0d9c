// The same memory as a tensor of the companion's device type, and the other way round: for code that knows
// only one of the two.
#pragma once

#include <ATen/core/Tensor.h>

#include "csrc/api.h"

namespace flagos::ops {

// A tensor of the companion over the memory of a flagos tensor, which it keeps alive. Sizes, strides and dtype
// are the same; autograd does not follow. Throws where the device has no companion.
FLAGOS_API at::Tensor asCompanion(const at::Tensor& tensor);

// A flagos tensor over the memory of a companion's tensor, likewise.
FLAGOS_API at::Tensor fromCompanion(const at::Tensor& tensor);

}  // namespace flagos::ops
