// Failures and delays on demand, so that what is above the HAL can be tested against them.
//
// FLAGOS_REFERENCE_FAIL=<target>[:<nth>][=<STATUS>][,…]
//
//   <target>: a function of hal.h, "memory.allocate": the call fails and changes nothing. Or "work.copy",
//   "work.fill": the work is accepted, fails on the stream's thread and has no effect there. The next query
//   or synchronize of the stream, or synchronize of its device, reports it once. Later work runs.
//
//   <nth>: "3" means the third call only; "3+" that and every later one; nothing: every call. Calls are
//   counted from the first init on, also past a shutdown; an init that finds another value counts anew. Of
//   several rules for one target the first that is due holds.
//
//   <STATUS>: a class of hal_status.def. Default: OUT_OF_MEMORY for memory.allocate, host.allocate and
//   async_alloc.allocate_async, else UNKNOWN. With DEVICE_LOST the device that the call or the work belongs
//   to is lost from then on.
//
//   "device.lost:<index>" is the device <index> being lost from the start.
//
// FLAGOS_REFERENCE_LATENCY=<target>:<microseconds>[,…]
//
//   <target>: "copy", "fill", "event", "callback": each piece of work of that kind takes that much longer, on
//   the stream's thread (a synchronous copy or fill: on the caller's). Or a function of hal.h: functions that
//   queue work pass the delay on to the stream's thread, in front of the work; all others sleep in the
//   calling thread. Delays add up.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "flagos/hal.h"

namespace flagos::reference {

// Typed, so that a lambda that returns these and the result of a call has one return type.
inline constexpr flagos_hal_status kOk = FLAGOS_HAL_STATUS_OK;
inline constexpr flagos_hal_status kNotReady = FLAGOS_HAL_STATUS_NOT_READY;

enum class Function : uint8_t {
#define FLAGOS_REFERENCE_FUNCTION(group, name) group##_##name,
#include "csrc/reference/functions.def"
#undef FLAGOS_REFERENCE_FUNCTION
  kCount
};

// "memory.allocate"
const char* functionName(Function function) noexcept;

// Kinds of work that a stream's thread does.
enum class WorkKind : uint8_t { Copy, Fill, Event, Callback, Other, kCount };

inline constexpr int kFunctionTargets = static_cast<int>(Function::kCount);
inline constexpr int kWorkTargets = static_cast<int>(WorkKind::kCount);
inline constexpr int kTargets = kFunctionTargets + kWorkTargets;

struct FaultRule {
  uint64_t first = 1;  // calls are numbered from 1
  uint64_t last = UINT64_MAX;
  flagos_hal_status status = FLAGOS_HAL_STATUS_UNKNOWN;
};

struct FaultPlan {
  std::vector<FaultRule> rules[kTargets];
  int64_t latency_us[kTargets] = {};
  std::vector<int32_t> lost_devices;
  std::string failures;  // the text that the rules were read from
  bool empty() const noexcept;
};

// Parses one variable into `plan`; on a mistake returns false and says in `problem` which entry and what is
// allowed.
bool parseFailures(const std::string& text, FaultPlan* plan, std::string* problem);
bool parseLatencies(const std::string& text, FaultPlan* plan, std::string* problem);

// Makes `plan` the one in force; counts calls anew if its failures are others than before.
void installFaults(FaultPlan plan);

extern bool faults_installed;  // written by init only

flagos_hal_status injectSlow(Function function, int32_t device);

// OK, or the failure that is due in this call. `device` is the one the call acts on, −1 if none.
inline flagos_hal_status inject(Function function, int32_t device) {
  return __builtin_expect(faults_installed, 0) ? injectSlow(function, device) : kOk;
}

// The failure that is due in this piece of work, or OK. Leaves no detail: the stream keeps it (stream.h).
flagos_hal_status workFailure(WorkKind kind, int32_t device);

// Microseconds by which this piece of work, queued by that function, is late.
int64_t workLatency(WorkKind kind, Function function);

void sleepMicroseconds(int64_t microseconds);

}  // namespace flagos::reference
