#include "csrc/runtime/thread_device.h"

#include "csrc/runtime/companion.h"
#include "csrc/runtime/devices.h"

namespace flagos {
namespace detail {

const BackendRecord* followed = nullptr;  // written before the table of devices is published

__thread ThreadDevice thread_device = {0, kNotApplied};

namespace {

std::atomic<bool> in_use[kMaxDevices];

// Tells whoever keeps the chip's current device.
flagos_hal_status applyDevice(const DeviceEntry& entry) {
  if (entry.companion == nullptr) return entry.hal->device.set_current(entry.local);
  entry.companion->guard->setDevice(companionDevice(entry));
  return FLAGOS_HAL_STATUS_OK;
}

// What `applied` becomes when the device has been told: a followed backend is asked every time.
c10::DeviceIndex appliedIndex(const DeviceEntry& entry) {
  return entry.backend == followed ? kNotApplied : entry.index;
}

}  // namespace

void followCompanion(const BackendRecord& record) {
  if (record.companion != nullptr && record.device_count > 1 && followed == nullptr) followed = &record;
}

c10::DeviceIndex followedDevice(c10::DeviceIndex index) noexcept {
  const int local = index - followed->first_device;
  if (local < 0 || local >= followed->device_count) return index;
  return static_cast<c10::DeviceIndex>(followed->first_device +
                                       followed->companion->guard->getDevice().index());
}

c10::DeviceIndex exchangeDeviceSlow(c10::DeviceIndex index) {
  const c10::DeviceIndex before = currentIndex();
  if (index < 0) return before;
  const DeviceEntry& entry = deviceEntry(index);
  FLAGOS_CHECK(entry, applyDevice(entry), "make the device current");
  thread_device = {index, appliedIndex(entry)};
  markDeviceInUse(index);
  return before;
}

}  // namespace detail

c10::DeviceIndex currentDevice() noexcept { return detail::currentIndex(); }

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
  c10::DeviceIndex applied = detail::kNotApplied;
  if (index < size) {
    const DeviceEntry& entry = detail::device_table[index];
    if (entry.companion != nullptr) {
      entry.companion->guard->uncheckedSetDevice(companionDevice(entry));
      applied = detail::appliedIndex(entry);
    } else if (entry.hal->device.set_current(entry.local) == FLAGOS_HAL_STATUS_OK) {
      applied = index;
    }
  }
  current = {index, applied};
}

bool deviceInUse(c10::DeviceIndex index) noexcept {
  return index >= 0 && index < kMaxDevices && detail::in_use[index].load(std::memory_order_relaxed);
}

void markDeviceInUse(c10::DeviceIndex index) noexcept {
  detail::in_use[index].store(true, std::memory_order_relaxed);
}

}  // namespace flagos
