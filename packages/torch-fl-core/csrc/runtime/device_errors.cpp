// The messages of failed HAL calls and bad device indices.
#include <c10/util/Exception.h>

#include <array>
#include <mutex>
#include <sstream>
#include <string>

#include "csrc/runtime/devices.h"

namespace flagos {
namespace {

// What happened first to each device that is lost: later failures are its echoes and say nothing.
struct FirstFailures {
  std::mutex mutex;  // guards text
  std::array<std::string, kMaxDevices> text;
};

FirstFailures& firstFailures() {
  static auto* instance = new FirstFailures;
  return *instance;
}

// Keeps `text` if it is the device's first failure. Returns the one before it, empty if there was none.
std::string rememberFailure(c10::DeviceIndex index, const std::string& text) {
  std::lock_guard<std::mutex> lock(firstFailures().mutex);
  std::string& first = firstFailures().text[static_cast<size_t>(index)];
  if (!first.empty()) return first;
  first = text;
  return {};
}

// The vendor's own number, if the detail that the library kept belongs to this failure.
int32_t vendorCode(const hal::Tables& tables, flagos_hal_status status) {
  flagos_hal_error error{};
  error.struct_size = sizeof(error);
  if (tables.system.last_error(&error) != FLAGOS_HAL_STATUS_OK || error.status != status) return status;
  return error.vendor_code != 0 ? static_cast<int32_t>(error.vendor_code) : status;
}

}  // namespace

std::string describeDevice(const DeviceEntry& device) {
  std::ostringstream text;
  text << "flagos:" << static_cast<int>(device.index) << " (" << device.backend->request.name << ", local "
       << device.local << ")";
  return text.str();
}

void throwHalError(const DeviceEntry& device, flagos_hal_status status, const char* what) {
  const hal::Tables& tables = *device.hal;
  const int32_t code = vendorCode(tables, status);
  const std::string place = describeDevice(device);
  const std::string call = hal::describeFailure(tables, device.backend->request.name, status);
  const std::string failure = "cannot " + std::string(what) + " on " + place + ": " + call;
  std::string message = "flagos: " + failure;
  const c10::SourceLocation location{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  switch (status) {
    case FLAGOS_HAL_STATUS_OUT_OF_MEMORY:
      throw c10::OutOfMemoryError(location, message);
    case FLAGOS_HAL_STATUS_DEVICE_LOST:
    case FLAGOS_HAL_STATUS_UNKNOWN: {
      const std::string first = rememberFailure(device.index, failure);
      if (status == FLAGOS_HAL_STATUS_DEVICE_LOST) {
        if (!first.empty() && first != failure) message += "\nThe first failure on this device was: " + first;
        message +=
            "\nThe device cannot be used any more in this process. Save what is on other devices, then "
            "restart the process.";
      }
      throw c10::AcceleratorError(location, code, message);
    }
    case FLAGOS_HAL_STATUS_FORKED:
      throwIfBadFork();
      break;
    case FLAGOS_HAL_STATUS_NOT_INITIALIZED:
      if (isShutDown()) message += "\nThe runtime was shut down: the interpreter is exiting.";
      break;
    case FLAGOS_HAL_STATUS_DEVICE_BUSY:
      message += "\nAnother process holds the device. Choose another one, or end that process.";
      break;
    default:
      break;
  }
  throw c10::Error(location, message);
}

namespace detail {

void badDeviceIndex(int64_t index) {
  throwIfBadFork();
  const int size = device_table_size.load(std::memory_order_acquire);
  std::ostringstream devices;
  for (int i = 0; i < size;) {
    const BackendRecord& backend = *device_table[i].backend;
    const int last = backend.first_device + backend.device_count - 1;
    devices << (i == 0 ? " (" : ", ") << backend.request.name << ": " << backend.first_device;
    if (last > backend.first_device) devices << " to " << last;
    i = last + 1;
  }
  TORCH_CHECK(false, "flagos: device index ", index, " is out of range: this process has ", size,
              size == 1 ? " flagos device" : " flagos devices", devices.str(), size > 0 ? ")." : ".");
}

}  // namespace detail
}  // namespace flagos
