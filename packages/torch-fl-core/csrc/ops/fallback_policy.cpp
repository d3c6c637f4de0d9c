#include "csrc/ops/fallback_policy.h"

#include <array>
#include <atomic>

#include "csrc/runtime/settings.h"

namespace flagos::ops {

namespace {

constexpr int kUnset = -1;
std::atomic<int> policy{kUnset};
std::atomic<void (*)(const std::string&, const std::string&)> observer{nullptr};
std::array<std::atomic<bool>, kMaxOps> told{};

FallbackPolicy policyOfSetting() {
  const std::string value = setting("FLAGOS_FALLBACK", "warn");
  if (value == "allow") return FallbackPolicy::Allow;
  return value == "error" ? FallbackPolicy::Error : FallbackPolicy::Warn;
}

}  // namespace

void setFallbackPolicy(FallbackPolicy value) noexcept { policy.store(static_cast<int>(value)); }

FallbackPolicy fallbackPolicy() noexcept {
  int now = policy.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(now == kUnset)) {
    int unset = kUnset;  // settings are final once a device is in use
    policy.compare_exchange_strong(unset, static_cast<int>(policyOfSetting()));
    now = policy.load(std::memory_order_relaxed);
  }
  return static_cast<FallbackPolicy>(now);
}

void setFallbackObserver(void (*function)(const std::string&, const std::string&)) {
  observer.store(function);
}

void noteHostFallback(OpId op, const DeviceEntry& device) {
  const FallbackPolicy now = fallbackPolicy();
  if (now == FallbackPolicy::Allow) return;
  TORCH_CHECK_NOT_IMPLEMENTED(
      now != FallbackPolicy::Error, "flagos: ", opName(op), " would run on the host: no source of ",
      describeDevice(device),
      " implements it, or its route says so. FLAGOS_FALLBACK=error forbids that. See ",
      "torch_fl.routes.explain(\"", opName(op), "\"), or set FLAGOS_FALLBACK to warn or allow.");
  if (told[op].exchange(true, std::memory_order_relaxed)) return;
  if (auto* function = observer.load()) function(opName(op), describeDevice(device));
}

void resetFallbackWarnings() noexcept {
  for (auto& entry : told) entry.store(false, std::memory_order_relaxed);
}

}  // namespace flagos::ops
