#include "csrc/runtime/host_allocator.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstring>
#include <type_traits>
#include <utility>

#include "csrc/runtime/companion.h"
#include "csrc/runtime/host_pool.h"

namespace flagos {

namespace {

std::atomic<bool> shut_down{false};

// Never destroyed: blocks may be freed during exit.
HostPool& pool() noexcept {
  static auto* const instance = new HostPool;
  return *instance;
}

void deleteBlock(void* context) noexcept {
  if (context == nullptr || shut_down.load(std::memory_order_acquire) || inBadFork()) return;
  pool().release(static_cast<HostBlock*>(context));
}

// Torch has renamed the fields of HostStats once and added to them; what a minor has is filled in.
template <typename Stats, typename = void>
struct HasActiveRequests : std::false_type {};
template <typename Stats>
struct HasActiveRequests<Stats, std::void_t<decltype(std::declval<Stats&>().active_requests)>>
    : std::true_type {};
template <typename Stats, typename = void>
struct HasBuckets : std::false_type {};
template <typename Stats>
struct HasBuckets<Stats, std::void_t<decltype(std::declval<Stats&>().bucket_allocation)>> : std::true_type {};

template <typename Stats>
void fill(Stats& out, const HostMemoryStats& in) {
  out.allocated_bytes = in.allocated_bytes;
  if constexpr (HasActiveRequests<Stats>::value) {
    out.active_requests = in.active_requests;
    out.active_bytes = in.active_bytes;
    out.allocations = in.allocations;
  } else {
    out.allocation = in.active_requests;
    out.segment = in.allocations;
    out.reserved_bytes = in.allocated_bytes;
    out.allocated_bytes = in.active_bytes;
  }
  if constexpr (HasBuckets<Stats>::value) {
    for (size_t i = 0; i < out.bucket_allocation.size() && i < in.buckets.size(); ++i)
      out.bucket_allocation[i] = in.buckets[i];
  }
  out.host_alloc_time = in.alloc_time;
  out.host_free_time = in.free_time;
  out.num_host_alloc = in.num_alloc;
  out.num_host_free = in.num_free;
}

class FlagosHostAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &deleteBlock, cpu};
    if (C10_UNLIKELY(inBadFork())) throwIfBadFork();
    const DeviceEntry& device = deviceEntry(currentDevice());
    // Its copy kernels keep memory of its own allocator until the stream has passed, and no other.
    if (device.companion != nullptr) return at::getHostAllocator(device.companion->type)->allocate(bytes);
    HostBlock* block = pool().allocate(bytes, device);
    return {block->address, block, &deleteBlock, cpu};
  }

  void copy_data(void* destination, const void* source, size_t bytes) const override {
    if (bytes != 0) std::memcpy(destination, source, bytes);
  }

  // The context is not looked at: callers pass that of any tensor, pinned or not, and the address tells the
  // same.
  bool record_event(void* pointer, void* context, c10::Stream stream) override {
    const DeviceEntry& device = deviceEntry(stream.device_index());
    if (device.companion != nullptr)
      return at::getHostAllocator(device.companion->type)
          ->record_event(pointer, context, toCompanion(device, stream));
    return recordPinnedUse(pointer, stream);
  }

  void empty_cache() override {
    if (shut_down.load(std::memory_order_acquire) || inBadFork()) return;
    pool().emptyCache();
    for (c10::DeviceIndex i = 0; i < detail::device_table_size.load(std::memory_order_acquire); ++i) {
      const Companion* companion = detail::device_table[i].companion;
      if (companion != nullptr) at::getHostAllocator(companion->type)->empty_cache();
    }
  }

  at::HostStats get_stats() override {
    at::HostStats stats;
    fill(stats, hostMemoryStats());
    return stats;
  }

  void reset_accumulated_stats() override {
    throwIfBadFork();
    pool().resetAccumulatedStats();
  }
  void reset_peak_stats() override {
    throwIfBadFork();
    pool().resetPeakStats();
  }
};

FlagosHostAllocator& instance() noexcept {
  static auto* const allocator = new FlagosHostAllocator;  // torch keeps the pointer for ever
  return *allocator;
}

bool takenByOthers() noexcept {
  try {
    return at::getHostAllocator(kDeviceType) != nullptr;
  } catch (const std::exception&) {
    return false;
  }
}

// As for the device allocator: another plugin that owns PrivateUse1 keeps its own.
[[maybe_unused]] const bool registered = [] {
  if (takenByOthers()) return false;
  at::setHostAllocator(kDeviceType, &instance());
  return true;
}();

// Whether the backend of `device` itself knows `pointer` as pinned, e.g. memory that another library has
// registered.
bool backendSaysPinned(const DeviceEntry& device, const void* pointer) {
  if (device.companion != nullptr) {
    return at::globalContext().getAcceleratorHooksInterface(device.companion->type).isPinnedPtr(pointer);
  }
  int64_t knows_host = 0;
  if (device.hal->system.capability(FLAGOS_HAL_CAP_POINTER_INFO, &knows_host) != FLAGOS_HAL_STATUS_OK ||
      knows_host == 0) {
    return false;
  }
  flagos_hal_pointer_info info{};
  info.struct_size = sizeof(info);
  return device.hal->memory.pointer_info(pointer, &info) == FLAGOS_HAL_STATUS_OK &&
         info.kind == FLAGOS_HAL_MEMORY_PINNED;
}

}  // namespace

at::HostAllocator* hostAllocator() noexcept { return &instance(); }

bool isPinned(const void* pointer) {
  if (pointer == nullptr || !activated() || inBadFork() || isShutDown()) return false;
  if (pool().ownerOf(pointer) != nullptr) return true;
  const BackendRecord* asked = nullptr;
  const int devices = detail::device_table_size.load(std::memory_order_acquire);
  for (int index = 0; index < devices; ++index) {
    const DeviceEntry& device = detail::device_table[index];
    if (device.backend == asked) continue;  // devices of one backend lie side by side
    asked = device.backend;
    if (backendSaysPinned(device, pointer)) return true;
  }
  return false;
}

bool isPinnedFor(const void* pointer, c10::DeviceIndex index) {
  if (pointer == nullptr || !activated() || inBadFork() || isShutDown()) return false;
  const DeviceEntry& device = deviceEntry(resolveIndex(index));
  const BackendRecord* owner = pool().ownerOf(pointer);
  return owner != nullptr ? owner == device.backend : backendSaysPinned(device, pointer);
}

bool recordPinnedUse(const void* pointer, c10::Stream stream) {
  if (pointer == nullptr || shut_down.load(std::memory_order_acquire) || inBadFork()) return false;
  return pool().recordUse(pointer, stream);
}

HostMemoryStats hostMemoryStats() {
  throwIfBadFork();
  return pool().stats();
}

void releaseAllHostMemory() noexcept {
  if (shut_down.exchange(true, std::memory_order_acq_rel) || inBadFork()) return;
  pool().shutDown();
}

}  // namespace flagos
