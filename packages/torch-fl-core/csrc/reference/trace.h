// Recording of what streams do, for profilers.
#pragma once

#include <atomic>
#include <cstdint>

#include "csrc/reference/memory.h"

namespace flagos::reference {

extern std::atomic<bool> trace_running;

inline bool tracing() noexcept { return trace_running.load(std::memory_order_acquire); }

// The id that work queued by this thread carries.
uint64_t currentCorrelation() noexcept;

// Deliver an activity that has ended. `stream` is Stream::number, 0 for a synchronous call; times are those
// of steadyNanoseconds.
void traceTransfer(int32_t device, uint64_t stream, uint64_t correlation, int64_t start, int64_t end,
                   const Transfer& transfer);
void traceCallback(int32_t device, uint64_t stream, uint64_t correlation, int64_t start, int64_t end);

// Called by init and shutdown.
void openTrace() noexcept;
void closeTrace() noexcept;

}  // namespace flagos::reference
