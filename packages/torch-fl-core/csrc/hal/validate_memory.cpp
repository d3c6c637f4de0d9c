// The groups system, device and memory under the validating layer.
#include <cinttypes>
#include <string>

#include "csrc/hal/validator_calls.h"
#include "flagos/hal_support/error.hpp"

namespace flagos::hal {

flagos_hal_status Validator::system_init() {
  constexpr Member kMember = Member::system_init;
  const flagos_hal_status status = returned(kMember, library_.system.init());
  if (status != FLAGOS_HAL_STATUS_OK || phase_.load(std::memory_order_acquire) == Phase::Ready) return status;
  int32_t count = -1;
  if (library_.device.count(&count) == FLAGOS_HAL_STATUS_OK && count >= 0) device_count_.store(count);
  int64_t value = 0;
  if (library_.system.capability(FLAGOS_HAL_CAP_HOST_ACCESS, &value) == FLAGOS_HAL_STATUS_OK)
    host_access_.store(value);
  if (library_.system.capability(FLAGOS_HAL_CAP_ALIGNMENT, &value) == FLAGOS_HAL_STATUS_OK && value > 0) {
    alignment_.store(value);
  }
  init_generation_.store(forkGeneration(), std::memory_order_release);
  phase_.store(Phase::Ready, std::memory_order_release);
  return status;
}

flagos_hal_status Validator::system_shutdown() {
  constexpr Member kMember = Member::system_shutdown;
  const bool was_ready = phase_.load(std::memory_order_acquire) == Phase::Ready;
  if (was_ready && in_progress_.load(std::memory_order_relaxed) > 1) {
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_STATE, "HAL-SYS-02",
                     "%" PRId64 " other calls are in progress; the caller has to wait for them first",
                     in_progress_.load(std::memory_order_relaxed) - 1);
  }
  if (was_ready) phase_.store(Phase::Stopped, std::memory_order_release);
  const flagos_hal_status status = returned(kMember, library_.system.shutdown());
  if (was_ready) reportLeaks();
  return status;
}

void Validator::reportLeaks() {
  uint64_t objects = 0;
  std::string text;
  const auto mention = [&](uint64_t count, const std::string& what) {
    if (count == 0) return;
    objects += count;
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  };
  {
    Lock lock(mutex_);
    uint64_t bytes = 0;
    for (const auto& entry : ranges_[kDeviceBook].all()) bytes += entry.second.size;
    mention(ranges_[kDeviceBook].all().size(), "device allocations (" + std::to_string(bytes) + " bytes)");
    bytes = 0;
    for (const auto& entry : ranges_[kPinnedBook].all()) bytes += entry.second.size;
    mention(ranges_[kPinnedBook].all().size(), "pinned allocations (" + std::to_string(bytes) + " bytes)");
    mention(ranges_[kImportedBook].all().size(), "imported allocations");
    mention(ranges_[kRegisteredBook].all().size(), "registered host ranges");
    uint64_t streams = 0;
    for (const auto& entry : streams_.all()) streams += entry.second->is_default ? 0 : 1;
    mention(streams, "streams");
    mention(events_.all().size(), "events");
    mention(graphs_.all().size(), "graphs");
    // All of them are dead from here on (HAL-SYS-02), default streams too.
    for (RangeMap& ranges : ranges_) ranges.clear();
    streams_.clear();
    events_.clear();
    graphs_.clear();
    default_streams_.clear();
    captured_callbacks_.clear();
    captures_.store(0);
    accesses_.clear();
  }
  if (objects == 0) return;
  // Not an error of shutdown, which has done its work: its status stays, the detail can be asked for.
  violation(Member::system_shutdown, FLAGOS_HAL_STATUS_INVALID_STATE, "HAL-SYS-02",
            "still alive at shutdown: %s", text.c_str());
  violations_.fetch_add(objects - 1, std::memory_order_relaxed);
}

flagos_hal_status Validator::system_info(flagos_hal_info* out_info) {
  constexpr Member kMember = Member::system_info;
  FLAGOS_HAL_TRY(checkSizedOutput(kMember, out_info, "out_info"));
  return returned(kMember, library_.system.info(out_info));
}

flagos_hal_status Validator::system_last_error(flagos_hal_error* out_error) {
  // A bad argument must leave the detail as it was, so it is not reported as a violation.
  if (!out_error || out_error->struct_size < sizeof(size_t)) return FLAGOS_HAL_STATUS_INVALID_ARGUMENT;
  return library_.system.last_error(out_error);
}

flagos_hal_status Validator::system_capability(int32_t capability, int64_t* out_value) {
  constexpr Member kMember = Member::system_capability;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_value, "out_value"));
  return returned(kMember, library_.system.capability(capability, out_value));
}

flagos_hal_status Validator::device_count(int32_t* out_count) {
  constexpr Member kMember = Member::device_count;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_count, "out_count"));
  FLAGOS_HAL_TRY(returned(kMember, library_.device.count(out_count)));
  int32_t before = -1;
  if (!device_count_.compare_exchange_strong(before, *out_count) && before != *out_count) {
    return libraryFault(kMember, "HAL-DEV-01", "it counted %d devices at first and %d now", before,
                        *out_count);
  }
  return FLAGOS_HAL_STATUS_OK;
}

flagos_hal_status Validator::device_set_current(int32_t device) {
  constexpr Member kMember = Member::device_set_current;
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  return returned(kMember, library_.device.set_current(device));
}

flagos_hal_status Validator::device_get_current(int32_t* out_device) {
  constexpr Member kMember = Member::device_get_current;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_device, "out_device"));
  return returned(kMember, library_.device.get_current(out_device));
}

