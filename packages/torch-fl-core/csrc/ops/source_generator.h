// Random numbers for kernels of the sources cpu and boxed, drawn from the flagos generator.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>

#include "csrc/ops/operator_call.h"
#include "csrc/runtime/devices.h"

namespace flagos::ops {

// Numbers that one call of a host kernel reserves in the flagos generator, however many it uses: the host's
// generator is keyed by (seed, offset), so calls with different offsets share nothing.
inline constexpr uint64_t kHostReservation = 4;

// A CPU generator whose whole state is a function of the flagos generator's (seed, offset) at this call: the
// same seed gives the same numbers on this source. `given` must be a flagos generator of `device`, or absent
// for the device's default one. The generator belongs to the calling thread and is valid until its next call.
at::Generator hostGenerator(const std::optional<at::Generator>& given, c10::DeviceIndex device);

// What the kernel of `call` gets for a generator argument: the CPU generator of above, or the companion's own
// behind the flagos one. A companion's generator of the same device may be given as it is.
std::optional<at::Generator> sourceGenerator(const std::optional<at::Generator>& given,
                                             const OperatorCall& call);

}  // namespace flagos::ops
