// The tracing layer (FLAGOS_HAL_TRACE): one line per call of a library, written when the call has returned:
//
//   2026-01-31T12:00:00.000000Z 4711 reference memory.allocate(device=0, size=4096,
//   out_pointer=0x7f12a4000000) OK 1.730 us
//
// UTC time of the call, thread id, backend, function, arguments (outputs as they are after the call), status
// with its detail, duration.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "csrc/hal/instance.h"
#include "csrc/hal/members.h"

namespace flagos::hal {

class Tracer {
 public:
  // Appends to the file at `path`; empty: standard error. Throws LoadError: InitFailed.
  Tracer(const Instance& instance, const Tables& below, const std::string& path);
  ~Tracer();

  const Tables& below() const noexcept { return below_; }

  // One line in the making: a fixed buffer, cut at its end, written in one call so that lines of several
  // threads and processes do not mix.
  class Line {
   public:
    Line(const Tracer& tracer, Member member) noexcept;
    void finish(flagos_hal_status status) noexcept;

    // Called for each argument in turn after finish of the call; `status` decides whether outputs are read.
    void argument(flagos_hal_status status, int64_t value) noexcept;
    void argument(flagos_hal_status status, uint64_t value) noexcept;
    void argument(flagos_hal_status status, int32_t value) noexcept { argument(status, int64_t{value}); }
    void argument(flagos_hal_status status, uint32_t value) noexcept;
    void argument(flagos_hal_status status, const void* pointer) noexcept;
    void argument(flagos_hal_status status, int32_t* out) noexcept { output(status, out); }
    void argument(flagos_hal_status status, int64_t* out) noexcept { output(status, out); }
    void argument(flagos_hal_status status, uint64_t* out) noexcept { output(status, out); }
    void argument(flagos_hal_status status, double* out) noexcept;
    template <typename Handle>
    void argument(flagos_hal_status status, Handle** out) noexcept {
      if (out && status == FLAGOS_HAL_STATUS_OK) {
        argument(status, static_cast<const void*>(*out));
      } else {
        argument(status, static_cast<const void*>(out));
      }
    }
    template <typename... Parameters>
    void argument(flagos_hal_status, void (*function)(Parameters...)) noexcept {
      nextName();
      append("0x%llx", static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(function)));
    }

    // Marks the end of the call, before the arguments are written.
    void returned() noexcept;

   private:
    template <typename Value>
    void output(flagos_hal_status status, Value* out) noexcept {
      if (out && status == FLAGOS_HAL_STATUS_OK) {
        argument(status, *out);
      } else {
        argument(status, static_cast<const void*>(out));
      }
    }
    bool nameIs(const char* name) const noexcept;
    void nextName() noexcept;
    __attribute__((format(printf, 2, 3))) void append(const char* format, ...) noexcept;

    const Tracer& tracer_;
    const MemberInfo& info_;
    const char* names_;  // the rest of the parameters' names
    const char* name_ = "";
    size_t name_length_ = 0;
    int64_t start_ns_ = 0;
    int64_t duration_ns_ = 0;
    size_t length_ = 0;
    char text_[1536];
  };

 private:
  const Instance& instance_;
  const Tables& below_;
  int fd_;
  bool owns_fd_;
};

}  // namespace flagos::hal
