#include "csrc/reference/device.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "csrc/reference/capture.h"
#include "csrc/reference/options.h"
#include "csrc/reference/stream.h"
#include "csrc/reference/tables.h"

namespace flagos::reference {

int32_t device_count = 0;

namespace {

// Never destroyed: threads may look at a device while the process ends.
Device* const devices = new Device[kMaxDevices];

// The calling thread's current device, valid while `epoch` is that of the library: a device that was set
// before a shutdown does not survive it.
struct Current {
  uint32_t epoch;
  int32_t device;
};
thread_local Current current = {0, 0};
std::atomic<uint32_t> epoch{0};  // grows with every init

}  // namespace

void PriorityGate::waitTurn(std::unique_lock<std::mutex>& lock, int level) {
  turn_.wait(lock, [&] { return std::all_of(ready_, ready_ + level, [](int count) { return count == 0; }); });
}

void PriorityGate::enter(int level) {
  std::unique_lock<std::mutex> lock(mutex_);
  ++ready_[level];
  waitTurn(lock, level);
}

void PriorityGate::next(int level) {
  std::unique_lock<std::mutex> lock(mutex_);
  waitTurn(lock, level);
}

void PriorityGate::leave(int level) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    --ready_[level];
  }
  turn_.notify_all();
}

Device& deviceAt(int32_t index) noexcept { return devices[index]; }

flagos_hal_status checkIndex(int32_t device) {
  if (static_cast<uint32_t>(device) < static_cast<uint32_t>(device_count)) return kOk;
  return fail(FLAGOS_HAL_STATUS_INVALID_DEVICE, "there is no device %d; devices: %d", device, device_count);
}

flagos_hal_status failLost(int32_t device) {
  return failVendor(FLAGOS_HAL_STATUS_DEVICE_LOST, kCodeDeviceLost, "referenceErrorDeviceLost",
                    "device %d was lost and cannot be used until the library is started anew", device);
}

flagos_hal_status checkDevice(int32_t device) {
  FLAGOS_HAL_TRY(checkIndex(device));
  return devices[device].lost.load(std::memory_order_acquire) ? failLost(device) : kOk;
}

void loseDevice(int32_t index) noexcept {
  if (static_cast<uint32_t>(index) >= static_cast<uint32_t>(device_count)) return;
  Device& device = devices[index];
  std::lock_guard<std::mutex> lock(device.mutex);
  device.lost.store(true, std::memory_order_release);
  for (Stream* stream : device.streams) stream->flags.fetch_or(kStreamLost, std::memory_order_acq_rel);
}

void drainDevice(Device& device) {
  std::vector<std::pair<Stream*, uint64_t>> tails;
  {
    std::lock_guard<std::mutex> lock(device.mutex);
    for (Stream* stream : device.streams) {
      tails.emplace_back(stream, stream->queued.load(std::memory_order_acquire));
    }
  }
  // A stream that is destroyed meanwhile has finished its work, and its counters stay.
  for (const auto& tail : tails) waitFor(*tail.first, tail.second);
}

flagos_hal_status openDevices(int32_t count, uint64_t capacity) {
  for (int32_t i = 0; i < count; ++i) {
    Device& device = devices[i];
    device.index = i;
    device.capacity = capacity;
    device.used.store(0, std::memory_order_relaxed);
    device.lost.store(false, std::memory_order_relaxed);
    device.has_priorities.store(false, std::memory_order_relaxed);
    device.streams.clear();
    FLAGOS_HAL_TRY(openStream(device, 0, &device.default_handle));
    device.default_stream = streams().find(device.default_handle);
  }
  device_count = count;
  epoch.fetch_add(1, std::memory_order_relaxed);
  return kOk;
}

void closeDevices() noexcept { device_count = 0; }

// ------------------------------------------------------------------------------------ group device ----

