// Threads that allocate, hand over, record uses, free, run out of memory and empty caches at once, over the
// device and the pinned allocator. Built with AddressSanitizer or ThreadSanitizer it shows races and lifetime
// faults; without them it still checks that no two owners ever share memory and that nothing is left at the
// end.
//
//   allocator_stress <HAL library of the reference backend> [seconds] [threads] [seed]
//
// The device memory must be readable by the host. Prints one line and exits with 0 if all is well.
#include <c10/core/Allocator.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "csrc/runtime/device_allocator.h"
#include "csrc/runtime/devices.h"
#include "csrc/runtime/host_allocator.h"
#include "csrc/runtime/stream.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "allocator_stress: %s\n", what);
  std::abort();
}

// Memory with the mark of its owner at both ends.
struct Owned {
  c10::DataPtr memory;
  size_t size = 0;
  uint64_t mark = 0;

  uint64_t* first() const { return static_cast<uint64_t*>(memory.get()); }
  uint64_t* last() const { return first() + size / sizeof(uint64_t) - 1; }
  void sign(uint64_t value) {
    mark = value;
    *first() = value;
    *last() = value;
  }
  void check() const {
    require(*first() == mark && *last() == mark,
            "memory was given to two owners, or reused while a stream used it");
  }
};

// Memory that is on its way from one thread to another.
struct Exchange {
  std::mutex mutex;
  std::vector<Owned> waiting;
};

struct Worker {
  unsigned seed;
  Exchange* exchange;
  std::atomic<bool>* stop;
  std::vector<std::vector<c10::Stream>>* streams;  // of each device
  std::atomic<uint64_t>* marks;
  uint64_t steps = 0;
  uint64_t refusals = 0;

  std::mt19937 random;
  std::vector<Owned> mine;

  unsigned pick(unsigned count) { return std::uniform_int_distribution<unsigned>(0, count - 1)(random); }

