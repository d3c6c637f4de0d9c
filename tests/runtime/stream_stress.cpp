// Threads that open the devices, change device and stream, record and await events over streams they share,
// and draw random numbers, all at once; then a shutdown. Built with AddressSanitizer or
// ThreadSanitizer it shows races and lifetime faults; without them it still checks that every wait held and
// that no two draws overlap.
//
//   stream_stress <HAL library of the reference backend> [seconds] [threads] [seed] [abrupt]
//
// With "abrupt" the shutdown comes while the threads work. Not under ThreadSanitizer: a HAL's shutdown leaves
// it to the caller that no call is in progress, and core cannot stop a thread that is inside of one.
//
// Prints one line and exits with 0 if all is well.
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/runtime/devices.h"
#include "csrc/runtime/event.h"
#include "csrc/runtime/generator.h"
#include "csrc/runtime/stream.h"

namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "stream_stress: %s\n", what);
  std::abort();
}

// An event that any thread may wait for.
struct Shared {
  std::mutex mutex;
  flagos::Event event;
};

struct Worker {
  std::mt19937 random;
  std::vector<std::pair<uint64_t, uint64_t>> drawn;  // first, end
  uint64_t steps = 0;
  int devices = 0;

  int below(int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); }

  void step(std::vector<Shared>& shared) {
    const auto device = static_cast<c10::DeviceIndex>(below(devices));
    const c10::Stream stream =
        below(4) == 0 ? flagos::defaultStream(device) : flagos::newStream(device, -below(3));
    c10::StreamGuard guard(stream);
    require(flagos::currentDevice() == device, "a guard did not make its device current");
    require(flagos::currentStream(-1) == stream, "a guard did not make its stream current");
    c10::Event mine(flagos::kDeviceType,
                    below(2) == 0 ? c10::EventFlag::PYTORCH_DEFAULT : c10::EventFlag::BACKEND_DEFAULT);
    mine.record(stream);
    Shared& other = shared[static_cast<size_t>(device) * 4 + static_cast<size_t>(below(4))];
    {
      std::lock_guard<std::mutex> lock(other.mutex);
      other.event.block(flagos::defaultStream(static_cast<c10::DeviceIndex>(below(devices))));
      other.event.record(stream);
    }
    mine.block(flagos::defaultStream(0));
    switch (below(8)) {
      case 0:
        mine.synchronize();
        require(mine.query(), "an event is pending after its wait");
        break;
      case 1:
        flagos::synchronizeStream(stream);
        require(mine.query(), "work is pending after its stream's wait");
        break;
      case 2:
        flagos::synchronizeDevice(device);
        require(mine.query(), "work is pending after its device's wait");
        break;
      case 3:
        flagos::drainCurrentStream(flagos::deviceEntry(device));
        break;
      case 4:
        (void)flagos::backendRecords();
        break;
      default:
        (void)flagos::queryStream(stream);
        break;
    }
    auto& generator = flagos::generatorFor(std::nullopt, 0);
    const auto count = static_cast<uint64_t>(below(9) + 1);
    const uint64_t first = generator.reserve(count).second;
    drawn.emplace_back(first, first + (count + 3) / 4 * 4);
    ++steps;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: stream_stress <HAL library> [seconds] [threads] [seed] [abrupt]\n");
    return 2;
  }
  const double seconds = argc > 2 ? std::atof(argv[2]) : 2.0;
  const int threads = argc > 3 ? std::atoi(argv[3]) : 6;
  const unsigned seed = argc > 4 ? static_cast<unsigned>(std::atoi(argv[4])) : 1;
  std::vector<flagos::BackendRequest> requests(2);
  requests[0].name = "reference";
  requests[1].name = "reference:second";
  requests[0].path = requests[1].path = argv[1];
  requests[1].private_copy = true;
  flagos::setBackendRequests(requests);
  const bool abrupt = argc > 5 && std::string(argv[5]) == "abrupt";

  std::vector<Worker> workers(static_cast<size_t>(threads));
  std::atomic<bool> stop{false};
  std::atomic<int> refused{0};
  {
    std::vector<Shared> shared(static_cast<size_t>(flagos::kMaxDevices) * 4);
    std::vector<std::thread> running;
    for (int i = 0; i < threads; ++i) {
      running.emplace_back([&, i] {
        Worker& worker = workers[static_cast<size_t>(i)];
        worker.random.seed(seed * 1000 + static_cast<unsigned>(i));
        worker.devices = flagos::activate();
        try {
          while (!stop.load()) worker.step(shared);
        } catch (const c10::Error&) {
          require(flagos::isShutDown(), "a call failed before the shutdown");
          ++refused;
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    if (abrupt) {
      flagos::shutdownRuntime();  // under their hands: each must end with an error, none with a crash
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    stop.store(true);
    for (std::thread& thread : running) thread.join();
  }
  require(refused.load() == (abrupt ? threads : 0), "a thread went on after the shutdown");
  flagos::shutdownRuntime();

  std::vector<std::pair<uint64_t, uint64_t>> drawn;
  uint64_t steps = 0;
  for (const Worker& worker : workers) {
    drawn.insert(drawn.end(), worker.drawn.begin(), worker.drawn.end());
    steps += worker.steps;
  }
  std::sort(drawn.begin(), drawn.end());
  for (size_t i = 1; i < drawn.size(); ++i)
    require(drawn[i - 1].second == drawn[i].first, "two draws overlap, or leave a gap");
  std::printf("stream_stress: %d threads, %llu steps, waits held, draws disjoint\n", threads,
              static_cast<unsigned long long>(steps));
  return 0;
}
