// The boxed kernel of every routed operator, and the long way of the unboxed ones (hot.h): candidates in
// their order, with conditions, declines and errors, by the operator's schema.
#pragma once

#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "csrc/ops/op_record.h"

namespace flagos::ops {

// Runs `op` for the arguments on top of `stack` by its route; leaves its returns there.
void callRouted(const OpRecord& record, torch::jit::Stack* stack);

// Runs it by one source, whatever the route. False: the source declined, and the stack is as it was.
bool callSource(const OpRecord& record, torch::jit::Stack* stack, Source source, const DeviceEntry& device);

// The first tensor argument that is on a flagos device; undefined if there is none.
FLAGOS_API at::Tensor firstDeviceTensor(const OpRecord& record, const c10::IValue* arguments);

// The device that the call is about: of the first tensor, of a factory's device argument, or the current one.
FLAGOS_API const DeviceEntry& deviceOfCall(const OpRecord& record, const c10::IValue* arguments);

// One kernel object per operator, so that the record needs no look-up.
class RoutedKernel final : public c10::OperatorKernel {
 public:
  explicit RoutedKernel(const OpRecord& record) : record_(record) {}
  void operator()(const c10::OperatorHandle& /*op*/, c10::DispatchKeySet /*keys*/,
                  torch::jit::Stack* stack) const {
    callRouted(record_, stack);
  }

 private:
  const OpRecord& record_;
};

// For operators that were registered after core, or that have no kernel of their own on any key core knows.
void routedFallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace flagos::ops
