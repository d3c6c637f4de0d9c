// Streams: ids, pools and each thread's current stream. Work runs at once, on the host; a stream only counts
// it.
//
// A StreamId is 0 for the default stream, else a serial number above three bits that tell its kind.
#pragma once

#include <c10/core/Stream.h>

#include <string>

#include "devices.h"

namespace standin {

c10::Stream defaultStream(c10::DeviceIndex device);  // −1: of the current device, here and below
c10::Stream currentStream(c10::DeviceIndex device);
c10::Stream exchangeStream(c10::Stream stream);
c10::Stream pooledStream(c10::DeviceIndex device, bool high_priority);  // one of 32, in turn
c10::Stream freshStream(c10::DeviceIndex device, int priority);         // one that nobody has

// Refuses streams of another device type and ids that were never handed out.
void checkStream(const c10::Stream& stream, const char* what);

// The address of the stream's record; null for the default stream, as CUDA's handle is.
void* nativeHandle(const c10::Stream& stream);

// Counts and logs one piece of work.
void submit(const c10::Stream& stream, std::string what);
int64_t submitted(const c10::Stream& stream);

}  // namespace standin
