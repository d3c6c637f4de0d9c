// Host time of the HAL functions on the per-operator path, of any HAL library:
//
//   g++ -std=c++17 -O2 -I packages/torch-fl-core/include tests/hal/hal_bench.cpp -ldl -o hal_bench
//   ./hal_bench libflagos_hal_reference.so
//
// Prints one JSON object: nanoseconds per call, the median of 9 rounds, on an idle device 0. Of the calling
// thread's processor time, so that a busy machine does not show; "(elapsed)" marks what waits for the device,
// by the clock.
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "flagos/hal.h"

namespace {

const flagos_hal_api* hal = nullptr;

double nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

template <typename Call>
void measure(const char* name, int calls, Call&& call, bool last = false) {
  const clockid_t clock = std::strstr(name, "(elapsed)") ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
  std::vector<double> rounds;
  for (int round = 0; round < 9; ++round) {
    const double begin = nanoseconds(clock);
    for (int i = 0; i < calls; ++i) {
      if (call() != FLAGOS_HAL_STATUS_OK) {
        std::fprintf(stderr, "%s failed\n", name);
        return;
      }
    }
    rounds.push_back((nanoseconds(clock) - begin) / calls);
  }
  std::sort(rounds.begin(), rounds.end());
  std::printf("  \"%s\": %.1f%s\n", name, rounds[rounds.size() / 2], last ? "" : ",");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: %s <HAL library>\n", argv[0]), 2;
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  const auto query = reinterpret_cast<flagos_hal_query_fn>(dlsym(library, FLAGOS_HAL_QUERY_SYMBOL));
  if (!query || query(FLAGOS_HAL_ABI_MAJOR, FLAGOS_HAL_ABI_MINOR, &hal) != FLAGOS_HAL_STATUS_OK) return 1;
  if (hal->system->init() != FLAGOS_HAL_STATUS_OK) return 1;

  flagos_hal_stream *stream = nullptr, *other = nullptr;
  flagos_hal_event *event = nullptr, *timed = nullptr;
  void *memory = nullptr, *second = nullptr;
  int32_t device = 0;
  hal->stream->create(0, nullptr, &stream);
  hal->stream->create(0, nullptr, &other);
  hal->event->create(0, 0, &event);
  hal->event->create(0, FLAGOS_HAL_EVENT_TIMING, &timed);
  hal->memory->allocate(0, 1 << 20, &memory);
  hal->memory->allocate(0, 1 << 20, &second);

  std::printf("{\n");
  measure("device.set_current", 1000000, [&] { return hal->device->set_current(0); });
  measure("device.get_current", 1000000, [&] { return hal->device->get_current(&device); });
  measure("device.health", 1000000, [&] { return hal->device->health(0); });
  measure("stream.query", 1000000, [&] { return hal->stream->query(stream); });
  measure("stream.synchronize", 1000000, [&] { return hal->stream->synchronize(stream); });
  measure("stream.default_stream", 1000000, [&] { return hal->stream->default_stream(0, &other); });
  measure("event.record", 1000000, [&] { return hal->event->record(event, stream); });
  measure("event.record timed", 300000, [&] { return hal->event->record(timed, stream); });
  measure("event.query", 1000000, [&] { return hal->event->query(event); });
  measure("stream.wait_event", 1000000, [&] { return hal->stream->wait_event(stream, event); });
  measure("memory.pointer_info", 1000000, [&] {
    flagos_hal_pointer_info info = {};
    info.struct_size = sizeof(info);
    return hal->memory->pointer_info(memory, &info);
  });
  measure("memory.copy 256 B", 300000,
          [&] { return hal->memory->copy(0, memory, second, 256, FLAGOS_HAL_COPY_DEVICE_TO_DEVICE); });
  measure("memory.copy_async 256 B + stream.synchronize (elapsed)", 2000, [&] {
    hal->memory->copy_async(stream, memory, second, 256, FLAGOS_HAL_COPY_DEVICE_TO_DEVICE);
    return hal->stream->synchronize(stream);
  });
  measure("memory.copy_async 256 B × 100 + stream.synchronize (elapsed)", 200, [&] {
    for (int i = 0; i < 100; ++i)
      hal->memory->copy_async(stream, memory, second, 256, FLAGOS_HAL_COPY_DEVICE_TO_DEVICE);
    return hal->stream->synchronize(stream);
  });
  measure("memory.allocate + release 2 MiB", 5000, [&] {
    void* block = nullptr;
    hal->memory->allocate(0, 2 << 20, &block);
    return hal->memory->release(0, block);
  });
  measure(
      "memory.allocate + release 512 B", 100000,
      [&] {
        void* block = nullptr;
        hal->memory->allocate(0, 512, &block);
        return hal->memory->release(0, block);
      },
      true);
  std::printf("}\n");
  return hal->system->shutdown() == FLAGOS_HAL_STATUS_OK ? 0 : 1;
}
