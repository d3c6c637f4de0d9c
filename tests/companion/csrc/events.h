// Events: made at their first record, of the device of the stream. PyTorch holds them as void*.
#pragma once

#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstddef>

#include "devices.h"

namespace standin {

void recordEvent(void** event, const c10::Stream& stream, c10::DeviceIndex device, c10::EventFlag flag);
void blockOnEvent(void* event, const c10::Stream& stream);  // null: no-op, here and in the next three
bool queryEvent(void* event);
void synchronizeEvent(void* event);
void destroyEvent(void* event, c10::DeviceIndex device) noexcept;
// Milliseconds; both must have been made with timing (BACKEND_DEFAULT) and recorded, on one device.
double elapsedTime(void* start, void* end, c10::DeviceIndex device);

size_t liveEvents();

}  // namespace standin
