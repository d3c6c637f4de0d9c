// The devices of the stand-in: how many, which one is current on a thread, what was asked of them.
//
// The stand-in is a complete PyTorch device over host memory, under the device type HPU, which no build of
// PyTorch serves. Core's companion mode is tested against it where there is no GPU. It is strict: what a CUDA
// device would answer with undefined behaviour is an error with words here.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace standin {

inline constexpr c10::DeviceType kType = c10::DeviceType::HPU;
inline constexpr c10::DeviceIndex kMaxDevices = 8;

// STANDIN_DEVICES, default 2.
c10::DeviceIndex deviceCount() noexcept;

inline c10::Device deviceOf(c10::DeviceIndex index) { return c10::Device(kType, index); }

// The index if it names a device; refuses −1, as CUDA does.
c10::DeviceIndex checkedIndex(c10::DeviceIndex index, const char* what);
// Likewise, but −1 stands for the current device.
c10::DeviceIndex resolveIndex(c10::DeviceIndex index, const char* what);

c10::DeviceIndex currentDevice() noexcept;  // of this thread
void setCurrentDevice(c10::DeviceIndex index);
void restoreCurrentDevice(c10::DeviceIndex index) noexcept;  // a bad index is a fault

// Makes a device current for a scope, as a CUDA kernel's own guard does.
class DeviceScope {
 public:
  explicit DeviceScope(c10::DeviceIndex index) : before_(currentDevice()) { setCurrentDevice(index); }
  ~DeviceScope() { restoreCurrentDevice(before_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  c10::DeviceIndex before_;
};

// Whether memory, streams or kernels of the device were used: CUDA's "primary context".
bool deviceInUse(c10::DeviceIndex index) noexcept;
void markInUse(c10::DeviceIndex index) noexcept;

}  // namespace standin
