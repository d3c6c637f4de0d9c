// Cost of what every operator call pays: the router's look-up, a guard that changes nothing, the device
// table, the current stream. Prints one JSON object per line, nanoseconds of processor time per call, the
// median of 15 repetitions.
//
//   hot_path_bench <HAL library>
//
// Links with libtorch_fl; benchmarks/native.py builds and runs it.
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

#include "csrc/ops/counters.h"
#include "csrc/ops/router.h"
#include "csrc/runtime/device_allocator.h"
#include "csrc/runtime/devices.h"

namespace {

constexpr int kRepeats = 15;
constexpr int kCalls = 200'000;

double nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Makes the compiler believe that `value` is used, and that memory may have changed.
template <typename T>
inline void use(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

template <typename Call>
void measure(const char* name, Call&& call) {
  std::vector<double> rounds;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double begin = nanoseconds();
    for (int i = 0; i < kCalls; ++i) call(i);
    rounds.push_back((nanoseconds() - begin) / kCalls);
  }
  std::sort(rounds.begin(), rounds.end());
  std::printf("{\"case\": \"%s\", \"ns\": %.2f}\n", name, rounds[rounds.size() / 2]);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: hot_path_bench <HAL library>\n");
    return 2;
  }
  flagos::BackendRequest request;
  request.path = argv[1];
  request.name = "reference";
  flagos::setBackendRequests({request});
  if (flagos::activate() < 2) {
    std::fprintf(stderr, "needs two devices\n");
    return 1;
  }

  // Operators one after the other, as a program calls them: not the same cache line each time.
  std::vector<flagos::ops::OpId> ids;
  for (const char* name : {"aten::add.bench", "aten::mm.bench", "aten::mul.bench", "aten::sum.bench",
                           "aten::view.bench", "aten::cat.bench", "aten::exp.bench", "aten::sub.bench"}) {
    ids.push_back(flagos::ops::opId(name));
  }
  const flagos::DeviceEntry& device = flagos::deviceEntry(0);
  const c10::impl::DeviceGuardImplInterface* guard = c10::impl::getDeviceGuardImpl(flagos::kDeviceType);
  const c10::Device first(flagos::kDeviceType, 0);
  const c10::Device second(flagos::kDeviceType, 1);
  guard->setDevice(first);

  measure("empty loop", [](int i) { use(i); });
  measure("router look-up", [&](int i) { use(flagos::ops::route(ids[static_cast<size_t>(i) & 7], device)); });
  measure("router look-up and count", [&](int i) {
    const flagos::ops::OpId id = ids[static_cast<size_t>(i) & 7];
    flagos::ops::countCall(id, flagos::ops::route(id, device).source(), device.index);
  });
  measure("entry of a device", [&](int) { use(&flagos::deviceEntry(0)); });
  measure("guard: exchange of the same device", [&](int) { use(guard->exchangeDevice(first)); });
  measure("guard: whole scope, same device", [&](int) {
    const c10::DeviceGuard scope(first);
    use(scope);
  });
  measure("guard: whole scope, other device", [&](int) {
    const c10::DeviceGuard scope(second);
    use(scope);
  });
  measure("current stream", [&](int) { use(guard->getStream(first)); });
  measure("allocator hit and free, 512 bytes",
          [&](int) { const c10::DataPtr pointer = flagos::allocateOn(0, 512); });
  flagos::shutdownRuntime();
  return 0;
}
