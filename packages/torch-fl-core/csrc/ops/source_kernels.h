// Implementations that sources other than `boxed` and `cpu` register: one function per operator, source and
// backend.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>

#include "csrc/api.h"
#include "csrc/ops/sources.h"
#include "csrc/runtime/devices.h"

namespace flagos::ops {

// Runs the operator for the arguments on top of the stack and leaves its returns there. False: it declines;
// the stack and every tensor are as they were, and the next candidate takes over.
using SourceKernel = std::function<bool(const c10::OperatorHandle&, torch::jit::Stack*)>;

// Registers, or with an empty function removes, what `source` runs for `op` on the backend in `slot` (−1: on
// all). Thread-safe; tables follow with capabilitiesChanged(). A kernel that was replaced stays alive, since a
// call may be in it.
FLAGOS_API void registerSourceKernel(Source source, OpId op, int slot, SourceKernel kernel);

// Null if there is none. Wait-free.
const SourceKernel* sourceKernel(Source source, OpId op, int slot) noexcept;

}  // namespace flagos::ops