namespace {

flagos_hal_status count(int32_t* out_count) {
  return invoke(Function::device_count, -1, [&] {
    FLAGOS_HAL_REQUIRE(out_count, INVALID_ARGUMENT, "out_count is null");
    *out_count = device_count;
    return kOk;
  });
}

// Whether a call that only asks about `device` can be answered at once: the normal case of what is called
// around every operator, without the wrapper.
inline bool plainlyUsable(int32_t device) noexcept {
  return hal_support::state().ready() && !faults_installed &&
         static_cast<uint32_t>(device) < static_cast<uint32_t>(device_count) &&
         !devices[device].lost.load(std::memory_order_acquire);
}

flagos_hal_status setCurrent(int32_t device) {
  if (plainlyUsable(device)) {
    current = {epoch.load(std::memory_order_relaxed), device};
    return kOk;
  }
  return invoke(Function::device_set_current, device, [&] {
    FLAGOS_HAL_TRY(checkDevice(device));
    current = {epoch.load(std::memory_order_relaxed), device};
    return kOk;
  });
}

flagos_hal_status getCurrent(int32_t* out_device) {
  const auto answer = [&] {
    const Current now = current;
    *out_device = now.epoch == epoch.load(std::memory_order_relaxed) ? now.device : 0;
    return kOk;
  };
  if (hal_support::state().ready() && !faults_installed && out_device) return answer();
  return invoke(Function::device_get_current, -1, [&] {
    FLAGOS_HAL_REQUIRE(out_device, INVALID_ARGUMENT, "out_device is null");
    return answer();
  });
}

flagos_hal_status properties(int32_t device, flagos_hal_device_properties* out_properties) {
  return invoke(Function::device_properties, device, [&] {
    FLAGOS_HAL_TRY(checkDevice(device));
    flagos_hal_device_properties value = {};
    std::snprintf(value.name, sizeof(value.name), "flagos reference device");
    value.total_memory = static_cast<int64_t>(devices[device].capacity);
    // The host computes on every type that there is.
    for (int dtype = FLAGOS_HAL_DTYPE_UINT8; dtype <= FLAGOS_HAL_DTYPE_FLOAT4_E2M1FN; ++dtype) {
      value.dtypes |= uint64_t{1} << dtype;
    }
    value.capability_major = FLAGOS_HAL_UNKNOWN;
    value.capability_minor = FLAGOS_HAL_UNKNOWN;
    value.multiprocessor_count = FLAGOS_HAL_UNKNOWN;
    value.warp_size = FLAGOS_HAL_UNKNOWN;
    value.max_threads_per_block = FLAGOS_HAL_UNKNOWN;
    value.max_threads_per_multiprocessor = FLAGOS_HAL_UNKNOWN;
    value.registers_per_multiprocessor = FLAGOS_HAL_UNKNOWN;
    value.clock_rate_khz = FLAGOS_HAL_UNKNOWN;
    value.shared_memory_per_block = FLAGOS_HAL_UNKNOWN;
    value.shared_memory_per_block_optin = FLAGOS_HAL_UNKNOWN;
    value.shared_memory_per_multiprocessor = FLAGOS_HAL_UNKNOWN;
    value.l2_cache_size = FLAGOS_HAL_UNKNOWN;
    value.is_integrated = 1;  // its memory is the host's
    return hal_support::writeSized(out_properties, value);
  });
}

flagos_hal_status memoryInfo(int32_t device, uint64_t* out_free, uint64_t* out_total) {
  return invoke(Function::device_memory_info, device, [&] {
    FLAGOS_HAL_REQUIRE(out_free && out_total, INVALID_ARGUMENT, "out_free or out_total is null");
    FLAGOS_HAL_TRY(checkDevice(device));
    *out_total = devices[device].capacity;
    *out_free = devices[device].capacity - devices[device].used.load(std::memory_order_acquire);
    return kOk;
  });
}

flagos_hal_status synchronize(int32_t device) {
  return invoke(Function::device_synchronize, device, [&] {
    FLAGOS_HAL_TRY(checkDevice(device));
    FLAGOS_HAL_TRY(refuseDuringCapture("device.synchronize"));
    FLAGOS_HAL_TRY(refuseOnWorker());
    drainDevice(devices[device]);
    FLAGOS_HAL_TRY(checkDevice(device));
    return takeDeviceFailure(devices[device]);
  });
}

flagos_hal_status health(int32_t device) {
  if (plainlyUsable(device)) return kOk;
  return invoke(Function::device_health, device, [&] { return checkDevice(device); });
}

}  // namespace

const flagos_hal_device_api kDeviceApi = {sizeof(kDeviceApi), count,      setCurrent,  getCurrent,
                                          properties,         memoryInfo, synchronize, health};

}  // namespace flagos::reference
