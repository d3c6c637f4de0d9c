// The map behind memory.h, for the files that put memory into it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <shared_mutex>

#include "csrc/reference/blocks.h"
#include "flagos/hal.h"

namespace flagos::reference {

enum class Origin : uint8_t {
  Device,      // memory.allocate
  Imported,    // ipc.import_memory
  Pinned,      // host.allocate
  Registered,  // host.register_range
};

struct Region {
  uintptr_t base = 0;
  uint64_t size = 0;
  int32_t device = -1;
  Origin origin = Origin::Device;
  bool releasing = false;         // async_alloc.release_async took it; guarded by the map's mutex
  std::atomic<int32_t> holds{0};  // transfers queued or running; taken under the map's mutex (shared will do)
  Block block;                    // what to give back to the system
};

inline bool isDeviceMemory(const Region& region) noexcept {
  return region.origin == Origin::Device || region.origin == Origin::Imported;
}

struct RegionMap {
  std::shared_mutex mutex;  // guards what follows
  std::map<uintptr_t, Region> regions;

  // The region that holds `address`, else null. The mutex is held.
  Region* find(uintptr_t address) noexcept {
    auto it = regions.upper_bound(address);
    if (it == regions.begin()) return nullptr;
    --it;
    return address - it->first < it->second.size ? &it->second : nullptr;
  }
};

RegionMap& regionMap() noexcept;

// Puts the block into the map; gives the block back if that fails.
flagos_hal_status addRegion(const Block& block, uint64_t size, int32_t device, Origin origin);

// Takes the region that begins at `pointer` out of the map if it is of that origin (and, for device memory,
// device) and no transfer holds it, and returns its block to give back.
flagos_hal_status takeRegion(void* pointer, int32_t device, Origin origin, bool promised, Block* block,
                             uint64_t* size);

}  // namespace flagos::reference
