// The stress of the reference HAL (reference_stress.cpp) through core's loader, validating and tracing
// layers: the layers' own state under many threads, and no complaint about what is right. Built with
// csrc/hal/*.cpp:
//
//   ./layers_stress libflagos_hal_reference.so [rounds] [threads]
#include "csrc/hal/layers_api.h"

#define main reference_stress_main
#include "reference_stress.cpp"
#undef main

namespace {
const char* library = nullptr;
const flagos_hal_api* layered = nullptr;
}  // namespace

extern "C" flagos_hal_status flagos_hal_query(uint32_t, uint32_t, const flagos_hal_api** out_api) {
  constexpr uint32_t kFlags = FLAGOS_LAYERS_VALIDATE | FLAGOS_LAYERS_TRACE | FLAGOS_LAYERS_QUIET;
  *out_api = layered = flagos_layers_open("reference", library, kFlags, "/dev/null");
  if (layered) return FLAGOS_HAL_STATUS_OK;
  std::fprintf(stderr, "%s\n", flagos_layers_error());
  return FLAGOS_HAL_STATUS_UNKNOWN;
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  library = argv[1];
  const int status = reference_stress_main(argc - 1, argv + 1);
  if (status != 0) return status;
  // Each of the three sessions leaves an allocation and a stream behind.
  const unsigned long long expected = refusals.load() + 3 * 2;
  const unsigned long long found = flagos_layers_violations(layered);
  if (found != expected) {
    std::fprintf(stderr, "the layer found %llu violations, expected %llu\n", found, expected);
    return 1;
  }
  std::printf("validating layer: no false complaint\n");
  return 0;
}
