#include "devices.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstdlib>

#include "records.h"

namespace standin {
namespace {

thread_local c10::DeviceIndex current_device = 0;
std::array<std::atomic<bool>, kMaxDevices> in_use{};

c10::DeviceIndex readCount() noexcept {
  const char* text = std::getenv("STANDIN_DEVICES");
  if (text == nullptr) return 2;
  const int count = std::atoi(text);
  return count >= 1 && count <= kMaxDevices ? static_cast<c10::DeviceIndex>(count) : 0;
}

}  // namespace

c10::DeviceIndex deviceCount() noexcept {
  static const c10::DeviceIndex count = readCount();
  return count;
}

c10::DeviceIndex checkedIndex(c10::DeviceIndex index, const char* what) {
  TORCH_CHECK(index >= 0 && index < deviceCount(), "standin: ", what, " was given the device index ",
              static_cast<int>(index), "; the devices are 0 to ", deviceCount() - 1, ".");
  return index;
}

c10::DeviceIndex resolveIndex(c10::DeviceIndex index, const char* what) {
  return index == -1 ? currentDevice() : checkedIndex(index, what);
}

c10::DeviceIndex currentDevice() noexcept { return current_device; }

void setCurrentDevice(c10::DeviceIndex index) { current_device = checkedIndex(index, "setting the device"); }

void restoreCurrentDevice(c10::DeviceIndex index) noexcept {
  if (index < 0 || index >= deviceCount()) {
    fault("the device " + std::to_string(index) + " was set unchecked; there is none");
    return;
  }
  current_device = index;
}

bool deviceInUse(c10::DeviceIndex index) noexcept { return in_use[static_cast<size_t>(index)].load(); }
void markInUse(c10::DeviceIndex index) noexcept { in_use[static_cast<size_t>(index)].store(true); }

}  // namespace standin
