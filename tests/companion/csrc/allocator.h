// The device's memory: host memory with guard bytes, a registry of live blocks, and c10::DeviceAllocator over
// it.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <string>
#include <vector>

#include "devices.h"

namespace standin {

c10::DeviceAllocator* allocator() noexcept;

// On a device that need not be the current one.
c10::DataPtr allocateOn(c10::DeviceIndex device, size_t bytes);

// The device in whose live memory these bytes lie; −1: they do not lie in one live block.
c10::DeviceIndex ownerOf(const void* pointer, size_t bytes) noexcept;

void recordStream(const c10::DataPtr& pointer, c10::Stream stream);

// For tests.
struct MemoryEvent {
  std::string what;  // allocate, free, record_stream
  uintptr_t address;
  size_t bytes;
  c10::DeviceIndex device;
  c10::StreamId stream;      // current at an allocation; the one recorded
  c10::DeviceIndex current;  // the thread's current device
  bool in_kernel;            // made by a kernel of the stand-in, not by its caller
};
std::vector<MemoryEvent> memoryLog();
void clearMemoryLog();
int64_t liveBlocks(c10::DeviceIndex device);  // −1: all devices
int64_t allocatedBytes(c10::DeviceIndex device);
void checkGuardBytes();  // of the live blocks; damage is a fault
// Lets `skip` allocations pass, then fails `times` of them with c10::OutOfMemoryError.
void failAllocations(int64_t skip, int64_t times);

}  // namespace standin
