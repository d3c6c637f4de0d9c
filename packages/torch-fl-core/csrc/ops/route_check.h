// Comparing sources: under FLAGOS_ROUTE_CHECK every operator runs a second time by another source, and the
// results are compared.
#pragma once

#include <ATen/core/stack.h>

#include <string>
#include <vector>

#include "csrc/api.h"
#include "csrc/ops/op_record.h"
#include "csrc/runtime/devices.h"

namespace flagos::ops {

FLAGOS_API void setRouteCheck(bool on) noexcept;
FLAGOS_API bool routeCheck() noexcept;

struct RouteDifference {
  std::string op;
  std::string source;     // that served the call
  std::string reference;  // that it was compared with
  std::string device;
  std::string arguments;  // in words
  std::string what;       // differs, and by how much
};
// The operators that differed, the first call of each, in order.
FLAGOS_API std::vector<RouteDifference> routeDifferences();
FLAGOS_API void clearRouteDifferences();

// One compared call: made before the operator runs, when its arguments are still as they were.
class RouteCheck {
 public:
  RouteCheck(const OpRecord& record, const torch::jit::Stack& stack);
  // After it: runs the other source on the copies and writes a difference down. Never throws for one.
  void compare(const torch::jit::Stack& stack, Source source, const DeviceEntry& device);

 private:
  const OpRecord& record_;
  bool active_ = false;
  torch::jit::Stack originals_;  // the arguments themselves: what the operator wrote is read from them
  torch::jit::Stack copies_;
};

// A candidate that raised where its table lets the next one take over: written down once per operator.
void noteCandidateError(OpId op, Source source, const std::string& error);

}  // namespace flagos::ops
