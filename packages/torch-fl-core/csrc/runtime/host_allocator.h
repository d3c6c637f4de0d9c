// The caching allocator of pinned host memory: at::HostAllocator over the HAL's group host.
//
// Memory is pinned for the backend that gave it, that of the device current at the allocation; to other
// backends it is pageable, which isPinnedFor tells. A block that was used by queued work (recordPinnedUse) is
// reused only when those streams have passed the point where it was freed.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstdint>

#include "csrc/api.h"
#include "csrc/runtime/devices.h"

namespace flagos {

FLAGOS_API at::HostAllocator* hostAllocator() noexcept;

// Whether `pointer` lies in pinned memory of this allocator, or of a selected backend. Starts no backend.
FLAGOS_API bool isPinned(const void* pointer);

// Likewise, of the backend of `device`: what that backend copies from and to without blocking the host.
FLAGOS_API bool isPinnedFor(const void* pointer, c10::DeviceIndex device);

// Keeps the block that holds `pointer` from reuse until `stream` has passed this point. True if it was one of
// ours.
FLAGOS_API bool recordPinnedUse(const void* pointer, c10::Stream stream);

// The allocator's statistics in full; get_stats() of the allocator has what the torch minor knows of them.
struct HostMemoryStats {
  c10::CachingAllocator::Stat active_requests;  // blocks in use
  c10::CachingAllocator::Stat active_bytes;
  c10::CachingAllocator::Stat allocations;  // blocks held, in use or not
  c10::CachingAllocator::Stat allocated_bytes;
  c10::CachingAllocator::DurationStat alloc_time;  // microseconds in the HAL
  c10::CachingAllocator::DurationStat free_time;
  int64_t num_alloc = 0;  // calls of the HAL
  int64_t num_free = 0;
  std::array<int64_t, 64> buckets{};  // blocks in use, by the power of two that holds their size
};
FLAGOS_API HostMemoryStats hostMemoryStats();

FLAGOS_API void releaseAllHostMemory() noexcept;

}  // namespace flagos
