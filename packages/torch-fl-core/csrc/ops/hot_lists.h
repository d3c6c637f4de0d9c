// The operators that get an unboxed wrapper, by subject; each list is a file of its own, so that the build
// spreads over cores.
#pragma once

#include <torch/library.h>

#include <cstdint>

namespace flagos::ops {

int64_t registerHotPointwise(torch::Library& library);
int64_t registerHotActivation(torch::Library& library);
int64_t registerHotLinear(torch::Library& library);
int64_t registerHotReduction(torch::Library& library);
int64_t registerHotIndexing(torch::Library& library);
int64_t registerHotForeach(torch::Library& library);

inline int64_t registerHotOperators(torch::Library& library) {
  return registerHotPointwise(library) + registerHotActivation(library) + registerHotLinear(library) +
         registerHotReduction(library) + registerHotIndexing(library) + registerHotForeach(library);
}

}  // namespace flagos::ops