  size_t someSize() {
    const unsigned kind = pick(100);
    if (kind < 60) return 16 + 16 * pick(4096);
    if (kind < 90) return kMiB / 2 + 16 * pick(200'000);
    return 12 * kMiB + 16 * pick(500'000);
  }

  void allocate() {
    const auto device = static_cast<c10::DeviceIndex>(pick(2));
    const auto& known = (*streams)[static_cast<size_t>(device)];
    flagos::setCurrentStream(known[pick(static_cast<unsigned>(known.size()))]);
    Owned fresh;
    fresh.size = someSize();
    try {
      if (pick(10) == 0) {
        fresh.memory = flagos::hostAllocator()->allocate(fresh.size);
      } else {
        fresh.memory = flagos::allocateOn(device, fresh.size);
        // Earlier work of this stream may still use the memory: only the host has to wait for it.
        flagos::synchronizeStream(flagos::currentStream(device));
      }
    } catch (const c10::OutOfMemoryError&) {
      ++refusals;  // the device is small on purpose
      mine.clear();
      return;
    }
    fresh.sign(++*marks);
    mine.push_back(std::move(fresh));
  }

  // Queues work on another stream that rewrites the mark, announces it, and frees without waiting.
  void useAndDrop(Owned owned) {
    const c10::Device device = owned.memory.device();
    if (!device.is_privateuseone()) {
      flagos::recordPinnedUse(owned.memory.get(), (*streams)[0][pick(3)]);
      return;
    }
    const c10::Stream stream = (*streams)[static_cast<size_t>(device.index())][pick(3)];
    const flagos::DeviceEntry& entry = flagos::deviceEntry(device.index());
    if (pick(2) == 0) flagos::recordStream(owned.memory, stream);
    const flagos_hal_status status =
        entry.hal->memory.fill_async(flagos::streamHandle(stream), owned.memory.get(), 0xAB, owned.size);
    require(status == FLAGOS_HAL_STATUS_OK, "a fill was refused");
    flagos::recordStream(owned.memory, stream);
  }

  void step() {
    ++steps;
    const unsigned what = pick(1000);
    if (what < 450 || mine.empty()) {
      allocate();
    } else if (what < 800) {
      const size_t which = pick(static_cast<unsigned>(mine.size()));
      std::swap(mine[which], mine.back());
      Owned owned = std::move(mine.back());
      mine.pop_back();
      owned.check();
      if (what < 550) {
        useAndDrop(std::move(owned));
      } else if (what < 650) {
        std::lock_guard<std::mutex> lock(exchange->mutex);
        exchange->waiting.push_back(std::move(owned));
      }
    } else if (what < 980) {
      std::vector<Owned> taken;
      {
        std::lock_guard<std::mutex> lock(exchange->mutex);
        taken.swap(exchange->waiting);
      }
      for (const Owned& owned : taken) owned.check();
    } else if (what < 985) {
      flagos::deviceAllocator()->emptyCache();
    } else if (what < 988) {
      flagos::hostAllocator()->empty_cache();
    } else if (what < 992) {
      require(flagos::deviceAllocator()->getDeviceStats(0).allocated_bytes[0].current >= 0,
              "a count went below zero");
    } else if (what < 994) {
      for (const auto& segment : flagos::memorySnapshot()) {
        size_t sum = 0;
        for (const auto& block : segment.blocks) sum += block.size;
        require(sum == segment.total_size, "blocks do not fill their segment");
      }
    } else if (what < 997) {
      require(flagos::isPinned(&steps) == false, "the stack is pinned");
    } else {
      mine.clear();
    }
    if (mine.size() > 40) mine.erase(mine.begin(), mine.begin() + 20);
  }

  void run() {
    random.seed(seed);
    while (!stop->load(std::memory_order_relaxed)) step();
    mine.clear();
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: allocator_stress <HAL library> [seconds] [threads] [seed]\n");
    return 2;
  }
  const double seconds = argc > 2 ? std::atof(argv[2]) : 5.0;
  const int threads = argc > 3 ? std::atoi(argv[3]) : 8;
  const unsigned seed = argc > 4 ? static_cast<unsigned>(std::atoi(argv[4])) : 1;
  setenv("FLAGOS_REFERENCE_MEMORY", "256MiB", 0);

  flagos::BackendRequest request;
  request.path = argv[1];
  request.name = "reference";
  flagos::setBackendRequests({request});
  require(flagos::activate() >= 2, "the test needs two devices");

  std::vector<std::vector<c10::Stream>> streams(2);
  for (c10::DeviceIndex device = 0; device < 2; ++device) {
    streams[static_cast<size_t>(device)] = {flagos::defaultStream(device),
                                            flagos::streamFromPool(device, false),
                                            flagos::streamFromPool(device, true)};
  }
  Exchange exchange;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> marks{0};
  std::vector<Worker> workers(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  for (size_t i = 0; i < workers.size(); ++i) {
    workers[i].seed = seed * 1000 + static_cast<unsigned>(i);
    workers[i].exchange = &exchange;
    workers[i].stop = &stop;
    workers[i].streams = &streams;
    workers[i].marks = &marks;
    running.emplace_back([&, i] { workers[i].run(); });
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  stop.store(true);
  for (std::thread& thread : running) thread.join();
  exchange.waiting.clear();

  uint64_t steps = 0;
  uint64_t refusals = 0;
  for (const Worker& worker : workers) {
    steps += worker.steps;
    refusals += worker.refusals;
  }
  flagos::deviceAllocator()->emptyCache();
  for (c10::DeviceIndex device = 0; device < 2; ++device) {
    const auto stats = flagos::deviceAllocator()->getDeviceStats(device);
    require(stats.active[0].current == 0 && stats.active_bytes[0].current == 0 &&
                stats.requested_bytes[0].current == 0,
            "blocks are still active at the end");
    require(stats.reserved_bytes[0].current == 0 && stats.segment[0].current == 0,
            "segments are left at the end");
    const auto [free, total] = flagos::memoryInfo(device);
    require(free == total, "the device has less free memory than at the start");
  }
  flagos::synchronizeDevice(0);
  flagos::synchronizeDevice(1);
  flagos::hostAllocator()->empty_cache();
  require(flagos::hostMemoryStats().allocated_bytes.current == 0, "pinned memory is left at the end");
  flagos::shutdownRuntime();
  std::printf("allocator_stress: %d threads, %llu steps, %llu out-of-memory errors, all memory given back\n",
              threads, static_cast<unsigned long long>(steps), static_cast<unsigned long long>(refusals));
  return 0;
}