flagos_hal_status Validator::device_properties(int32_t device, flagos_hal_device_properties* out_properties) {
  constexpr Member kMember = Member::device_properties;
  FLAGOS_HAL_TRY(checkSizedOutput(kMember, out_properties, "out_properties"));
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  return returned(kMember, library_.device.properties(device, out_properties));
}

flagos_hal_status Validator::device_memory_info(int32_t device, uint64_t* out_free, uint64_t* out_total) {
  constexpr Member kMember = Member::device_memory_info;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_free, "out_free"));
  FLAGOS_HAL_TRY(checkOutput(kMember, out_total, "out_total"));
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  FLAGOS_HAL_TRY(returned(kMember, library_.device.memory_info(device, out_free, out_total)));
  if (*out_free > *out_total) {
    return libraryFault(kMember, "HAL-DEV-05", "%" PRIu64 " bytes free of %" PRIu64, *out_free, *out_total);
  }
  return FLAGOS_HAL_STATUS_OK;
}

flagos_hal_status Validator::device_synchronize(int32_t device) {
  constexpr Member kMember = Member::device_synchronize;
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  return returned(kMember, library_.device.synchronize(device));
}

flagos_hal_status Validator::device_health(int32_t device) {
  constexpr Member kMember = Member::device_health;
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  return returned(kMember, library_.device.health(device));
}

flagos_hal_status Validator::memory_allocate(int32_t device, uint64_t size, void** out_pointer) {
  constexpr Member kMember = Member::memory_allocate;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_pointer, "out_pointer"));
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  void* pointer = nullptr;
  FLAGOS_HAL_TRY(returned(kMember, library_.memory.allocate(device, size, &pointer)));
  if (size == 0) {
    if (pointer) return libraryFault(kMember, "HAL-MEM-01", "it answered %p for 0 bytes, not null", pointer);
  } else {
    const uintptr_t base = reinterpret_cast<uintptr_t>(pointer);
    if (!pointer)
      return libraryFault(kMember, "HAL-MEM-01", "it answered OK and null for %" PRIu64 " bytes", size);
    const uint64_t alignment = static_cast<uint64_t>(alignment_.load(std::memory_order_relaxed));
    if (base % alignment != 0) {
      library_.memory.release(device, pointer);
      return libraryFault(kMember, "HAL-MEM-01",
                          "%p is not a multiple of FLAGOS_HAL_CAP_ALIGNMENT (%" PRIu64 ")", pointer,
                          alignment);
    }
    FLAGOS_HAL_TRY(addRange(kMember, {base, size, device, Range::Origin::Allocated}));
  }
  *out_pointer = pointer;
  return FLAGOS_HAL_STATUS_OK;
}

flagos_hal_status Validator::memory_release(int32_t device, void* pointer) {
  constexpr Member kMember = Member::memory_release;
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  if (!pointer) return returned(kMember, library_.memory.release(device, nullptr));
  Range range;
  FLAGOS_HAL_TRY(takeRange(kMember, kDeviceBook, device, pointer, &range));
  const flagos_hal_status status = returned(kMember, library_.memory.release(device, pointer));
  if (status != FLAGOS_HAL_STATUS_OK) putBack(range);
  return status;
}

flagos_hal_status Validator::memory_copy(int32_t device, void* destination, const void* source, uint64_t size,
                                         int32_t kind) {
  constexpr Member kMember = Member::memory_copy;
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  FLAGOS_HAL_TRY(checkCopy(kMember, device, destination, source, size, kind));
  return returned(kMember, library_.memory.copy(device, destination, source, size, kind));
}

flagos_hal_status Validator::memory_copy_async(flagos_hal_stream* stream, void* destination,
                                               const void* source, uint64_t size, int32_t kind) {
  constexpr Member kMember = Member::memory_copy_async;
  std::shared_ptr<StreamState> state;
  FLAGOS_HAL_TRY(checkStream(kMember, stream, &state));
  FLAGOS_HAL_TRY(checkCopy(kMember, state->device, destination, source, size, kind));
  Queueing queueing(*state, false);
  if (queueing.conflict()) return refuseConcurrent(kMember);
  return returned(kMember, library_.memory.copy_async(stream, destination, source, size, kind));
}

flagos_hal_status Validator::memory_fill(int32_t device, void* destination, int32_t value, uint64_t size) {
  constexpr Member kMember = Member::memory_fill;
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  FLAGOS_HAL_TRY(checkFill(kMember, device, destination, value, size));
  return returned(kMember, library_.memory.fill(device, destination, value, size));
}

flagos_hal_status Validator::memory_fill_async(flagos_hal_stream* stream, void* destination, int32_t value,
                                               uint64_t size) {
  constexpr Member kMember = Member::memory_fill_async;
  std::shared_ptr<StreamState> state;
  FLAGOS_HAL_TRY(checkStream(kMember, stream, &state));
  FLAGOS_HAL_TRY(checkFill(kMember, state->device, destination, value, size));
  Queueing queueing(*state, false);
  if (queueing.conflict()) return refuseConcurrent(kMember);
  return returned(kMember, library_.memory.fill_async(stream, destination, value, size));
}

flagos_hal_status Validator::memory_pointer_info(const void* pointer, flagos_hal_pointer_info* out_info) {
  constexpr Member kMember = Member::memory_pointer_info;
  FLAGOS_HAL_TRY(checkSizedOutput(kMember, out_info, "out_info"));
  return returned(kMember, library_.memory.pointer_info(pointer, out_info));
}

}  // namespace flagos::hal
