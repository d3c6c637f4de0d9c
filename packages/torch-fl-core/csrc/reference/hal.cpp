// The reference backend: a HAL over host memory. What it supports, at a glance.
#include "flagos/hal.h"

#include "csrc/reference/shared.h"
#include "csrc/reference/tables.h"

namespace {

using namespace flagos::reference;

constexpr flagos_hal_api tables(const flagos_hal_ipc_api* ipc) {
  return {
      sizeof(flagos_hal_api),
      FLAGOS_HAL_ABI_MAJOR,
      FLAGOS_HAL_ABI_MINOR,
      &kSystemApi,
      &kDeviceApi,
      &kMemoryApi,
      &kStreamApi,
      &kEventApi,
      &kHostApi,
      &kPeerApi,
      ipc,
      &kGraphApi,
      &kTraceApi,
      &kAsyncAllocApi,
  };
}

// Memory that other processes can map costs more at its first touch, so the group ipc must be asked for.
constexpr flagos_hal_api kApi = tables(nullptr);
constexpr flagos_hal_api kApiWithIpc = tables(&kIpcApi);

}  // namespace

extern "C" FLAGOS_HAL_EXPORT flagos_hal_status flagos_hal_query(uint32_t core_major, uint32_t core_minor,
                                                                const flagos_hal_api** out_api) {
  (void)core_minor;  // tables only grow: an older core reads less of them, a newer one finds less in them
  if (!out_api) return FLAGOS_HAL_STATUS_INVALID_ARGUMENT;
  *out_api = ipcWanted() ? &kApiWithIpc : &kApi;
  return core_major == FLAGOS_HAL_ABI_MAJOR ? FLAGOS_HAL_STATUS_OK : FLAGOS_HAL_STATUS_ABI_MISMATCH;
}
