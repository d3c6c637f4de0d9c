// Cost of device memory: a hit of the caching allocator (allocate and free, with the DataPtr) against the
// HAL's own allocate and release, on one thread and on eight. Prints one JSON object per line.
//
//   allocator_bench <HAL library> [backend name] [seconds per figure]
//
// Links with libtorch_fl; benchmarks/native.py builds and runs it.
#include <c10/core/Allocator.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "csrc/runtime/device_allocator.h"
#include "csrc/runtime/devices.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRepeats = 7;  // the median is reported

double nanosecondsBetween(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::nano>(end - start).count();
}

double cpuNanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

struct Cost {
  double wall;  // elapsed nanoseconds divided by the calls of all threads
  double cpu;   // processor time of the threads for one call: not blurred by what else the machine does
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

using Pair = std::function<void(int)>;  // one allocation and its free, on the thread of that number

Cost measureOnce(int threads, double seconds, const Pair& pair) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::atomic<bool> stop{false};
  std::atomic<long> calls{0};
  std::atomic<long> cpu{0};
  std::vector<std::thread> workers;
  for (int thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      for (int i = 0; i < 64; ++i) pair(thread);
      ++ready;
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      long mine = 0;
      const double before = cpuNanoseconds();
      while (!stop.load(std::memory_order_relaxed)) {
        for (int i = 0; i < 64; ++i) pair(thread);
        mine += 64;
      }
      cpu += static_cast<long>(cpuNanoseconds() - before);
      calls += mine;
    });
  }
  while (ready.load() != threads) std::this_thread::yield();
  const auto start = Clock::now();
  go.store(true, std::memory_order_release);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  stop.store(true);
  for (std::thread& worker : workers) worker.join();
  const auto total = static_cast<double>(calls.load());
  return {nanosecondsBetween(start, Clock::now()) / total, static_cast<double>(cpu.load()) / total};
}

// The medians of each of `pairs`. They take turns, so that a change in what else the machine does meets all
// of them.
std::vector<Cost> measure(int threads, double seconds, const std::vector<Pair>& pairs) {
  std::vector<std::vector<double>> walls(pairs.size());
  std::vector<std::vector<double>> cpus(pairs.size());
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    for (size_t i = 0; i < pairs.size(); ++i) {
      const Cost cost = measureOnce(threads, seconds, pairs[i]);
      walls[i].push_back(cost.wall);
      cpus[i].push_back(cost.cpu);
    }
  }
  std::vector<Cost> costs;
  for (size_t i = 0; i < pairs.size(); ++i) costs.push_back({median(walls[i]), median(cpus[i])});
  return costs;
}

void report(const char* what, const char* pattern, size_t bytes, int threads, const Cost& cost) {
  std::printf(
      "{\"benchmark\": \"allocator\", \"case\": \"%s\", \"pattern\": \"%s\", \"bytes\": %zu, \"threads\": "
      "%d, "
      "\"ns_per_pair\": %.1f, \"cpu_ns_per_pair\": %.1f}\n",
      what, pattern, bytes, threads, cost.wall, cost.cpu);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: allocator_bench <HAL library> [backend name] [seconds per figure]\n");
    return 2;
  }
  const double seconds = argc > 3 ? std::atof(argv[3]) : 0.2;
  flagos::BackendRequest request;
  request.path = argv[1];
  request.name = argc > 2 ? argv[2] : "reference";
  flagos::setBackendRequests({request});
  flagos::activate();
  const flagos::DeviceEntry& device = flagos::deviceEntry(0);

  for (const int threads : {1, 8}) {
    for (const size_t bytes : {size_t{1} << 10, size_t{64} << 10, size_t{4} << 20}) {
      const Pair caching = [&](int) { const c10::DataPtr pointer = flagos::allocateOn(0, bytes); };
      const Pair raw = [&](int) {
        void* pointer = nullptr;
        if (device.hal->memory.allocate(device.local, bytes, &pointer) != FLAGOS_HAL_STATUS_OK) std::abort();
        if (device.hal->memory.release(device.local, pointer) != FLAGOS_HAL_STATUS_OK) std::abort();
      };
      const std::vector<Cost> costs = measure(threads, seconds, {caching, raw});
      report("caching", "allocate, free", bytes, threads, costs[0]);
      report("hal", "allocate, free", bytes, threads, costs[1]);
    }
    // Sixteen live blocks of mixed sizes per thread, the oldest replaced at each call: splits and merges all
    // the time.
    std::vector<std::vector<c10::DataPtr>> live(static_cast<size_t>(threads));
    for (auto& mine : live) mine.resize(16);
    std::vector<unsigned> turn(static_cast<size_t>(threads) * 16, 0);  // 64 bytes apart
    const Pair replace = [&](int thread) {
      unsigned& now = turn[static_cast<size_t>(thread) * 16];
      ++now;
      c10::DataPtr& slot = live[static_cast<size_t>(thread)][now % 16];
      slot = c10::DataPtr();
      slot = flagos::allocateOn(0, size_t{512} << (now * 7 % 13));
    };
    report("caching", "sixteen live blocks of mixed sizes", 0, threads,
           measure(threads, seconds, {replace})[0]);
  }
  flagos::shutdownRuntime();
  return 0;
}
