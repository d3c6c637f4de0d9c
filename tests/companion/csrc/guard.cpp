// The device guard: how PyTorch's C++ changes devices and streams, and uses events.
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "allocator.h"
#include "devices.h"
#include "events.h"
#include "records.h"
#include "streams.h"
#include "torch_version.h"

namespace standin {
namespace {

c10::DeviceIndex indexOf(c10::Device device, const char* what) {
  TORCH_CHECK(device.type() == kType, "standin: ", what, " was given ", device, ", another device type.");
  return device.index();
}

struct StandinGuard final : public c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }

  c10::Device exchangeDevice(c10::Device device) const override {
    count("exchangeDevice");
    const c10::Device before = deviceOf(currentDevice());
    setCurrentDevice(indexOf(device, "exchangeDevice"));
    return before;
  }
  c10::Device getDevice() const override {
    count("getDevice");
    return deviceOf(currentDevice());
  }
  void setDevice(c10::Device device) const override {
    count("setDevice");
    setCurrentDevice(indexOf(device, "setDevice"));
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    count("uncheckedSetDevice");
    if (device.type() != kType) return fault("uncheckedSetDevice was given another device type");
    restoreCurrentDevice(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return standin::deviceCount(); }
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    resolveIndex(indexOf(device, "getDeviceCapability"), "getDeviceCapability");
    return {};
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    count("synchronizeDevice");
    recordWork("synchronize device", defaultStream(checkedIndex(device, "synchronizeDevice")),
               currentDevice());
  }

  c10::Stream getStream(c10::Device device) const override {
    count("getStream");
    return currentStream(indexOf(device, "getStream"));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return defaultStream(indexOf(device, "getDefaultStream"));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return pooledStream(indexOf(device, "getStreamFromGlobalPool"), high_priority);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return freshStream(indexOf(device, "getNewStream"), priority);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    count("exchangeStream");
    return standin::exchangeStream(stream);
  }
  bool queryStream(const c10::Stream& stream) const override {
    count("queryStream");
    checkStream(stream, "queryStream");
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    count("synchronizeStream");
    checkStream(stream, "synchronizeStream");
    recordWork("synchronize stream", stream, currentDevice());
  }
#if STANDIN_TORCH_AT_LEAST(2, 11)
  void* getStreamNativeHandle(const c10::Stream stream) const override { return nativeHandle(stream); }
#endif
  void recordDataPtrOnStream(const c10::DataPtr& pointer, const c10::Stream& stream) const override {
    recordStream(pointer, stream);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag flag) const override {
    recordEvent(event, stream, device, flag);
  }
  void block(void* event, const c10::Stream& stream) const override { blockOnEvent(event, stream); }
  bool queryEvent(void* event) const override { return standin::queryEvent(event); }
  void synchronizeEvent(void* event) const override { standin::synchronizeEvent(event); }
  void destroyEvent(void* event, const c10::DeviceIndex device) const noexcept override {
    standin::destroyEvent(event, device);
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex device) const override {
    return standin::elapsedTime(start, end, device);
  }
};

// Leaked: PyTorch keeps the pointer, and uses it from destructors.
[[maybe_unused]] const bool registered = [] {
  c10::impl::DeviceGuardImplRegistrar registrar(kType, new StandinGuard);
  return true;
}();

}  // namespace
}  // namespace standin
