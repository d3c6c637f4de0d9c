// All memory that the library knows: device blocks, pinned host blocks and registered host ranges, in one map
// by address.
#pragma once

#include <cstdint>

#include "flagos/hal.h"

namespace flagos::reference {

inline constexpr uint64_t kAlignment = 256;

// Stands for a device where a side of a transfer lies on the host.
inline constexpr int32_t kHost = -1;

// One copy or fill as the caller asked for it.
struct Transfer {
  char* destination = nullptr;
  const char* source = nullptr;  // null: a fill
  int32_t destination_device = kHost;
  int32_t source_device = kHost;
  int32_t value = 0;  // of a fill
  uint64_t size = 0;
  bool isFill() const noexcept { return source == nullptr; }
};

struct Region;

// The memory of one transfer, kept from being released until letGo, and the addresses by which the library
// reaches it.
struct Hold {
  Region* regions[2] = {nullptr, nullptr};
  char* destination = nullptr;
  const char* source = nullptr;
};

// Checks both sides of the transfer and takes hold of them. INVALID_HANDLE for a device address that is not
// of a live allocation of that device, INVALID_ARGUMENT for a range past its end, an overlap, or device
// memory on a host's side that the host cannot touch.
flagos_hal_status takeHold(const Transfer& transfer, Hold* hold);
void letGo(const Hold& hold) noexcept;

// allocate without the checks of the device; also for async_alloc.
flagos_hal_status allocateOnDevice(int32_t device, uint64_t size, void** out_pointer);
// release without the checks of the device. With `promised`, only a block that beginRelease marked.
flagos_hal_status releaseFromDevice(int32_t device, void* pointer, bool promised);
// Marks a block that a stream will release: from here on nobody else can use it.
flagos_hal_status beginRelease(int32_t device, void* pointer);
void cancelRelease(void* pointer) noexcept;

// Called by init and shutdown.
void openMemory(bool fault_mode);
void closeMemory() noexcept;
bool memoryFaultMode() noexcept;

}  // namespace flagos::reference
