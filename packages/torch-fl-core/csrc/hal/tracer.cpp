#include "csrc/hal/tracer.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace flagos::hal {
namespace {

int64_t nanoseconds(clockid_t clock) noexcept {
  timespec now = {};
  ::clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

const char* copyKindName(int64_t kind) noexcept {
  switch (kind) {
    case FLAGOS_HAL_COPY_HOST_TO_HOST:
      return "HOST_TO_HOST";
    case FLAGOS_HAL_COPY_HOST_TO_DEVICE:
      return "HOST_TO_DEVICE";
    case FLAGOS_HAL_COPY_DEVICE_TO_HOST:
      return "DEVICE_TO_HOST";
    case FLAGOS_HAL_COPY_DEVICE_TO_DEVICE:
      return "DEVICE_TO_DEVICE";
    default:
      return nullptr;
  }
}

// The work of a function, once per member; the slots' functions only say which library is meant.
template <Member kMember, auto kGroup, auto kFunction, typename... Arguments>
__attribute__((noinline)) flagos_hal_status traced(const Tracer& tracer, Arguments... arguments) noexcept {
  Tracer::Line line(tracer, kMember);
  const flagos_hal_status status = ((tracer.below().*kGroup).*kFunction)(arguments...);
  line.returned();
  (line.argument(status, arguments), ...);
  line.finish(status);
  return status;
}

template <int Slot, Member kMember, auto kGroup, auto kFunction, typename Function>
struct Traced;

template <int Slot, Member kMember, auto kGroup, auto kFunction, typename... Arguments>
struct Traced<Slot, kMember, kGroup, kFunction, flagos_hal_status (*)(Arguments...)> {
  static flagos_hal_status call(Arguments... arguments) noexcept {
    return traced<kMember, kGroup, kFunction>(*instanceAt(Slot).tracer, arguments...);
  }
};

template <int Slot>
struct TracedFiller {
  static void run(Instance& instance) {
    Tables& tables = instance.traced;
#define FLAGOS_HAL_MEMBER(group, member, need, since, before_init, id, parameters)               \
  tables.group.member =                                                                          \
      &Traced<Slot, Member::group##_##member, &Tables::group, &flagos_hal_##group##_api::member, \
              decltype(flagos_hal_##group##_api::member)>::call;
#include "flagos/hal_members.def"
  }
};

}  // namespace

Tracer::Tracer(const Instance& instance, const Tables& below, const std::string& path)
    : instance_(instance), below_(below), fd_(STDERR_FILENO), owns_fd_(!path.empty()) {
  if (!owns_fd_) return;
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    throw LoadError(LoadError::Kind::InitFailed,
                    "flagos: backend '" + instance.name() + "': the trace file '" + path +
                        "' cannot be opened for writing: " + std::strerror(errno) +
                        ". Give FLAGOS_HAL_TRACE another path, or 1 for standard error.");
  }
}

Tracer::~Tracer() {
  if (owns_fd_ && fd_ >= 0) ::close(fd_);
}

Tracer::Line::Line(const Tracer& tracer, Member member) noexcept
    : tracer_(tracer), info_(infoOf(member)), names_(info_.parameters) {
  const int64_t now = nanoseconds(CLOCK_REALTIME);
  const time_t seconds = static_cast<time_t>(now / 1000000000);
  tm utc = {};
  ::gmtime_r(&seconds, &utc);
  append("%04d-%02d-%02dT%02d:%02d:%02d.%06dZ %ld %s %s(", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
         utc.tm_hour, utc.tm_min, utc.tm_sec, static_cast<int>(now % 1000000000 / 1000),
         static_cast<long>(::syscall(SYS_gettid)), tracer.instance_.name().c_str(), info_.name);
  start_ns_ = nanoseconds(CLOCK_MONOTONIC);
}

void Tracer::Line::returned() noexcept { duration_ns_ = nanoseconds(CLOCK_MONOTONIC) - start_ns_; }

void Tracer::Line::argument(flagos_hal_status, int64_t value) noexcept {
  nextName();
  const char* kind = nameIs("kind") ? copyKindName(value) : nullptr;
  if (kind) {
    append("%s", kind);
  } else {
    append("%" PRId64, value);
  }
}

void Tracer::Line::argument(flagos_hal_status, uint64_t value) noexcept {
  nextName();
  append("%" PRIu64, value);
}

void Tracer::Line::argument(flagos_hal_status, uint32_t value) noexcept {  // all of them are flags
  nextName();
  append("0x%x", value);
}

void Tracer::Line::argument(flagos_hal_status, const void* pointer) noexcept {
  nextName();
  if (pointer) {
    append("%p", pointer);
  } else {
    append("null");
  }
}

void Tracer::Line::argument(flagos_hal_status status, double* out) noexcept {
  if (!out || status != FLAGOS_HAL_STATUS_OK) return argument(status, static_cast<const void*>(out));
  nextName();
  append("%g", *out);
}

void Tracer::Line::finish(flagos_hal_status status) noexcept {
  append(") %s", statusName(status));
  if (statusName(status)[0] == '?') append("%d", status);
  if (status != FLAGOS_HAL_STATUS_OK && status != FLAGOS_HAL_STATUS_NOT_READY) {
    flagos_hal_error error = {};
    error.struct_size = sizeof(error);
    if (tracer_.below_.system.last_error(&error) == FLAGOS_HAL_STATUS_OK && error.status == status) {
      append(" (%s", error.message);
      if (*error.vendor_name) append(" [%s, %" PRId64 "]", error.vendor_name, error.vendor_code);
      append(")");
    }
  }
  append(" %.3f us\n", static_cast<double>(duration_ns_) / 1000.0);
  text_[length_ - 1] = '\n';  // also where the text was cut
  for (size_t done = 0; done < length_;) {
    const ssize_t put = ::write(tracer_.fd_, text_ + done, length_ - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;  // a full disk or a closed pipe: the program matters more than its trace
    done += static_cast<size_t>(put);
  }
}

bool Tracer::Line::nameIs(const char* name) const noexcept {
  return std::strlen(name) == name_length_ && std::memcmp(name, name_, name_length_) == 0;
}

void Tracer::Line::nextName() noexcept {
  name_ = names_;
  name_length_ = std::strcspn(names_, ",");
  if (names_ != info_.parameters) append(", ");
  append("%.*s=", static_cast<int>(name_length_), name_);
  names_ += name_length_;
  while (*names_ == ',' || *names_ == ' ') ++names_;
}

void Tracer::Line::append(const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  const int wanted = std::vsnprintf(text_ + length_, sizeof(text_) - length_, format, arguments);
  va_end(arguments);
  if (wanted < 0) return;
  const size_t left = sizeof(text_) - length_ - 1;
  length_ += static_cast<size_t>(wanted) < left ? static_cast<size_t>(wanted) : left;
}

void buildTracedTables(Instance& instance) {
  // Sizes and flags are the same at every level; then the functions are replaced one by one.
  instance.traced = instance.plain;
  withSlot<TracedFiller>(instance);
}

}  // namespace flagos::hal
