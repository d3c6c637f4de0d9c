#include "csrc/hal/instance.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <utility>

#include "csrc/hal/tracer.h"
#include "csrc/hal/validator.h"
#include "flagos/hal_support/error.hpp"

namespace flagos::hal {

namespace detail {
Instance* instances[kMaxLibraries] = {};
}

namespace {

// What identifies one failure of a library: enough to see whether another has come since.
struct Fingerprint {
  flagos_hal_status status;
  int64_t vendor_code;
  uint64_t text;  // hash of function and message

  bool operator==(const Fingerprint& other) const noexcept {
    return status == other.status && vendor_code == other.vendor_code && text == other.text;
  }
};

uint64_t hash(uint64_t seed, const char* text) noexcept {
  for (; text && *text; ++text) seed = (seed ^ static_cast<unsigned char>(*text)) * 1099511628211u;
  return seed;
}

Fingerprint fingerprint(const Instance& instance) noexcept {
  flagos_hal_error error = {};
  error.struct_size = sizeof(error);
  if (instance.library_last_error(&error) != FLAGOS_HAL_STATUS_OK) return {};
  return {error.status, error.vendor_code, hash(hash(14695981039346656037u, error.function), error.message)};
}

// Core's newest failure on this thread, whichever library it was about; its text is in hal_support's buffer.
// One is enough: core reads the detail of a failure before it makes the next call.
struct CoreFailure {
  const Instance* instance;  // null: none
  Fingerprint library;       // the library's own last error at that moment
};
thread_local CoreFailure core_failure = {};

flagos_hal_status absent(const Instance& instance, Member member) noexcept {
  return failInCore(instance, FLAGOS_HAL_STATUS_UNSUPPORTED, infoOf(member).name,
                    "the library of backend '%s' (HAL ABI %u.%u) does not have this function (%s)",
                    instance.name().c_str(), instance.abi_major, instance.abi_minor, infoOf(member).id);
}

template <int Slot, Member kMember, typename Function>
struct Stub;

template <int Slot, Member kMember, typename... Arguments>
struct Stub<Slot, kMember, flagos_hal_status (*)(Arguments...)> {
  static flagos_hal_status call(Arguments...) noexcept { return absent(instanceAt(Slot), kMember); }
};

template <int Slot>
struct StubFiller {
  static flagos_hal_status lastError(flagos_hal_error* out_error) {
    return lastErrorOf(instanceAt(Slot), out_error);
  }

  static void run(Instance& instance) {
    Tables& tables = instance.plain;
#define FLAGOS_HAL_MEMBER(group, member, need, since, before_init, id, parameters)               \
  if (!tables.group.member) {                                                                    \
    tables.group.member =                                                                        \
        &Stub<Slot, Member::group##_##member, decltype(flagos_hal_##group##_api::member)>::call; \
  }
#include "flagos/hal_members.def"
    instance.library_last_error = tables.system.last_error;
    tables.system.last_error = &lastError;
  }
};

}  // namespace

Instance::Instance(int slot, std::string name, std::string path)
    : slot_(slot), name_(std::move(name)), path_(std::move(path)) {}
Instance::~Instance() = default;

uint64_t Instance::violations() const noexcept { return validator ? validator->violations() : 0; }

flagos_hal_status failInCore(const Instance& instance, flagos_hal_status status, const char* function,
                             const char* format, ...) noexcept {
  {
    hal_support::FunctionScope scope(function);
    va_list arguments;
    va_start(arguments, format);
    hal_support::detail::record(status, 0, "", format, arguments);
    va_end(arguments);
  }
  core_failure = {&instance, fingerprint(instance)};
  return status;
}

void forgetCoreFailure(const Instance& instance) noexcept {
  if (core_failure.instance == &instance) core_failure.instance = nullptr;
}

flagos_hal_status lastErrorOf(const Instance& instance, flagos_hal_error* out_error) noexcept {
  if (core_failure.instance != &instance) return instance.library_last_error(out_error);
  // Without the validating layer core does not see the library's failures; it can see that its last error has
  // changed.
  if (!(fingerprint(instance) == core_failure.library)) {
    core_failure.instance = nullptr;
    return instance.library_last_error(out_error);
  }
  return hal_support::lastError(out_error);
}

void completeTables(Instance& instance) { withSlot<StubFiller>(instance); }

}  // namespace flagos::hal
