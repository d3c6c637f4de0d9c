// Helpers shared by the validating layer's source files.
#pragma once

#include <memory>
#include <mutex>

#include "csrc/hal/validator.h"

namespace flagos::hal {

class Validator::Lock {
 public:
  explicit Lock(ForkSafeMutex& mutex) noexcept : mutex_(mutex) { mutex_.lock(); }
  ~Lock() { mutex_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  ForkSafeMutex& mutex_;
};

// A call in progress that queues on a stream. Calls whose text says "calls on one stream are ordered by the
// caller" must not overlap any other that queues there.
class Validator::Queueing {
 public:
  Queueing(StreamState& stream, bool ordered) noexcept
      : stream_(stream),
        step_(ordered ? 1 + kOrdered : 1),
        before_(stream.in_progress.fetch_add(step_)),
        ordered_(ordered) {}
  ~Queueing() { stream_.in_progress.fetch_sub(step_); }
  Queueing(const Queueing&) = delete;
  Queueing& operator=(const Queueing&) = delete;

  bool conflict() const noexcept { return ordered_ ? before_ != 0 : before_ >= kOrdered; }

 private:
  static constexpr uint64_t kOrdered = uint64_t{1} << 32;
  StreamState& stream_;
  const uint64_t step_;
  const uint64_t before_;
  const bool ordered_;
};

template <typename Struct>
flagos_hal_status Validator::checkSizedOutput(Member member, const Struct* out, const char* name) noexcept {
  const flagos_hal_status status = checkOutput(member, out, name);
  if (status != FLAGOS_HAL_STATUS_OK) return status;
  constexpr size_t kAbsurd = size_t{1} << 16;
  if (out->struct_size < sizeof(size_t) || out->struct_size > kAbsurd) {
    return violation(member, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, infoOf(member).id,
                     "%s->struct_size is %zu; set it to the sizeof of the structure (%zu)", name,
                     out->struct_size, sizeof(Struct));
  }
  return FLAGOS_HAL_STATUS_OK;
}

}  // namespace flagos::hal
