// The groups, one table in the file of each subject.
#pragma once

#include "flagos/hal.h"

namespace flagos::reference {

extern const flagos_hal_system_api kSystemApi;
extern const flagos_hal_device_api kDeviceApi;
extern const flagos_hal_memory_api kMemoryApi;
extern const flagos_hal_stream_api kStreamApi;
extern const flagos_hal_event_api kEventApi;
extern const flagos_hal_host_api kHostApi;
extern const flagos_hal_peer_api kPeerApi;
extern const flagos_hal_ipc_api kIpcApi;
extern const flagos_hal_graph_api kGraphApi;
extern const flagos_hal_trace_api kTraceApi;
extern const flagos_hal_async_alloc_api kAsyncAllocApi;

}  // namespace flagos::reference
