// The blocks of pinned host memory behind the host allocator: a cache by size class for each backend.
//
// Locks, in the order in which a thread may take them: slow_mutex_ (one thread runs the out-of-memory ladder
// or empties the cache), PendingEvents' own, mutex_ (free lists, block states, statistics), index_mutex_ (the
// map by address; shared for look-ups). Only slow_mutex_ is held across HAL calls; a free does not take it.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "csrc/runtime/devices.h"
#include "csrc/runtime/host_allocator.h"
#include "csrc/runtime/pending_events.h"

namespace flagos {

struct HostBlock {
  char* address = nullptr;
  size_t size = 0;                      // its size class
  const DeviceEntry* device = nullptr;  // of the backend that pinned it
  std::vector<c10::Stream> uses;        // streams with queued work on it, since it was allocated
  uint32_t pending = 0;                 // events that must be reached before it is free
  bool allocated = false;
};

// Sizes of 4 KiB and up, four to each power of two: at most a quarter of a block is unused.
size_t hostSizeClass(size_t bytes) noexcept;

class HostPool {
 public:
  HostBlock* allocate(size_t bytes, const DeviceEntry& device);
  void release(HostBlock* block) noexcept;
  bool recordUse(const void* pointer, c10::Stream stream);
  // The backend that pinned the memory around `pointer`, null if it is none of ours.
  const BackendRecord* ownerOf(const void* pointer) const;
  void emptyCache();
  HostMemoryStats stats();
  void resetPeakStats();
  void resetAccumulatedStats();
  void shutDown() noexcept;

 private:
  using FreeLists = std::unordered_map<size_t, std::vector<HostBlock*>>;  // by size class

  HostBlock* takeCached(size_t size, const DeviceEntry& device);
  HostBlock* grow(size_t size, const DeviceEntry& device, flagos_hal_status& status);
  void hand(HostBlock* block);
  void finishFree(HostBlock* block);
  std::exception_ptr collect(PendingEvents::Mode mode);
  std::exception_ptr releaseFree(const BackendRecord* only);
  HostBlock* find(const void* pointer) const;

  std::mutex slow_mutex_;
  PendingEvents pending_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::unordered_map<const BackendRecord*, FreeLists> free_;
  HostMemoryStats stats_;
  bool closed_ = false;

  mutable std::shared_mutex index_mutex_;
  std::map<uintptr_t, std::unique_ptr<HostBlock>> index_;  // guarded by index_mutex_
  // Everything lies within; most pointers asked about do not, and need no lock. Only ever widened.
  std::atomic<uintptr_t> lowest_{~uintptr_t{0}};
  std::atomic<uintptr_t> end_{0};
};

}  // namespace flagos
