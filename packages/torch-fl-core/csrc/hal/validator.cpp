#include "csrc/hal/validator.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "csrc/hal/validator_calls.h"
#include "flagos/hal_support/error.hpp"

namespace flagos::hal {
namespace {

// The work of a function, once per member; the slots' functions only say which library is meant.
template <Member kMember, auto kGroup, auto kFunction, auto kCheck, typename... Arguments>
__attribute__((noinline)) flagos_hal_status validated(Instance& instance, Arguments... arguments) noexcept {
  Validator& validator = *instance.validator;
  if (validator.inForkedChild()) return ((instance.plain.*kGroup).*kFunction)(arguments...);
  flagos_hal_status status = FLAGOS_HAL_STATUS_OK;
  if (!validator.enter(kMember, &status)) return status;
  try {
    status = (validator.*kCheck)(arguments...);
  } catch (const std::exception& error) {
    status = failInCore(instance, FLAGOS_HAL_STATUS_UNKNOWN, infoOf(kMember).name,
                        "the validating layer failed: %s", error.what());
  }
  validator.leave();
  return status;
}

template <int Slot, Member kMember, auto kGroup, auto kFunction, auto kCheck, typename Function>
struct Validated;

template <int Slot, Member kMember, auto kGroup, auto kFunction, auto kCheck, typename... Arguments>
struct Validated<Slot, kMember, kGroup, kFunction, kCheck, flagos_hal_status (*)(Arguments...)> {
  static flagos_hal_status call(Arguments... arguments) noexcept {
    return validated<kMember, kGroup, kFunction, kCheck>(instanceAt(Slot), arguments...);
  }
};

template <int Slot>
struct ValidatedFiller {
  static void run(Instance& instance) {
    Tables& tables = instance.validated;
    // A function that the library lacks needs no checks: its stub has the whole answer.
#define FLAGOS_HAL_MEMBER(group, member, need, since, before_init, id, parameters)                    \
  if (!instance.absent[static_cast<size_t>(Member::group##_##member)]) {                              \
    tables.group.member =                                                                             \
        &Validated<Slot, Member::group##_##member, &Tables::group, &flagos_hal_##group##_api::member, \
                   &Validator::group##_##member, decltype(flagos_hal_##group##_api::member)>::call;   \
  }
#include "flagos/hal_members.def"
  }
};

// Set while this thread runs a host callback of the library: HAL-STR-10 forbids it every HAL function.
thread_local const Validator* in_callback_of = nullptr;

}  // namespace

Validator::Validator(Instance& instance, bool log)
    : instance_(instance), library_(instance.plain), log_(log) {}
Validator::~Validator() = default;

bool Validator::inForkedChild() const noexcept {
  const uint32_t init = init_generation_.load(std::memory_order_acquire);
  return init != 0 && init != forkGeneration();
}

bool Validator::enter(Member member, flagos_hal_status* answer) noexcept {
  const BeforeInit rule = infoOf(member).before_init;
  if (in_callback_of == this && member != Member::system_last_error) {
    *answer =
        violation(member, FLAGOS_HAL_STATUS_INVALID_STATE, "HAL-STR-10",
                  "a host callback calls a HAL function; it must not, the stream would wait for itself");
    return false;
  }
  if (rule != BeforeInit::ANYTIME && phase_.load(std::memory_order_acquire) != Phase::Ready) {
    if (rule == BeforeInit::RELEASE) {
      *answer = FLAGOS_HAL_STATUS_OK;
    } else {
      *answer = violation(member, FLAGOS_HAL_STATUS_NOT_INITIALIZED, "GEN-03", "called %s",
                          phase_.load(std::memory_order_acquire) == Phase::Fresh
                              ? "before system.init has succeeded"
                              : "after system.shutdown");
    }
    return false;
  }
  in_progress_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Validator::log(const char* text) noexcept {
  if (!log_) return;
  char line[1200];
  const int length = std::snprintf(line, sizeof(line), "flagos HAL validation: %s\n", text);
  if (length <= 0) return;
  const size_t size =
      static_cast<size_t>(length) < sizeof(line) ? static_cast<size_t>(length) : sizeof(line) - 1;
  line[size - 1] = '\n';
  // One call, so that lines of several threads do not mix; a closed standard error is no reason to fail.
  if (::write(STDERR_FILENO, line, size) < 0) return;
}

flagos_hal_status Validator::violation(Member member, flagos_hal_status status, const char* rule,
                                       const char* format, ...) noexcept {
  char text[700];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  violations_.fetch_add(1, std::memory_order_relaxed);
  failInCore(instance_, status, infoOf(member).name, "%s: %s", rule, text);
  char line[1000];
  std::snprintf(line, sizeof(line), "%s: %s: %s: %s [%s]", instance_.name().c_str(), infoOf(member).name,
                rule, text, statusName(status));
  log(line);
  return status;
}

flagos_hal_status Validator::libraryFault(Member member, const char* rule, const char* format, ...) noexcept {
  char text[600];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return violation(member, FLAGOS_HAL_STATUS_UNKNOWN, rule, "fault of the library: %s", text);
}

flagos_hal_status Validator::returned(Member member, flagos_hal_status status) noexcept {
  if (status == FLAGOS_HAL_STATUS_OK) return status;
  if (status == FLAGOS_HAL_STATUS_NOT_READY) {
    if (member == Member::stream_query || member == Member::event_query || member == Member::event_elapsed)
      return status;
    return libraryFault(member, "GEN-02", "NOT_READY is no answer of this function");
  }
  if (status < 0 || status >= FLAGOS_HAL_STATUS_COUNT_) {
    return libraryFault(member, "GEN-01", "it returned %d, which is not a status of HAL ABI %u.%u", status,
                        FLAGOS_HAL_ABI_MAJOR, FLAGOS_HAL_ABI_MINOR);
  }
  forgetCoreFailure(instance_);
  flagos_hal_error error = {};
  error.struct_size = sizeof(error);
  if (instance_.library_last_error(&error) == FLAGOS_HAL_STATUS_OK && error.status != status) {
    // The answer itself stands: the caller needs it more than the complaint.
    libraryFault(member, "GEN-02", "it returned %s but system.last_error tells of %s", statusName(status),
                 statusName(error.status));
  }
  return status;
}

// What the library is given instead of the caller's function.
struct Validator::CallbackCall {
  const Validator* validator;
  void (*function)(void*);
  void* argument;
  bool once;  // false: part of a graph, which may run it any number of times

  static void run(void* self) {
    auto* call = static_cast<CallbackCall*>(self);
    const Validator* before = in_callback_of;
    in_callback_of = call->validator;
    call->function(call->argument);
    in_callback_of = before;
    if (call->once) delete call;
  }
};

flagos_hal_status Validator::stream_host_callback(flagos_hal_stream* stream, void (*function)(void*),
                                                  void* argument) {
  constexpr Member kMember = Member::stream_host_callback;
  std::shared_ptr<StreamState> state;
  FLAGOS_HAL_TRY(checkStream(kMember, stream, &state));
  if (!function)
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "HAL-STR-10", "the function is null");
  Queueing queueing(*state, false);
  if (queueing.conflict()) return refuseConcurrent(kMember);
  // Streams take part in another stream's capture by waiting for its events, so the library is asked.
  int32_t capturing = 0;
  if (captures_.load(std::memory_order_acquire) > 0) {
    static_cast<void>(library_.graph.is_capturing(stream, &capturing));
  }
  const bool once = capturing == 0;
  auto call = std::make_unique<CallbackCall>(CallbackCall{this, function, argument, once});
  const flagos_hal_status status =
      returned(kMember, library_.stream.host_callback(stream, &CallbackCall::run, call.get()));
  if (status != FLAGOS_HAL_STATUS_OK) return status;
  if (once) {
    static_cast<void>(call.release());  // it deletes itself, and may have done so by now
  } else {
    Lock lock(mutex_);
    captured_callbacks_.push_back(std::move(call));
  }
  return status;
}

void buildValidatedTables(Instance& instance) {
  instance.validated = instance.plain;
  withSlot<ValidatedFiller>(instance);
}

}  // namespace flagos::hal
