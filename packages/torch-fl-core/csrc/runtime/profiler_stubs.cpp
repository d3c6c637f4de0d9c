// What PyTorch's profiler asks of a device: events around each operator, from which it tells the time on the
// device (torch.profiler with ProfilerActivity.PrivateUse1, autograd.profiler with use_device).
#include <c10/core/Stream.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <chrono>
#include <memory>

#include "csrc/runtime/devices.h"
#include "csrc/runtime/event.h"
#include "csrc/runtime/stream.h"

namespace flagos {

namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

class FlagosProfilerStubs final : public torch::profiler::impl::ProfilerStubs {
 public:
  // All of the outputs may be null.
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    const c10::DeviceIndex current = resolveIndex(-1);
    if (device != nullptr) *device = current;
    auto made = std::make_shared<Event>(/*timing=*/true);
    made->record(currentStream(current));
    if (event != nullptr) *event = std::move(made);
    if (cpu_ns != nullptr) {
      const auto now = std::chrono::system_clock::now().time_since_epoch();
      *cpu_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    }
  }

  // Microseconds; the profiler has called synchronize before.
  float elapsed(const ProfilerVoidEventStub* first, const ProfilerVoidEventStub* second) const override {
    const auto& start = *static_cast<const Event*>(first->get());
    const auto& end = *static_cast<const Event*>(second->get());
    start.synchronize();
    end.synchronize();
    return static_cast<float>(start.elapsedMs(end) * 1000.0);
  }

  // The HAL has no marks for the vendor's own tools.
  void mark(const char* /*name*/) const override {}
  void rangePush(const char* /*name*/) const override {}
  void rangePop() const override {}

  bool enabled() const override { return true; }

  void onEachDevice(std::function<void(int)> op) const override {
    for (c10::DeviceIndex device = 0; device < deviceCount(); ++device) op(device);
  }

  void synchronize() const override {
    for (c10::DeviceIndex device = 0; device < deviceCount(); ++device) {
      if (deviceInUse(device)) synchronizeDevice(device);
    }
  }
};

[[maybe_unused]] const bool registered = [] {
  static FlagosProfilerStubs stubs;  // kept by pointer for the life of the process
  torch::profiler::impl::registerPrivateUse1Methods(&stubs);
  return true;
}();

}  // namespace

}  // namespace flagos
