// The boxed kernel of the source `cpu`: any operator with a CPU kernel, by its schema.
#pragma once

#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "csrc/ops/op_record.h"

namespace flagos::ops {

// Runs `op` on the host for the arguments on top of `stack`; leaves its returns there.
void callHostBoxed(const OpRecord& record, const c10::OperatorHandle& op, torch::jit::Stack* stack);

// One kernel object per operator, so that the record needs no look-up.
class HostKernel final : public c10::OperatorKernel {
 public:
  explicit HostKernel(const OpRecord& record) : record_(record) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/,
                  torch::jit::Stack* stack) const {
    callHostBoxed(record_, op, stack);
  }

 private:
  const OpRecord& record_;
};

// For operators that were registered after core, or that have no kernel of their own on any key core knows.
void hostFallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace flagos::ops
