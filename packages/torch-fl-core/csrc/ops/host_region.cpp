#include "csrc/ops/host_region.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceType.h>

#include <cstring>
#include <iterator>
#include <mutex>
#include <vector>

#include "csrc/runtime/device_allocator.h"
#include "csrc/runtime/devices.h"

namespace flagos::ops {

namespace {

thread_local c10::DeviceIndex region_device = -1;

// A library may take memory through c10's raw interface, which hands out bare addresses and frees them
// through raw_deleter(), perhaps in another region or thread. So the context of region memory is its address.
// The allocator's own context, which a result needs, is found in this list of the thread's recent
// allocations, else by the address.
struct Allocation {
  void* address;
  void* context;
};
thread_local std::vector<Allocation> recent;

void* takeContext(void* address) noexcept {
  for (auto entry = recent.rbegin(); entry != recent.rend(); ++entry) {
    if (entry->address != address) continue;
    void* context = entry->context;
    recent.erase(std::next(entry).base());
    return context;
  }
  return contextOfAddress(address);
}

void deleteRegionMemory(void* address);

class RegionAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device host(c10::DeviceType::CPU);
    if (C10_LIKELY(region_device < 0)) return outer_->allocate(bytes);
    c10::DataPtr pointer = allocateLabelled(region_device, bytes, host);
    void* address = pointer.get();
    if (address == nullptr) return {nullptr, host};
    recent.push_back({address, pointer.release_context()});
    return {address, address, &deleteRegionMemory, host};
  }

  // Serves memory of both kinds, since it may be freed elsewhere than it was allocated.
  c10::DeleterFnPtr raw_deleter() const override {
    return outer_->raw_deleter() != nullptr ? &deleteRegionMemory : nullptr;
  }

  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }

  c10::Allocator* outer_ = nullptr;
};

RegionAllocator& instance() {
  static auto* allocator = new RegionAllocator();
  return *allocator;
}

void deleteRegionMemory(void* address) {
  if (address == nullptr) return;
  if (void* context = takeContext(address)) {
    pointerFromContext(context, c10::Device(c10::DeviceType::CPU)).clear();
  } else if (!isShutDown()) {
    instance().outer_->raw_deleter()(address);
  }
}

}  // namespace

void installHostRegionAllocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    RegionAllocator& allocator = instance();
    allocator.outer_ = c10::GetCPUAllocator();
    c10::SetCPUAllocator(&allocator);
  });
}

HostRegion::HostRegion(c10::DeviceIndex device) noexcept : outer_(region_device), first_(recent.size()) {
  region_device = device;
}

HostRegion::~HostRegion() {
  region_device = outer_;
  if (recent.size() > first_) recent.resize(first_);  // what is left is found by its address
}

c10::DataPtr adoptRegionMemory(c10::DataPtr pointer, c10::Device device) {
  if (pointer.get_deleter() != &deleteRegionMemory) return pointer;
  void* context = takeContext(pointer.get());
  if (context == nullptr) return pointer;
  (void)pointer.release_context();
  return pointerFromContext(context, device);
}

c10::Allocator* hostRegionAllocator() noexcept { return &instance(); }

}  // namespace flagos::ops
