#include "csrc/reference/memory.h"

#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "csrc/reference/capture.h"
#include "csrc/reference/device.h"
#include "csrc/reference/queue.h"
#include "csrc/reference/regions.h"
#include "csrc/reference/shared.h"
#include "csrc/reference/status.h"
#include "csrc/reference/stream.h"
#include "csrc/reference/tables.h"
#include "csrc/reference/trace.h"

namespace flagos::reference {

namespace {

bool fault_mode = false;  // written by init only

uint64_t roundToAlignment(uint64_t size) noexcept {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

// Takes `size` bytes of the simulated device's memory.
flagos_hal_status takeCapacity(Device& device, uint64_t size, uint64_t asked) {
  uint64_t used = device.used.load(std::memory_order_relaxed);
  do {
    if (size > device.capacity - used) {
      return failVendor(FLAGOS_HAL_STATUS_OUT_OF_MEMORY, kCodeCapacity, "referenceErrorMemoryAllocation",
                        "device %d cannot allocate %llu bytes: %llu of %llu are free", device.index,
                        static_cast<unsigned long long>(asked),
                        static_cast<unsigned long long>(device.capacity - used),
                        static_cast<unsigned long long>(device.capacity));
    }
  } while (!device.used.compare_exchange_weak(used, used + size, std::memory_order_acq_rel));
  return kOk;
}

const char* describe(const Region& region) noexcept {
  switch (region.origin) {
    case Origin::Device:
    case Origin::Imported:
      return "device memory";
    case Origin::Pinned:
      return "pinned memory";
    case Origin::Registered:
      return "a registered range";
  }
  return "memory";
}

flagos_hal_status mapDeviceBlock(uint64_t size, Block* block) {
  if (ipcWanted()) return mapSharedBlock(size, fault_mode, block);
  return fault_mode ? mapFaultingBlock(size, block) : mapBlock(size, block);
}

// Finds one side of a transfer. The map's mutex is held, shared.
flagos_hal_status findSide(const char* what, const void* pointer, int32_t device, uint64_t size,
                           Region** out_region, char** out_address) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  Region* region = regionMap().find(address);
  *out_address = const_cast<char*>(static_cast<const char*>(pointer));
  *out_region = region;
  if (device == kHost) {
    if (!region) return kOk;  // pageable memory
    FLAGOS_HAL_REQUIRE(
        !isDeviceMemory(*region) || !fault_mode, INVALID_ARGUMENT,
        "the %s %p is given as host memory, but is memory of device %d, which the host cannot touch", what,
        pointer, region->device);
  } else {
    FLAGOS_HAL_REQUIRE(region && isDeviceMemory(*region) && !region->releasing, INVALID_HANDLE,
                       "the %s %p is not device memory of this library", what, pointer);
    FLAGOS_HAL_REQUIRE(region->device == device, INVALID_HANDLE,
                       "the %s %p is memory of device %d, not of device %d", what, pointer, region->device,
                       device);
    *out_address = region->block.alias + (address - region->base);
  }
  const uint64_t left = region->size - (address - region->base);
  FLAGOS_HAL_REQUIRE(size <= left || region->origin == Origin::Registered, INVALID_ARGUMENT,
                     "%llu bytes from the %s %p on go past the end of %s of %llu bytes",
                     static_cast<unsigned long long>(size), what, pointer, describe(*region),
                     static_cast<unsigned long long>(region->size));
  return kOk;
}

}  // namespace

RegionMap& regionMap() noexcept {
  static RegionMap& map = *new RegionMap;  // never destroyed: frees may come while the process ends
  return map;
}

void openMemory(bool fault) { fault_mode = fault; }

void closeMemory() noexcept {
  RegionMap& map = regionMap();
  std::map<uintptr_t, Region> taken;
  {
    std::unique_lock<std::shared_mutex> lock(map.mutex);
    taken.swap(map.regions);
  }
  for (auto& entry : taken) unmapBlock(entry.second.block);
}

bool memoryFaultMode() noexcept { return fault_mode; }

flagos_hal_status addRegion(const Block& block, uint64_t size, int32_t device, Origin origin) {
  RegionMap& map = regionMap();
  const uintptr_t base = reinterpret_cast<uintptr_t>(block.base);
  try {
    std::unique_lock<std::shared_mutex> lock(map.mutex);
    Region& region = map.regions[base];
    region.base = base;
    region.size = size;
    region.device = device;
    region.origin = origin;
    region.block = block;
    return kOk;
  } catch (const std::bad_alloc&) {
    unmapBlock(block);
    return fail(FLAGOS_HAL_STATUS_OUT_OF_MEMORY, "no host memory was left for the record of an allocation");
  }
}

flagos_hal_status takeRegion(void* pointer, int32_t device, Origin origin, bool promised, Block* block,
                             uint64_t* size) {
  RegionMap& map = regionMap();
  std::unique_lock<std::shared_mutex> lock(map.mutex);
  const auto it = map.regions.find(reinterpret_cast<uintptr_t>(pointer));
  FLAGOS_HAL_REQUIRE(
      it != map.regions.end() && it->second.origin == origin && it->second.releasing == promised,
      INVALID_HANDLE,
      "%p is not the start of live memory of this kind; it was released already, or is not from this library",
      pointer);
  const Region& region = it->second;
  FLAGOS_HAL_REQUIRE(region.device == device, INVALID_HANDLE, "%p is memory of device %d, not of device %d",
                     pointer, region.device, device);
  const int32_t holds = region.holds.load(std::memory_order_acquire);
  FLAGOS_HAL_REQUIRE(holds == 0, INVALID_STATE,
                     "%p (%s, %llu bytes) is still used by %d queued transfers; wait for them first", pointer,
                     describe(region), static_cast<unsigned long long>(region.size), holds);
  *block = region.block;
  *size = region.size;
  map.regions.erase(it);
  return kOk;
}

flagos_hal_status takeHold(const Transfer& transfer, Hold* hold) {
  Hold found;
  char* source = nullptr;
  std::shared_lock<std::shared_mutex> lock(regionMap().mutex);
  FLAGOS_HAL_TRY(findSide("destination", transfer.destination, transfer.destination_device, transfer.size,
                          &found.regions[0], &found.destination));
  if (!transfer.isFill()) {
    FLAGOS_HAL_TRY(findSide("source", transfer.source, transfer.source_device, transfer.size,
                            &found.regions[1], &source));
    const uintptr_t to = reinterpret_cast<uintptr_t>(transfer.destination);
    const uintptr_t from = reinterpret_cast<uintptr_t>(transfer.source);
    FLAGOS_HAL_REQUIRE(to + transfer.size <= from || from + transfer.size <= to, INVALID_ARGUMENT,
                       "source %p and destination %p overlap over %llu bytes",
                       static_cast<const void*>(transfer.source), static_cast<void*>(transfer.destination),
                       static_cast<unsigned long long>(transfer.size));
    found.source = source;
  }
  for (Region* region : found.regions) {
    if (region) region->holds.fetch_add(1, std::memory_order_relaxed);
  }
  *hold = found;
  return kOk;
}

void letGo(const Hold& hold) noexcept {
  for (Region* region : hold.regions) {
    if (region) region->holds.fetch_sub(1, std::memory_order_release);
  }
}

flagos_hal_status allocateOnDevice(int32_t device, uint64_t size, void** out_pointer) {
  if (size == 0) {
    *out_pointer = nullptr;
    return kOk;
  }
  Device& owner = deviceAt(device);
  FLAGOS_HAL_REQUIRE(size <= owner.capacity, OUT_OF_MEMORY,
                     "device %d cannot allocate %llu bytes: it has %llu in all", device,
                     static_cast<unsigned long long>(size), static_cast<unsigned long long>(owner.capacity));
  const uint64_t taken = roundToAlignment(size);
  FLAGOS_HAL_TRY(takeCapacity(owner, taken, size));
  Block block;
  flagos_hal_status status = mapDeviceBlock(size, &block);
  if (status == kOk) status = addRegion(block, size, device, Origin::Device);
  if (status != kOk) {
    owner.used.fetch_sub(taken, std::memory_order_acq_rel);
    return status;
  }
  *out_pointer = block.base;
  return kOk;
}

flagos_hal_status releaseFromDevice(int32_t device, void* pointer, bool promised) {
  Block block;
  uint64_t size = 0;
  FLAGOS_HAL_TRY(takeRegion(pointer, device, Origin::Device, promised, &block, &size));
  unmapBlock(block);
  deviceAt(device).used.fetch_sub(roundToAlignment(size), std::memory_order_acq_rel);
  return kOk;
}

flagos_hal_status beginRelease(int32_t device, void* pointer) {
  RegionMap& map = regionMap();
  std::unique_lock<std::shared_mutex> lock(map.mutex);
  const auto it = map.regions.find(reinterpret_cast<uintptr_t>(pointer));
  FLAGOS_HAL_REQUIRE(it != map.regions.end() && it->second.origin == Origin::Device &&
                         !it->second.releasing && it->second.device == device,
                     INVALID_HANDLE, "%p is not the start of live memory of device %d", pointer, device);
  it->second.releasing = true;
  return kOk;
}

void cancelRelease(void* pointer) noexcept {
  RegionMap& map = regionMap();
  std::unique_lock<std::shared_mutex> lock(map.mutex);
  const auto it = map.regions.find(reinterpret_cast<uintptr_t>(pointer));
  if (it != map.regions.end()) it->second.releasing = false;
}

// ------------------------------------------------------------------------------------ group memory ----

namespace {

flagos_hal_status allocate(int32_t device, uint64_t size, void** out_pointer) {
  return invoke(Function::memory_allocate, device, [&] {
    FLAGOS_HAL_REQUIRE(out_pointer, INVALID_ARGUMENT, "out_pointer is null");
    FLAGOS_HAL_TRY(checkDevice(device));
    FLAGOS_HAL_TRY(refuseDuringCapture("memory.allocate"));
    return allocateOnDevice(device, size, out_pointer);
  });
}

flagos_hal_status release(int32_t device, void* pointer) {
  return invokeRelease(Function::memory_release, device, [&]() -> flagos_hal_status {
    FLAGOS_HAL_TRY(checkIndex(device));
    if (!pointer) return kOk;
    FLAGOS_HAL_TRY(refuseDuringCapture("memory.release"));
    return releaseFromDevice(device, pointer, false);
  });
}

// Turns the arguments of a copy into a transfer; the device has been checked.
flagos_hal_status makeCopy(int32_t device, void* destination, const void* source, uint64_t size, int32_t kind,
                           Transfer* transfer) {
  FLAGOS_HAL_REQUIRE(kind >= FLAGOS_HAL_COPY_HOST_TO_HOST && kind <= FLAGOS_HAL_COPY_DEVICE_TO_DEVICE,
                     INVALID_ARGUMENT, "copy kind %d is not one of flagos_hal_copy_kind", kind);
  FLAGOS_HAL_REQUIRE((destination && source) || size == 0, INVALID_ARGUMENT,
                     "destination %p or source %p is null, with %llu bytes", destination, source,
                     static_cast<unsigned long long>(size));
  const bool to_device = kind == FLAGOS_HAL_COPY_HOST_TO_DEVICE || kind == FLAGOS_HAL_COPY_DEVICE_TO_DEVICE;
  const bool from_device = kind == FLAGOS_HAL_COPY_DEVICE_TO_HOST || kind == FLAGOS_HAL_COPY_DEVICE_TO_DEVICE;
  transfer->destination = static_cast<char*>(destination);
  transfer->source = static_cast<const char*>(source);
  transfer->destination_device = to_device ? device : kHost;
  transfer->source_device = from_device ? device : kHost;
  transfer->size = size;
  return kOk;
}

flagos_hal_status makeFill(int32_t device, void* destination, int32_t value, uint64_t size,
                           Transfer* transfer) {
  FLAGOS_HAL_REQUIRE(value >= 0 && value <= 255, INVALID_ARGUMENT, "fill value %d is not 0 to 255", value);
  FLAGOS_HAL_REQUIRE(destination || size == 0, INVALID_ARGUMENT, "the destination is null, with %llu bytes",
                     static_cast<unsigned long long>(size));
  transfer->destination = static_cast<char*>(destination);
  transfer->destination_device = device;
  transfer->value = value;
  transfer->size = size;
  return kOk;
}

// Does a synchronous transfer on the calling thread.
flagos_hal_status runNow(int32_t device, const Transfer& transfer, Function function) {
  if (transfer.size == 0) return kOk;
  FLAGOS_HAL_TRY(refuseDuringCapture(functionName(function)));
  Hold hold;
  FLAGOS_HAL_TRY(takeHold(transfer, &hold));
  sleepMicroseconds(workLatency(transfer.isFill() ? WorkKind::Fill : WorkKind::Copy, function));
  const int64_t start = steadyNanoseconds();
  transferNow(transfer, hold);
  letGo(hold);
  if (tracing()) traceTransfer(device, 0, currentCorrelation(), start, steadyNanoseconds(), transfer);
  return kOk;
}

flagos_hal_status copy(int32_t device, void* destination, const void* source, uint64_t size, int32_t kind) {
  return invoke(Function::memory_copy, device, [&] {
    FLAGOS_HAL_TRY(checkDevice(device));
    Transfer transfer;
    FLAGOS_HAL_TRY(makeCopy(device, destination, source, size, kind, &transfer));
    return runNow(device, transfer, Function::memory_copy);
  });
}

flagos_hal_status copyAsync(flagos_hal_stream* handle, void* destination, const void* source, uint64_t size,
                            int32_t kind) {
  return invokeOnStream(Function::memory_copy_async, handle, [&](Stream& stream) {
    Transfer transfer;
    FLAGOS_HAL_TRY(makeCopy(stream.device, destination, source, size, kind, &transfer));
    return queueTransfer(stream, transfer, Function::memory_copy_async);
  });
}

flagos_hal_status fill(int32_t device, void* destination, int32_t value, uint64_t size) {
  return invoke(Function::memory_fill, device, [&] {
    FLAGOS_HAL_TRY(checkDevice(device));
    Transfer transfer;
    FLAGOS_HAL_TRY(makeFill(device, destination, value, size, &transfer));
    return runNow(device, transfer, Function::memory_fill);
  });
}

flagos_hal_status fillAsync(flagos_hal_stream* handle, void* destination, int32_t value, uint64_t size) {
  return invokeOnStream(Function::memory_fill_async, handle, [&](Stream& stream) {
    Transfer transfer;
    FLAGOS_HAL_TRY(makeFill(stream.device, destination, value, size, &transfer));
    return queueTransfer(stream, transfer, Function::memory_fill_async);
  });
}

flagos_hal_status pointerInfo(const void* pointer, flagos_hal_pointer_info* out_info) {
  return invoke(Function::memory_pointer_info, -1, [&] {
    flagos_hal_pointer_info info = {};
    info.kind = FLAGOS_HAL_MEMORY_UNKNOWN;
    info.device = -1;
    {
      std::shared_lock<std::shared_mutex> lock(regionMap().mutex);
      if (const Region* region = regionMap().find(reinterpret_cast<uintptr_t>(pointer))) {
        info.kind = isDeviceMemory(*region) ? FLAGOS_HAL_MEMORY_DEVICE : FLAGOS_HAL_MEMORY_PINNED;
        info.device = region->device;
        info.base = reinterpret_cast<void*>(region->base);
        info.size = region->size;
      }
    }
    return hal_support::writeSized(out_info, info);
  });
}

}  // namespace

const flagos_hal_memory_api kMemoryApi = {sizeof(kMemoryApi), allocate, release,   copy,
                                          copyAsync,          fill,     fillAsync, pointerInfo};

}  // namespace flagos::reference
