// The caching allocator of device memory: c10::DeviceAllocator over the HAL.
//
// The context of a DataPtr is the allocator's Block, not the address: a free then needs no look-up. Therefore
// raw_deleter() is null (c10's raw_allocate asks for context == address); rawAllocate and rawRelease below
// serve callers that hold bare addresses. c10's lazy copies (torch._lazy_clone) ask for the same and are
// refused.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/api.h"
#include "csrc/runtime/devices.h"
#include "csrc/runtime/memory_history.h"

namespace flagos {

// The allocator registered with c10 for PrivateUse1. Never null.
FLAGOS_API c10::DeviceAllocator* deviceAllocator() noexcept;

// Memory of `device` for use on its current stream; the storage's device is flagos:<device>. 0 bytes give a
// null pointer that still carries the device. Throws c10::OutOfMemoryError after freeing and retrying.
FLAGOS_API c10::DataPtr allocateOn(c10::DeviceIndex device, size_t bytes);

// The same memory, labelled with the device `label` (used for the outputs of host kernels run over device
// memory).
FLAGOS_API c10::DataPtr allocateLabelled(c10::DeviceIndex device, size_t bytes, c10::Device label);

// For memory that travels as a bare address (c10's raw allocations, whose context is the address): the
// context that a DataPtr of this allocator has for it, or null where `address` is not the start of memory
// that is allocated here; and such a DataPtr.
void* contextOfAddress(const void* address) noexcept;
c10::DataPtr pointerFromContext(void* context, c10::Device label);

// Whether a DataPtr came from here (by its deleter), whatever device it is labelled with.
FLAGOS_API bool isFromDeviceAllocator(const c10::DataPtr& pointer) noexcept;

// Keeps the memory from reuse until `stream` (of any device) has passed the point where it is freed. Memory
// that did not come from here is left alone; a DataPtr that wraps ours under another deleter is found by its
// address.
FLAGOS_API void recordStream(const c10::DataPtr& pointer, c10::Stream stream);

FLAGOS_API void setMemoryFraction(c10::DeviceIndex device,
                                  double fraction);  // in [0, 1], of the device's total memory
FLAGOS_API double memoryFraction(c10::DeviceIndex device);
FLAGOS_API std::pair<size_t, size_t> memoryInfo(c10::DeviceIndex device);  // free, total, bytes

// The device whose memory `pointer` (any address) lies in, by our own segments; −1 if none.
FLAGOS_API c10::DeviceIndex deviceOfPointer(const void* pointer);

// Memory by bare address, for use on the given stream; 0 bytes give null. rawRelease takes such an address,
// or null.
FLAGOS_API void* rawAllocate(c10::DeviceIndex device, size_t bytes, c10::StreamId stream);
FLAGOS_API void rawRelease(void* pointer);

// Caching: memory is kept and reused. Direct (FLAGOS_ALLOCATOR=direct): every allocation is one of the HAL,
// and a free waits for the streams that used the memory and gives it back; slow, for finding faults. Applies
// to later allocations.
enum class AllocatorMode { Caching, Direct };
FLAGOS_API void setAllocatorMode(AllocatorMode mode) noexcept;
FLAGOS_API AllocatorMode allocatorMode() noexcept;

// Called with (device, bytes asked, device total, device free) before an out-of-memory error is thrown,
// without any lock held.
using OutOfMemoryObserver = std::function<void(c10::DeviceIndex, size_t, size_t, size_t)>;
FLAGOS_API void addOutOfMemoryObserver(OutOfMemoryObserver observer);
void notifyOutOfMemory(c10::DeviceIndex device, size_t asked, size_t total, size_t free);

struct BlockSnapshot {
  size_t address, size, requested;
  std::string state;  // "active_allocated", "active_pending_free", "inactive"
  ContextPtr context;
};
struct SegmentSnapshot {
  c10::DeviceIndex device;
  size_t address, total_size, allocated_size, active_size, requested_size;
  int64_t stream;
  bool is_large;
  std::vector<BlockSnapshot> blocks;
  ContextPtr context;
};
FLAGOS_API std::vector<SegmentSnapshot> memorySnapshot();

// The recorded actions of each device that was used, by index; see memory_history.h.
FLAGOS_API std::vector<std::vector<TraceRecord>> memoryTraces();
FLAGOS_API void recordMemoryHistory(const HistoryOptions& options, bool clear);

// At shutdown, before the backends are: gives free segments back and turns later frees into no-ops. Memory
// that is still in use is left to the backend's own shutdown, since a thread may be touching it.
FLAGOS_API void releaseAllDeviceMemory() noexcept;

}  // namespace flagos
