// What to do when an operator of a real accelerator runs on the host: nothing, a warning, or an error.
#pragma once

#include "csrc/api.h"
#include "csrc/ops/sources.h"
#include "csrc/runtime/devices.h"

namespace flagos::ops {

enum class FallbackPolicy : int { Allow, Warn, Error };

FLAGOS_API void setFallbackPolicy(FallbackPolicy policy) noexcept;
FLAGOS_API FallbackPolicy fallbackPolicy() noexcept;  // at first that of FLAGOS_FALLBACK

// Told of the first call of each operator that runs on the host. Replaces c10's warning.
FLAGOS_API void setFallbackObserver(void (*observer)(const std::string& op, const std::string& device));

// Before a call of `op` on the host. Throws c10::NotImplementedError under Error.
void noteHostFallback(OpId op, const DeviceEntry& device);

// Forgets which operators were told of.
FLAGOS_API void resetFallbackWarnings() noexcept;

}  // namespace flagos::ops
