// What a device is: the HAL's properties, and the form in which PyTorch asks for the data types.
#pragma once

#include <c10/core/DeviceCapability.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <vector>

#include "csrc/runtime/devices.h"

namespace flagos {

FLAGOS_API flagos_hal_device_properties
deviceProperties(c10::DeviceIndex device);  // −1: of the current device

// The data types that the device computes on; nothing if the vendor does not tell.
FLAGOS_API std::optional<std::vector<c10::ScalarType>> deviceDtypes(
    const flagos_hal_device_properties& properties);

// For torch.accelerator.get_device_capability. A vendor that does not tell gets PyTorch's own default, every
// type.
c10::DeviceCapability deviceCapability(c10::DeviceIndex device);

}  // namespace flagos
