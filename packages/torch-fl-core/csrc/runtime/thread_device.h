// Each thread's current device. Private to the runtime: others ask currentDevice() and exchangeDevice().
#pragma once

#include <c10/core/Device.h>
#include <c10/macros/Macros.h>

namespace flagos {
struct BackendRecord;
}

namespace flagos::detail {

// `applied` while the HAL has to be told (again). Not −1, which callers pass for "the current device".
inline constexpr c10::DeviceIndex kNotApplied = -2;

// Always: applied == index, or applied == kNotApplied. One comparison with `applied` decides the common case,
// the device that is current already.
struct ThreadDevice {
  c10::DeviceIndex index;
  c10::DeviceIndex applied;
};

// __thread, not thread_local: with a constant initialiser, and no wrapper function between the guard and the
// value.
extern __attribute__((visibility("hidden"))) __thread ThreadDevice thread_device;

// The backend whose companion has several devices: which of them is current is the companion's to say, since
// programs change it through its own interface as well. Null, in most processes: a companion with one device
// has no choice.
extern __attribute__((visibility("hidden"))) const BackendRecord* followed;
void followCompanion(const BackendRecord& record);
// The current device, where it may be one of a followed backend.
c10::DeviceIndex followedDevice(c10::DeviceIndex index) noexcept;

inline c10::DeviceIndex currentIndex() noexcept {
  const c10::DeviceIndex index = thread_device.index;
  return C10_LIKELY(followed == nullptr) ? index : followedDevice(index);
}

// The rest of exchangeDevice, where `index` differs from what was applied.
c10::DeviceIndex exchangeDeviceSlow(c10::DeviceIndex index);

inline c10::DeviceIndex exchangeThreadDevice(c10::DeviceIndex index) {
  const ThreadDevice& current = thread_device;
  if (C10_LIKELY(index == current.applied)) return index;
  return exchangeDeviceSlow(index);
}

}  // namespace flagos::detail
