#include "csrc/reference/faults.h"

#include <time.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "csrc/reference/device.h"
#include "csrc/reference/status.h"

namespace flagos::reference {

bool faults_installed = false;

namespace {

const char* const kFunctionNames[] = {
#define FLAGOS_REFERENCE_FUNCTION(group, name) #group "." #name,
#include "csrc/reference/functions.def"
#undef FLAGOS_REFERENCE_FUNCTION
};

const char* const kWorkNames[] = {"copy", "fill", "event", "callback", "other"};

struct StatusName {
  const char* name;
  flagos_hal_status status;
};
const StatusName kStatusNames[] = {
#define FLAGOS_HAL_STATUS(name, number, text) {#name, number},
#include "flagos/hal_status.def"
#undef FLAGOS_HAL_STATUS
};

const char* statusName(flagos_hal_status status) noexcept {
  for (const StatusName& entry : kStatusNames) {
    if (entry.status == status) return entry.name;
  }
  return "?";
}

// The plan in force and how often each target was met. Written by init only; leaked, so that late calls stay
// harmless.
struct Installed {
  FaultPlan plan;
  std::atomic<uint64_t> calls[kTargets] = {};
};
Installed* installed = nullptr;

constexpr int target(Function function) { return static_cast<int>(function); }
constexpr int target(WorkKind kind) { return kFunctionTargets + static_cast<int>(kind); }

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end == std::string::npos ? end : end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

bool parseNumber(const std::string& text, uint64_t limit, uint64_t* value) {
  if (text.empty() || text.size() > 19) return false;
  uint64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    number = number * 10 + static_cast<uint64_t>(c - '0');
  }
  *value = number;
  return number <= limit;
}

int findFunction(const std::string& name) {
  for (int i = 0; i < kFunctionTargets; ++i) {
    if (name == kFunctionNames[i]) return i;
  }
  return -1;
}

int findWork(const std::string& name) {
  for (int i = 0; i + 1 < kWorkTargets; ++i) {
    if (name == kWorkNames[i]) return i;
  }
  return -1;
}

bool parseStatus(const std::string& name, flagos_hal_status* status) {
  for (const StatusName& entry : kStatusNames) {
    if (name == entry.name && entry.status != kOk && entry.status != kNotReady) {
      *status = entry.status;
      return true;
    }
  }
  return false;
}

flagos_hal_status defaultStatus(int index) {
  const std::string name = index < kFunctionTargets ? kFunctionNames[index] : "";
  const bool allocates =
      name == "memory.allocate" || name == "host.allocate" || name == "async_alloc.allocate_async";
  return allocates ? FLAGOS_HAL_STATUS_OUT_OF_MEMORY : FLAGOS_HAL_STATUS_UNKNOWN;
}

// The rule that is due now for the target, or null; counts the call.
const FaultRule* due(int index) {
  const std::vector<FaultRule>& rules = installed->plan.rules[index];
  if (rules.empty()) return nullptr;
  const uint64_t number = installed->calls[index].fetch_add(1, std::memory_order_relaxed) + 1;
  for (const FaultRule& rule : rules) {
    if (number >= rule.first && number <= rule.last) return &rule;
  }
  return nullptr;
}

bool parseFailure(const std::string& entry, FaultPlan* plan, std::string* problem) {
  const std::vector<std::string> halves = split(entry, '=');
  const std::vector<std::string> parts = split(halves[0], ':');
  const std::string& name = parts[0];
  if (halves.size() > 2 || parts.size() > 2) {
    *problem = "'" + entry + "' is not <target>[:<nth>][=<STATUS>]";
    return false;
  }
  uint64_t number = 0;
  if (name == "device.lost") {
    if (parts.size() != 2 || halves.size() != 1 || !parseNumber(parts[1], 63, &number)) {
      *problem = "'" + entry + "' is not device.lost:<index of the device>";
      return false;
    }
    plan->lost_devices.push_back(static_cast<int32_t>(number));
    return true;
  }
  int index = findFunction(name);
  if (index < 0 && (name == "work.copy" || name == "work.fill")) {
    index = kFunctionTargets + findWork(name.substr(5));
  }
  if (index < 0) {
    *problem =
        "'" + name +
        "' is neither a function of hal.h such as memory.allocate, nor work.copy, work.fill or device.lost";
    return false;
  }
  FaultRule rule;
  rule.status = defaultStatus(index);
  if (parts.size() == 2) {
    std::string nth = parts[1];
    const bool onwards = !nth.empty() && nth.back() == '+';
    if (onwards) nth.pop_back();
    if (!parseNumber(nth, UINT64_MAX, &number) || number == 0) {
      *problem = "'" + parts[1] + "' in '" + entry +
                 "' is not a number from 1, with or without a + for 'and all later ones'";
      return false;
    }
    rule.first = number;
    if (!onwards) rule.last = number;
  }
  if (halves.size() == 2 && !parseStatus(halves[1], &rule.status)) {
    *problem = "'" + halves[1] + "' in '" + entry +
               "' is not a failing class of hal_status.def such as UNKNOWN or DEVICE_LOST";
    return false;
  }
  plan->rules[index].push_back(rule);
  return true;
}

bool parseLatency(const std::string& entry, FaultPlan* plan, std::string* problem) {
  const std::vector<std::string> parts = split(entry, ':');
  uint64_t microseconds = 0;
  if (parts.size() != 2 || !parseNumber(parts[1], 60 * 1000 * 1000, &microseconds)) {
    *problem = "'" + entry + "' is not <target>:<microseconds, at most 60000000>";
    return false;
  }
  int index = findFunction(parts[0]);
  if (index < 0) {
    index = findWork(parts[0]);
    if (index >= 0) index += kFunctionTargets;
  }
  if (index < 0) {
    *problem =
        "'" + parts[0] +
        "' is neither a function of hal.h such as memory.copy_async, nor copy, fill, event or callback";
    return false;
  }
  plan->latency_us[index] += static_cast<int64_t>(microseconds);
  return true;
}

// Functions that hand work to a stream's thread: their delay belongs there.
bool queuesWork(Function function) noexcept {
  switch (function) {
    case Function::memory_copy_async:
    case Function::memory_fill_async:
    case Function::stream_wait_event:
    case Function::stream_host_callback:
    case Function::event_record:
    case Function::peer_copy_async:
    case Function::graph_launch:
      return true;
    default:
      return false;
  }
}

}  // namespace

