// The boxed kernel that serves every operator with a kernel for the CPU.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include "op_table.h"

namespace standin {

// Runs the CPU's kernel of `target`, which takes what is on the stack after `info`'s arguments were aliased.
void runOnHost(const OpInfo& info, const c10::OperatorHandle& target, torch::jit::Stack* stack);

// Each adds the kernels of its file.
void registerFactories(torch::Library& library);
void registerStorageOps(torch::Library& library);
void registerCopies(torch::Library& library);
void registerFused(torch::Library& library);

}  // namespace standin
