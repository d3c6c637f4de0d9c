// The region in which a host kernel runs over device memory: allocations that this thread makes for CPU
// tensors then come from the device's own allocator, so that a kernel's results already lie where flagos
// tensors keep their data.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstddef>

namespace flagos::ops {

// Puts the forwarding allocator in front of the process' CPU allocator. Done once, when a device whose memory
// the host may touch first runs an operator; outside a region it costs one thread-local test per allocation.
void installHostRegionAllocator();

// Entered with the device (global index) whose memory CPU allocations of this thread shall use. Regions nest.
class HostRegion {
 public:
  explicit HostRegion(c10::DeviceIndex device) noexcept;
  ~HostRegion();
  HostRegion(const HostRegion&) = delete;
  HostRegion& operator=(const HostRegion&) = delete;

 private:
  c10::DeviceIndex outer_;
  size_t first_;
};

// Takes memory that was allocated in a region over as device memory: a DataPtr of the device's allocator with
// the label `device`. Any other DataPtr comes back unchanged.
c10::DataPtr adoptRegionMemory(c10::DataPtr pointer, c10::Device device);

// The allocator that a storage lent to a host kernel grows with.
c10::Allocator* hostRegionAllocator() noexcept;

}  // namespace flagos::ops
