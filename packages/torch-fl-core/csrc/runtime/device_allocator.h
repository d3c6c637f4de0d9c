// The caching allocator of device memory: c10::DeviceAllocator over the HAL.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "csrc/runtime/devices.h"

namespace flagos {

// The allocator registered with c10 for PrivateUse1. Never null.
c10::DeviceAllocator* deviceAllocator() noexcept;

// Memory of `device` for use on its current stream; the storage's device is flagos:<device>. 0 bytes give a null pointer that still
// carries the device. Throws c10::OutOfMemoryError after freeing and retrying.
c10::DataPtr allocateOn(c10::DeviceIndex device, size_t bytes);

// The same memory, labelled with the device `label` (used for the outputs of host kernels run over device memory).
c10::DataPtr allocateLabelled(c10::DeviceIndex device, size_t bytes, c10::Device label);

// Whether a DataPtr came from here (by its deleter), whatever device it is labelled with.
bool isFromDeviceAllocator(const c10::DataPtr& pointer) noexcept;

void recordStream(const c10::DataPtr& pointer, c10::Stream stream);
void setMemoryFraction(c10::DeviceIndex device, double fraction);
double memoryFraction(c10::DeviceIndex device);
std::pair<size_t, size_t> memoryInfo(c10::DeviceIndex device);  // free, total, bytes

struct BlockSnapshot { size_t address, size, requested; std::string state; };  // "active_allocated", "active_pending_free", "inactive"
struct SegmentSnapshot {
  c10::DeviceIndex device;
  size_t address, total_size, allocated_size, active_size;
  int64_t stream;
  bool is_large;
  std::vector<BlockSnapshot> blocks;
};
std::vector<SegmentSnapshot> memorySnapshot();

// At shutdown: gives every segment back and turns later frees into no-ops.
void releaseAllDeviceMemory() noexcept;

}  // namespace flagos
