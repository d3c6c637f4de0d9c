#include "csrc/ops/counters.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <mutex>

namespace flagos::ops {

namespace {

// Never destroyed, as operators may run in threads that outlive static destruction.
auto& declines() {
  static auto* instance = new std::array<std::array<std::atomic<uint64_t>, kSourceCount>, kMaxOps>{};
  return *instance;
}

}  // namespace

namespace detail {

std::array<std::atomic<DeviceCounters*>, kMaxDevices> device_counters{};

DeviceCounters& makeCounters(c10::DeviceIndex device) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& slot = device_counters[static_cast<size_t>(device)];
  if (slot.load(std::memory_order_relaxed) == nullptr) {
    // About 1 MB of zeros: the system's own, so that pages nobody counts in take no memory.
    void* zeros = std::calloc(1, sizeof(DeviceCounters));
    TORCH_CHECK(zeros != nullptr, "flagos: no memory for the counters of flagos:", static_cast<int>(device));
    slot.store(static_cast<DeviceCounters*>(zeros), std::memory_order_release);
  }
  return *slot.load(std::memory_order_relaxed);
}

}  // namespace detail

void countDecline(OpId op, Source source) noexcept {
  declines()[op][static_cast<size_t>(source)].fetch_add(1, std::memory_order_relaxed);
}

std::vector<OpCount> callCounts() {
  std::vector<OpCount> rows;
  const OpId count = opCount();
  for (c10::DeviceIndex device = 0; device < kMaxDevices; ++device) {
    const DeviceCounters* counters =
        detail::device_counters[static_cast<size_t>(device)].load(std::memory_order_acquire);
    if (counters == nullptr) continue;
    for (OpId op = 0; op < count; ++op) {
      for (size_t source = 0; source < kSourceCount; ++source) {
        const CallCounter& counter = counters->by_op[op][source];
        const uint64_t calls = counter.calls.load(std::memory_order_relaxed);
        if (calls == 0) continue;
        const bool on_host = static_cast<Source>(source) == Source::Cpu;
        rows.push_back({opName(op), static_cast<Source>(source), device, calls,
                        on_host ? counters->host_bytes[op].load(std::memory_order_relaxed) : 0,
                        counter.nanoseconds.load(std::memory_order_relaxed)});
      }
    }
  }
  return rows;
}

std::vector<DeclineCount> declineCounts() {
  std::vector<DeclineCount> rows;
  const OpId count = opCount();
  for (OpId op = 0; op < count; ++op) {
    for (size_t source = 0; source < kSourceCount; ++source) {
      const uint64_t number = declines()[op][source].load(std::memory_order_relaxed);
      if (number > 0) rows.push_back({opName(op), static_cast<Source>(source), number});
    }
  }
  return rows;
}

void resetCallCounts() {
  const OpId count = opCount();
  for (OpId op = 0; op < count; ++op) {
    for (auto& number : declines()[op]) number.store(0, std::memory_order_relaxed);
  }
  for (auto& slot : detail::device_counters) {
    DeviceCounters* counters = slot.load(std::memory_order_acquire);
    if (counters == nullptr) continue;
    for (OpId op = 0; op < count; ++op) {
      for (CallCounter& counter : counters->by_op[op]) {
        counter.calls.store(0, std::memory_order_relaxed);
        counter.nanoseconds.store(0, std::memory_order_relaxed);
      }
      counters->host_bytes[op].store(0, std::memory_order_relaxed);
    }
  }
}

}  // namespace flagos::ops
