// Group host: memory of the host that every device copies from and to while the host goes on. Copies of the
// reference backend never need the host's thread, so nothing is locked into memory; what pinning means here
// is that the library knows the range.
#include <mutex>
#include <shared_mutex>

#include "csrc/reference/capture.h"
#include "csrc/reference/memory.h"
#include "csrc/reference/regions.h"
#include "csrc/reference/status.h"
#include "csrc/reference/tables.h"

namespace flagos::reference {

namespace {

flagos_hal_status allocate(uint64_t size, void** out_pointer) {
  return invoke(Function::host_allocate, -1, [&]() -> flagos_hal_status {
    FLAGOS_HAL_REQUIRE(out_pointer, INVALID_ARGUMENT, "out_pointer is null");
    if (size == 0) {
      *out_pointer = nullptr;
      return kOk;
    }
    FLAGOS_HAL_REQUIRE(size <= uint64_t{1} << 46, OUT_OF_MEMORY,
                       "%llu bytes of pinned memory are more than any host has",
                       static_cast<unsigned long long>(size));
    FLAGOS_HAL_TRY(refuseDuringCapture("host.allocate"));
    Block block;
    FLAGOS_HAL_TRY(mapBlock(size, &block));
    FLAGOS_HAL_TRY(addRegion(block, size, kHost, Origin::Pinned));
    *out_pointer = block.base;
    return kOk;
  });
}

flagos_hal_status release(void* pointer) {
  return invokeRelease(Function::host_release, -1, [&]() -> flagos_hal_status {
    if (!pointer) return kOk;
    FLAGOS_HAL_TRY(refuseDuringCapture("host.release"));
    Block block;
    uint64_t size = 0;
    FLAGOS_HAL_TRY(takeRegion(pointer, kHost, Origin::Pinned, false, &block, &size));
    unmapBlock(block);
    return kOk;
  });
}

flagos_hal_status registerRange(void* pointer, uint64_t size) {
  return invoke(Function::host_register_range, -1, [&] {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(pointer);
    FLAGOS_HAL_REQUIRE(pointer && size != 0, INVALID_ARGUMENT, "the range is empty: %p, %llu bytes", pointer,
                       static_cast<unsigned long long>(size));
    FLAGOS_HAL_REQUIRE(size <= UINTPTR_MAX - begin, INVALID_ARGUMENT,
                       "%llu bytes from %p on go past the end of the address space",
                       static_cast<unsigned long long>(size), pointer);
    RegionMap& map = regionMap();
    std::unique_lock<std::shared_mutex> lock(map.mutex);
    // Regions do not overlap, so only the last one that begins before the end of the range can reach into it.
    auto after = map.regions.lower_bound(begin + size);
    if (after != map.regions.begin()) {
      const Region& before = std::prev(after)->second;
      FLAGOS_HAL_REQUIRE(
          before.base + before.size <= begin, INVALID_STATE,
          "%llu bytes from %p on overlap %s of %llu bytes at %p", static_cast<unsigned long long>(size),
          pointer,
          before.origin == Origin::Registered ? "a registered range" : "memory that the library allocated",
          static_cast<unsigned long long>(before.size), reinterpret_cast<void*>(before.base));
    }
    Region& region = map.regions[begin];
    region.base = begin;
    region.size = size;
    region.origin = Origin::Registered;
    region.block.alias = static_cast<char*>(pointer);
    return kOk;
  });
}

flagos_hal_status unregisterRange(void* pointer) {
  return invokeRelease(Function::host_unregister_range, -1, [&]() -> flagos_hal_status {
    Block block;
    uint64_t size = 0;
    return takeRegion(pointer, kHost, Origin::Registered, false, &block, &size);
  });
}

}  // namespace

// begin_access and end_access are for memory that the host reaches in between only; here it always may, or
// never.
const flagos_hal_host_api kHostApi = {sizeof(kHostApi), allocate, release, registerRange,
                                      unregisterRange,  nullptr,  nullptr};

}  // namespace flagos::reference
