// The devices of this process: which backends are open, and which global index belongs to which of them.
//
// Global indices are the backends' local ones laid end to end, in a fixed order. The table is written once,
// under the lock of activation, and only read after that; a reader needs no lock.
#pragma once

#include <c10/core/Device.h>
#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/api.h"
#include "csrc/hal/library.h"

namespace flagos {

struct Companion;  // companion.h

inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;
inline constexpr int kMaxDevices = 64;
inline constexpr int kMaxBackends = 16;  // with devices, in one process

// What Python's discovery found, in the order of the devices. Opening happens at activation.
struct BackendRequest {
  std::string name;           // "reference", "reference:second"
  std::string path;           // the HAL library
  bool private_copy = false;  // a second instance of the same library
  bool emulated = false;  // joins only when activated (design: the reference backend where nothing else is)
  bool accelerator = false;  // real hardware: that an operator runs on the host is worth a word
  std::string companion;     // the device type of torch that serves the same chips ("cuda"); empty: none
  std::string skip;  // why discovery says that it is not to be opened ("disabled: …"); empty: it may be
};

enum class BackendState { Waiting, Selected, NoDevice, SdkMissing, AbiRefused, Failed, Skipped };

// As the reports write it: "SDK missing".
FLAGOS_API const char* backendStateName(BackendState state) noexcept;

struct BackendRecord {
  BackendRequest request;
  BackendState state = BackendState::Waiting;
  std::string reason;    // in words, for every state but Selected
  int first_device = 0;  // global index
  int device_count = 0;
  int64_t host_access = 0;  // FLAGOS_HAL_HOST_ACCESS_…
  int64_t alignment = 64;
  bool async_streams = true;
  const Companion* companion = nullptr;
  std::string companion_reason;           // in words: why there is none, where the request names one
  std::shared_ptr<hal::Library> library;  // null unless opened
};

struct DeviceEntry {
  const hal::Tables* hal = nullptr;
  const BackendRecord* backend = nullptr;
  const Companion* companion = nullptr;  // null: core runs on the HAL alone
  int32_t local = 0;                     // index within the backend
  c10::DeviceIndex index = 0;            // global index
  uint8_t slot = 0;                      // of the backend, 0, 1, … in the order of devices
  bool host_accessible = false;          // host_access == COHERENT: a host kernel may use device pointers
};

// Replaces the list of backends; only before the first use. Opens nothing.
FLAGOS_API void setBackendRequests(std::vector<BackendRequest> requests);

// From now on deviceCount() opens the emulated backends as well, where no other has a device. `import
// torch_fl` says this.
FLAGOS_API void allowEmulated() noexcept;

// Opens and initialises the backends, the emulated ones too when no other has a device, and returns the
// number of devices. Idempotent and thread-safe. Throws c10::Error, listing every candidate with its reason,
// if none has a device, and in a bad fork. After a failure the next call tries again: a driver may have come
// up since.
FLAGOS_API c10::DeviceIndex activate();
FLAGOS_API bool activated() noexcept;

// Has `callback` called once, when the devices are there, after those that were added before. It runs under
// the lock of activation, with or without the GIL. To be added before the first use.
FLAGOS_API void onActivation(void (*callback)());

// Has `callback` called once after activation, by the thread that opened the devices and without its lock; at
// once where the devices are open. What it throws reaches the caller of activate().
FLAGOS_API void onOpened(std::function<void()> callback);

// Devices of backends that are not emulated (opens those); with allowEmulated(), or once activated, all of
// them. Never throws: a backend that fails counts 0 and keeps its reason. In a bad fork: the parent's number.
FLAGOS_API c10::DeviceIndex deviceCount() noexcept;

// How many devices this process can come to have: deviceCount(), or, while that is 0, what the emulated
// backends would bring. Only the device guard answers with it: the autograd engine sizes its queues once, at
// the first backward of any device, and a flagos backward after a CPU one would find none. Asks a copy of an
// emulated backend's library: the library itself stays closed.
c10::DeviceIndex possibleDeviceCount() noexcept;

// One record per request, with state and reason so far.
FLAGOS_API std::vector<BackendRecord> backendRecords();

// One line per request: name, state and reason. For messages.
std::string describeBackends();

namespace detail {
FLAGOS_API extern DeviceEntry device_table[kMaxDevices];
FLAGOS_API extern std::atomic<int> device_table_size;  // 0 until activated, in a bad fork, and after shutdown
[[noreturn]] FLAGOS_API void badDeviceIndex(int64_t index);
}  // namespace detail

// The entry of a global index. Activates at first use. Throws c10::Error for an index out of range (names the
// count).
inline const DeviceEntry& deviceEntry(c10::DeviceIndex index) {
  const int size = detail::device_table_size.load(std::memory_order_acquire);
  if (C10_LIKELY(index >= 0 && index < size)) return detail::device_table[index];
  if (size == 0) {
    const int count = activate();
    if (index >= 0 && index < count) return detail::device_table[index];
  }
  detail::badDeviceIndex(index);
}

// The calling thread's current device (global index; 0 at first). Setting tells the HAL of the new device's
// backend; no call is made where the index does not change. A new thread's first setting always tells it,
// device 0 too: a vendor's runtime may have no context on a thread until then. If the HAL refuses, the device
// before stays current.
FLAGOS_API c10::DeviceIndex currentDevice() noexcept;
FLAGOS_API void setDevice(c10::DeviceIndex index);
FLAGOS_API c10::DeviceIndex exchangeDevice(c10::DeviceIndex index);  // −1 leaves it; returns the one before
// An index as Python gives it, checked while its value is whole: 300 must not become device 44. −1 stays −1.
FLAGOS_API c10::DeviceIndex checkedIndex(int64_t index);
inline c10::DeviceIndex resolveIndex(c10::DeviceIndex index) { return index < 0 ? currentDevice() : index; }

// For the guard. setDeviceLazily opens nothing: a device that was never used is only remembered, and the HAL
// told when the thread next changes or confirms its device (the autograd engine sets the device of every
// worker thread, also of programs that train on the CPU). restoreDevice is for destructors: it always makes
// `index` current here; where the HAL refuses, the next setDevice or exchangeDevice of the thread tells it
// again and reports.
void setDeviceLazily(c10::DeviceIndex index);
void restoreDevice(c10::DeviceIndex index) noexcept;

// Whether anything was queued or made current on the device yet (PyTorch's "primary context").
bool deviceInUse(c10::DeviceIndex index) noexcept;
void markDeviceInUse(c10::DeviceIndex index) noexcept;

// True in a child of fork() whose parent had initialised a backend. Every use then throws one sentence (use
// the spawn start method); what neither needs nor changes a device goes on working.
FLAGOS_API bool inBadFork() noexcept;
FLAGOS_API void throwIfBadFork();

// Waits for all devices, frees the allocators' memory, shuts the backends down. Afterwards releases are
// no-ops and uses throw. Called from Python's atexit.
FLAGOS_API void shutdownRuntime() noexcept;
FLAGOS_API bool isShutDown() noexcept;

// Throws the error of a HAL call that failed: c10::OutOfMemoryError for OUT_OF_MEMORY, c10::AcceleratorError
// with the vendor's code for DEVICE_LOST and UNKNOWN, else c10::Error. A device that is lost keeps its first
// failure, which later messages name.
[[noreturn]] FLAGOS_API void throwHalError(const DeviceEntry& device, flagos_hal_status status,
                                           const char* what);

// "flagos:1 (reference, local 1)".
FLAGOS_API std::string describeDevice(const DeviceEntry& device);

}  // namespace flagos

// Checks a HAL status of `device` (a DeviceEntry). `what` names what core was doing: "copy 4096 bytes to the
// host". The message has the call, the device, the class and the vendor's code and text. OUT_OF_MEMORY throws
// c10::OutOfMemoryError.
#define FLAGOS_CHECK(device, expression, what)                   \
  do {                                                           \
    const flagos_hal_status flagos_status_ = (expression);       \
    if (C10_UNLIKELY(flagos_status_ != FLAGOS_HAL_STATUS_OK)) {  \
      ::flagos::throwHalError((device), flagos_status_, (what)); \
    }                                                            \
  } while (0)
