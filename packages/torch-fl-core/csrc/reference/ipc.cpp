// Group ipc, there with FLAGOS_REFERENCE_IPC=1: all device memory then lies in one memory file of the process
// (shared.h).
#include <cstring>
#include <mutex>
#include <shared_mutex>

#include "csrc/reference/device.h"
#include "csrc/reference/event.h"
#include "csrc/reference/memory.h"
#include "csrc/reference/regions.h"
#include "csrc/reference/shared.h"
#include "csrc/reference/tables.h"

namespace flagos::reference {

namespace {

static_assert(sizeof(SharedHandle) <= FLAGOS_HAL_IPC_HANDLE_SIZE, "a handle has room for it");

void pack(const SharedHandle& handle, flagos_hal_ipc_handle* out) noexcept {
  *out = flagos_hal_ipc_handle{};
  out->size = sizeof(handle);
  std::memcpy(out->data, &handle, sizeof(handle));
}

flagos_hal_status unpack(const flagos_hal_ipc_handle* in, uint64_t magic, SharedHandle* handle) {
  FLAGOS_HAL_REQUIRE(in, INVALID_ARGUMENT, "the handle is null");
  FLAGOS_HAL_REQUIRE(in->size == sizeof(*handle), INVALID_ARGUMENT,
                     "the handle has %u bytes; one of this library has %zu", in->size, sizeof(*handle));
  std::memcpy(handle, in->data, sizeof(*handle));
  FLAGOS_HAL_REQUIRE(handle->magic == magic, INVALID_ARGUMENT,
                     "the bytes are not a handle of this kind of this library");
  return kOk;
}

flagos_hal_status exportMemory(int32_t device, void* pointer, flagos_hal_ipc_handle* out_handle) {
  return invoke(Function::ipc_export_memory, device, [&] {
    FLAGOS_HAL_REQUIRE(out_handle, INVALID_ARGUMENT, "out_handle is null");
    FLAGOS_HAL_TRY(checkDevice(device));
    RegionMap& map = regionMap();
    std::shared_lock<std::shared_mutex> lock(map.mutex);
    const auto it = map.regions.find(reinterpret_cast<uintptr_t>(pointer));
    FLAGOS_HAL_REQUIRE(it != map.regions.end() && it->second.origin == Origin::Device &&
                           it->second.device == device && !it->second.releasing,
                       INVALID_HANDLE, "%p is not the start of memory that was allocated on device %d",
                       pointer, device);
    pack(handleOf(kMemoryMagic, it->second.block, it->second.size), out_handle);
    return kOk;
  });
}

flagos_hal_status importMemory(int32_t device, const flagos_hal_ipc_handle* handle, void** out_pointer) {
  return invoke(Function::ipc_import_memory, device, [&] {
    FLAGOS_HAL_REQUIRE(out_pointer, INVALID_ARGUMENT, "out_pointer is null");
    FLAGOS_HAL_TRY(checkDevice(device));
    SharedHandle shared;
    FLAGOS_HAL_TRY(unpack(handle, kMemoryMagic, &shared));
    Block block;
    FLAGOS_HAL_TRY(mapForeignBlock(shared, memoryFaultMode(), &block));
    FLAGOS_HAL_TRY(addRegion(block, shared.size, device, Origin::Imported));
    *out_pointer = block.base;
    return kOk;
  });
}

flagos_hal_status closeMemory(int32_t device, void* pointer) {
  return invokeRelease(Function::ipc_close_memory, device, [&]() -> flagos_hal_status {
    FLAGOS_HAL_TRY(checkIndex(device));
    Block block;
    uint64_t size = 0;
    FLAGOS_HAL_TRY(takeRegion(pointer, device, Origin::Imported, false, &block, &size));
    unmapBlock(block);
    return kOk;
  });
}

flagos_hal_status exportEvent(flagos_hal_event* handle, flagos_hal_ipc_handle* out_handle) {
  return invokeOnEvent(Function::ipc_export_event, handle, [&](Event& event) {
    FLAGOS_HAL_REQUIRE(out_handle, INVALID_ARGUMENT, "out_handle is null");
    FLAGOS_HAL_REQUIRE(event.shared, INVALID_STATE, "the event was made without INTERPROCESS");
    FLAGOS_HAL_REQUIRE(event.shared->block().shared == Block::Shared::Own, INVALID_STATE,
                       "the event is another process'; only that one can export it");
    pack(handleOf(kEventMagic, event.shared->block(), sizeof(SharedEvent)), out_handle);
    return kOk;
  });
}

flagos_hal_status importEvent(int32_t device, const flagos_hal_ipc_handle* handle,
                              flagos_hal_event** out_event) {
  return invoke(Function::ipc_import_event, device, [&] {
    FLAGOS_HAL_REQUIRE(out_event, INVALID_ARGUMENT, "out_event is null");
    FLAGOS_HAL_TRY(checkDevice(device));
    SharedHandle shared;
    FLAGOS_HAL_TRY(unpack(handle, kEventMagic, &shared));
    Block block;
    FLAGOS_HAL_TRY(mapForeignBlock(shared, false, &block));
    return openEvent(device, FLAGOS_HAL_EVENT_INTERPROCESS, std::make_shared<SharedEventPart>(block),
                     out_event);
  });
}

}  // namespace

const flagos_hal_ipc_api kIpcApi = {sizeof(kIpcApi), exportMemory, importMemory,
                                    closeMemory,     exportEvent,  importEvent};

}  // namespace flagos::reference
