// The operators that get an unboxed wrapper, by subject; each list is a file of its own, so that the build
// spreads over cores.
#pragma once

#include <torch/library.h>

#include <cstdint>

#include "csrc/ops/op_record.h"

namespace flagos::ops {

// Where an unboxed wrapper is registered: for the device, for its double, and in the place of autograd's kernel.
class HotLibraries {
 public:
  // With `backend`, only operators that have a kernel for this key.
  explicit HotLibraries(c10::DispatchKey backend = c10::DispatchKey::Undefined) : backend_(backend) {}
  // Whether the operator is to get a wrapper: it has none, and the backend knows it.
  bool wants(const c10::OperatorHandle& op) const;
  void add(const OpRecord& record, torch::CppFunction wrapper, torch::CppFunction double_wrapper,
           torch::CppFunction autograd);

 private:
  c10::DispatchKey backend_;
};

int64_t registerHotPointwise(HotLibraries& libraries);
int64_t registerHotActivation(HotLibraries& libraries);
int64_t registerHotLinear(HotLibraries& libraries);
int64_t registerHotReduction(HotLibraries& libraries);
int64_t registerHotIndexing(HotLibraries& libraries);
int64_t registerHotForeach(HotLibraries& libraries);
int64_t registerHotCompanion(HotLibraries& libraries);

inline int64_t registerHotOperators(HotLibraries& libraries) {
  return registerHotPointwise(libraries) + registerHotActivation(libraries) + registerHotLinear(libraries) +
         registerHotReduction(libraries) + registerHotIndexing(libraries) + registerHotForeach(libraries);
}

}  // namespace flagos::ops
