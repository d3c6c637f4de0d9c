#include "csrc/runtime/thread_device.h"

#include "csrc/runtime/devices.h"

namespace flagos {
namespace detail {

__thread ThreadDevice thread_device = {0, kNotApplied};

namespace {

std::atomic<bool> in_use[kMaxDevices];

}  // namespace

c10::DeviceIndex exchangeDeviceSlow(c10::DeviceIndex index) {
  const c10::DeviceIndex before = thread_device.index;
  if (index < 0) return before;
  const DeviceEntry& entry = deviceEntry(index);
  FLAGOS_CHECK(entry, entry.hal->device.set_current(entry.local), "make the device current");
  thread_device = {index, index};
  markDeviceInUse(index);
  return before;
}

}  // namespace detail

c10::DeviceIndex currentDevice() noexcept { return detail::thread_device.index; }

void setDevice(c10::DeviceIndex index) { detail::exchangeThreadDevice(index); }

c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) { return detail::exchangeThreadDevice(index); }

void setDeviceLazily(c10::DeviceIndex index) {
  detail::ThreadDevice& current = detail::thread_device;
  if (index < 0 || index == current.applied) return;
  if (deviceInUse(index)) {
    detail::exchangeDeviceSlow(index);
    return;
  }
  // deviceEntry opens the backends and says what is wrong with the index.
  if (index >= possibleDeviceCount()) deviceEntry(index);
  current = {index, detail::kNotApplied};
}

void restoreDevice(c10::DeviceIndex index) noexcept {
  detail::ThreadDevice& current = detail::thread_device;
  if (index < 0 || index == current.applied) return;
  const int size = detail::device_table_size.load(std::memory_order_acquire);
  bool told = false;
  if (index < size) {
    const DeviceEntry& entry = detail::device_table[index];
    told = entry.hal->device.set_current(entry.local) == FLAGOS_HAL_STATUS_OK;
  }
  current = {index, told ? index : detail::kNotApplied};
}

bool deviceInUse(c10::DeviceIndex index) noexcept {
  return index >= 0 && index < kMaxDevices && detail::in_use[index].load(std::memory_order_relaxed);
}

void markDeviceInUse(c10::DeviceIndex index) noexcept {
  detail::in_use[index].store(true, std::memory_order_relaxed);
}

}  // namespace flagos
