// Counts of calls by operator, source and device: always on, one relaxed increment a call.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/api.h"
#include "csrc/ops/sources.h"
#include "csrc/runtime/devices.h"

namespace flagos::ops {

struct CallCounter {
  std::atomic<uint64_t> calls{0};
  std::atomic<uint64_t> nanoseconds{0};  // while timing is on
};

// Of one device.
struct DeviceCounters {
  std::array<std::array<CallCounter, kSourceCount>, kMaxOps> by_op;
  std::array<std::atomic<uint64_t>, kMaxOps> host_bytes{};
};

namespace detail {
FLAGOS_API extern std::array<std::atomic<DeviceCounters*>, kMaxDevices> device_counters;
FLAGOS_API DeviceCounters& makeCounters(c10::DeviceIndex device);
}  // namespace detail

inline DeviceCounters& countersOf(c10::DeviceIndex device) {
  DeviceCounters* counters =
      detail::device_counters[static_cast<size_t>(device)].load(std::memory_order_acquire);
  return C10_LIKELY(counters != nullptr) ? *counters : detail::makeCounters(device);
}

inline void countCall(OpId op, Source source, c10::DeviceIndex device) {
  countersOf(device).by_op[op][static_cast<size_t>(source)].calls.fetch_add(1, std::memory_order_relaxed);
}

inline void countTime(OpId op, Source source, c10::DeviceIndex device, uint64_t nanoseconds) {
  countersOf(device).by_op[op][static_cast<size_t>(source)].nanoseconds.fetch_add(nanoseconds,
                                                                                  std::memory_order_relaxed);
}

// Bytes that crossed between host and device because of `op` (staged host kernels).
inline void countHostBytes(OpId op, c10::DeviceIndex device, uint64_t bytes) {
  countersOf(device).host_bytes[op].fetch_add(bytes, std::memory_order_relaxed);
}

// A candidate that declined, whatever the device.
void countDecline(OpId op, Source source) noexcept;

struct OpCount {
  std::string op;  // "aten::add.Tensor"
  Source source;
  c10::DeviceIndex device;
  uint64_t calls;
  uint64_t host_bytes;
  uint64_t nanoseconds;
};
// What was called since the start or the last reset, by device and in order of ids; zero rows are left out.
FLAGOS_API std::vector<OpCount> callCounts();

struct DeclineCount {
  std::string op;
  Source source;
  uint64_t count;
};
FLAGOS_API std::vector<DeclineCount> declineCounts();

FLAGOS_API void resetCallCounts();

}  // namespace flagos::ops
