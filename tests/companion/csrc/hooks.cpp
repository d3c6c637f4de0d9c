// The hooks: what PyTorch asks of an accelerator outside of kernels.
#include <ATen/detail/HPUHooksInterface.h>

#include "allocator.h"
#include "devices.h"
#include "generator.h"
#include "pinned.h"
#include "records.h"

namespace at {

// PyTorch looks for the class by this name, once; a library that is loaded after that is never asked.
struct HPUHooks final : public HPUHooksInterface {
  explicit HPUHooks(HPUHooksArgs) {}

  void init() const override { standin::count("init"); }
  bool hasHPU() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return standin::deviceCount() > 0; }
  bool hasPrimaryContext(DeviceIndex device) const override {
    return standin::deviceInUse(standin::checkedIndex(device, "hasPrimaryContext"));
  }

  DeviceIndex deviceCount() const override { return standin::deviceCount(); }
  void setCurrentDevice(DeviceIndex device) const override { standin::setCurrentDevice(device); }
  DeviceIndex getCurrentDevice() const override { return standin::currentDevice(); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const DeviceIndex before = standin::currentDevice();
    standin::setCurrentDevice(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }

  bool isPinnedPtr(const void* pointer) const override { return standin::isPinned(pointer); }
  Allocator* getPinnedMemoryAllocator() const override { return standin::pinnedAllocator(); }
  Device getDeviceFromPtr(void* pointer) const override {
    const DeviceIndex device = standin::ownerOf(pointer, 1);
    TORCH_CHECK(device >= 0,
                "The specified pointer resides on host memory and is not registered with any "
                "HPU device (standin).");
    return standin::deviceOf(device);
  }

  const Generator& getDefaultGenerator(DeviceIndex device) const override {
    return standin::defaultGenerator(device);
  }
  Generator getNewGenerator(DeviceIndex device) const override { return standin::newGenerator(device); }
};

REGISTER_HPU_HOOKS(HPUHooks)

}  // namespace at