const char* functionName(Function function) noexcept { return kFunctionNames[static_cast<int>(function)]; }

bool FaultPlan::empty() const noexcept {
  for (int i = 0; i < kTargets; ++i) {
    if (!rules[i].empty() || latency_us[i] != 0) return false;
  }
  return lost_devices.empty();
}

bool parseFailures(const std::string& text, FaultPlan* plan, std::string* problem) {
  plan->failures = text;
  for (const std::string& entry : split(text, ',')) {
    if (!parseFailure(entry, plan, problem)) return false;
  }
  return true;
}

bool parseLatencies(const std::string& text, FaultPlan* plan, std::string* problem) {
  for (const std::string& entry : split(text, ',')) {
    if (!parseLatency(entry, plan, problem)) return false;
  }
  return true;
}

void installFaults(FaultPlan plan) {
  if (!installed) installed = new Installed;
  if (plan.failures != installed->plan.failures) {
    for (std::atomic<uint64_t>& calls : installed->calls) calls.store(0, std::memory_order_relaxed);
  }
  installed->plan = std::move(plan);
  faults_installed = !installed->plan.empty();
}

flagos_hal_status injectSlow(Function function, int32_t device) {
  const int index = target(function);
  if (!queuesWork(function)) sleepMicroseconds(installed->plan.latency_us[index]);
  const FaultRule* rule = due(index);
  if (!rule) return kOk;
  if (rule->status == FLAGOS_HAL_STATUS_DEVICE_LOST) loseDevice(device);
  return failVendor(rule->status, kCodeInjected + rule->status, "referenceErrorInjected",
                    "%s failed with %s because FLAGOS_REFERENCE_FAIL asks for it", functionName(function),
                    statusName(rule->status));
}

flagos_hal_status workFailure(WorkKind kind, int32_t device) {
  if (__builtin_expect(!faults_installed, 1)) return kOk;
  const FaultRule* rule = due(target(kind));
  if (!rule) return kOk;
  if (rule->status == FLAGOS_HAL_STATUS_DEVICE_LOST) loseDevice(device);
  return rule->status;
}

int64_t workLatency(WorkKind kind, Function function) {
  if (__builtin_expect(!faults_installed, 1)) return 0;
  const FaultPlan& plan = installed->plan;
  return plan.latency_us[target(kind)] + (queuesWork(function) ? plan.latency_us[target(function)] : 0);
}

void sleepMicroseconds(int64_t microseconds) {
  if (microseconds <= 0) return;
  timespec left = {static_cast<time_t>(microseconds / 1000000),
                   static_cast<long>(microseconds % 1000000 * 1000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
  }
}

}  // namespace flagos::reference
