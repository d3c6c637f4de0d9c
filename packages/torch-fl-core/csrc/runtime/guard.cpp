// The device guard: how PyTorch's C++ changes devices and streams, and uses events.
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <memory>

#include "csrc/runtime/device_allocator.h"
#include "csrc/runtime/device_properties.h"
#include "csrc/runtime/devices.h"
#include "csrc/runtime/event.h"
#include "csrc/runtime/stream.h"
#include "csrc/runtime/thread_device.h"
#include "csrc/torch_version.h"

namespace flagos {
namespace {

c10::Device flagosDevice(c10::DeviceIndex index) { return c10::Device(kDeviceType, index); }

const Event& asEvent(void* event) { return *static_cast<const Event*>(event); }

struct FlagosGuard final : public c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDeviceType; }

  // Devices. PyTorch passes −1 for "the current one"; answers always carry a real index. The four methods
  // below run several times per operator: where the device stays they are one thread-local read, and make no
  // new c10::Device, whose constructor checks itself.
  c10::Device exchangeDevice(c10::Device device) const override {
    if (C10_LIKELY(device.index() == detail::thread_device.applied)) return device;
    return flagosDevice(detail::exchangeDeviceSlow(device.index()));
  }
  c10::Device getDevice() const override { return flagosDevice(detail::currentIndex()); }
  void setDevice(c10::Device device) const override {
    if (device.index() != detail::thread_device.applied) setDeviceLazily(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() != detail::thread_device.applied) restoreDevice(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return possibleDeviceCount(); }
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    return deviceCapability(device.index());
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override { flagos::synchronizeDevice(device); }

  // Streams.
  c10::Stream getStream(c10::Device device) const override { return currentStream(device.index()); }
  c10::Stream getDefaultStream(c10::Device device) const override { return defaultStream(device.index()); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return streamFromPool(device.index(), high_priority);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return newStream(device.index(), priority);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchangeCurrentStream(stream); }
  bool queryStream(const c10::Stream& stream) const override { return flagos::queryStream(stream); }
  void synchronizeStream(const c10::Stream& stream) const override { flagos::synchronizeStream(stream); }
#if FLAGOS_TORCH_AT_LEAST(2, 11)
  void* getStreamNativeHandle(const c10::Stream stream) const override { return nativeHandle(stream); }
#endif
#if FLAGOS_TORCH_AT_LEAST(2, 12)
  bool isStreamCapturing(const c10::Stream& stream) const override {
    return flagos::isStreamCapturing(stream);
  }
#endif
  void recordDataPtrOnStream(const c10::DataPtr& pointer, const c10::Stream& stream) const override {
    recordStream(pointer, stream);
  }

  // Events. PyTorch holds ours as void*, makes none itself, and hands null for one never recorded.
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(device < 0 || device == stream.device_index(),
                "flagos: an event of flagos:", static_cast<int>(device),
                " was recorded on a stream of flagos:", static_cast<int>(stream.device_index()),
                ". An event belongs to the device that it was recorded on first; make another one.");
    if (*event != nullptr) {
      static_cast<Event*>(*event)->record(stream);
      return;
    }
    TORCH_CHECK(flag == c10::EventFlag::PYTORCH_DEFAULT || flag == c10::EventFlag::BACKEND_DEFAULT,
                "flagos: an event was made with a flag that is not known: ", static_cast<int>(flag), ".");
    auto fresh = std::make_unique<Event>(flag == c10::EventFlag::BACKEND_DEFAULT);
    fresh->record(stream);
    *event = fresh.release();
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) asEvent(event).block(stream);
  }
  bool queryEvent(void* event) const override { return event == nullptr || asEvent(event).query(); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) asEvent(event).synchronize();
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "flagos: the time between two events was asked for before both were recorded.");
    return asEvent(start).elapsedMs(asEvent(end));
  }
};

// When the library is loaded. Leaked: PyTorch keeps the pointer, and uses it from destructors. Another
// plugin's guard is left alone: the device type is its, and claiming the name says so in words.
[[maybe_unused]] const bool registered = [] {
  if (c10::impl::hasDeviceGuardImpl(kDeviceType)) return false;
  c10::impl::DeviceGuardImplRegistrar registrar(kDeviceType, new FlagosGuard);
  return true;
}();

}  // namespace
}  // namespace flagos
