// Streams of the flagos device: c10::Stream values, the pools behind them and each thread's current stream.
//
// A StreamId is 0 for a device's default stream, else 1 + an index into the device's table of streams.
// Entries are never reused: an id means one HAL stream for the life of the process. Where a device cannot
// have as many streams as are asked for, those that exist are handed out again.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <utility>

#include "csrc/runtime/devices.h"

namespace flagos {

inline constexpr int kStreamsPerPool =
    32;  // per device and priority class, made when first asked for, handed out in turn

FLAGOS_API c10::Stream defaultStream(c10::DeviceIndex device);
FLAGOS_API c10::Stream currentStream(c10::DeviceIndex device);  // −1: of the current device
FLAGOS_API void setCurrentStream(c10::Stream stream);           // does not change the current device
// Sets, and returns the one before. After shutdown and in a bad fork too, where it only remembers:
// c10::StreamGuard restores with it in a destructor, and an exception there ends the process.
FLAGOS_API c10::Stream exchangeCurrentStream(c10::Stream stream);
FLAGOS_API c10::Stream streamFromPool(c10::DeviceIndex device, bool high_priority);
FLAGOS_API c10::Stream newStream(c10::DeviceIndex device,
                                 int priority);  // from the pool of that (clamped) priority
// Takes over a HAL stream that the caller made and keeps alive; the same handle gives the same stream again.
FLAGOS_API c10::Stream externalStream(flagos_hal_stream* stream, c10::DeviceIndex device);

// The HAL handle behind a stream; one table look-up without a lock. Throws for an id that was never given
// out.
FLAGOS_API flagos_hal_stream* streamHandle(c10::Stream stream);
FLAGOS_API void* nativeHandle(c10::Stream stream);
FLAGOS_API int streamPriority(c10::Stream stream);
FLAGOS_API std::pair<int, int> streamPriorityRange(
    c10::DeviceIndex device);  // least, greatest: least ≥ 0 ≥ greatest

FLAGOS_API bool queryStream(c10::Stream stream);  // true when idle
FLAGOS_API void synchronizeStream(c10::Stream stream);
FLAGOS_API void synchronizeDevice(c10::DeviceIndex device);
bool isStreamCapturing(c10::Stream stream);  // false where the backend captures nothing

// Waits until the current stream of `device` is idle; the hot path of host kernels: a query when idle.
FLAGOS_API void drainCurrentStream(const DeviceEntry& device);

}  // namespace flagos
