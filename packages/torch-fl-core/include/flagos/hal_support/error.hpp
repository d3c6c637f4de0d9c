// The last failure of a thread (GEN-02), kept in fixed buffers: nothing here allocates, throws or has a
// destructor, so it also works while a thread or the process ends.
//
// Everything in hal_support has hidden visibility: two libraries, or two copies of one, never share this
// state.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "flagos/hal.h"

namespace flagos {
namespace hal_support __attribute__((visibility("hidden"))) {

  struct ErrorDetail {
    flagos_hal_status status;
    int64_t vendor_code;
    const char* function;  // a literal
    char vendor_name[96];
    char message[768];
  };

  namespace detail {
  inline thread_local ErrorDetail last_error = {};
  inline thread_local const char* current_function = "";

  // Cuts `text` to `size` without splitting a UTF-8 character, and turns line ends into spaces.
  inline void copyText(char* out, size_t size, const char* text) noexcept {
    size_t n = text ? std::strlen(text) : 0;
    if (n >= size) {
      n = size - 1;
      while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0u) == 0x80u) --n;
    }
    for (size_t i = 0; i < n; ++i) out[i] = text[i] == '\n' || text[i] == '\r' ? ' ' : text[i];
    out[n] = '\0';
  }

  inline flagos_hal_status record(flagos_hal_status status, int64_t code, const char* name,
                                  const char* format, va_list arguments) noexcept {
    // Formatted aside first: an argument may be text of the failure that is being replaced.
    char message[sizeof(ErrorDetail::message) +
                 4];  // longer by a character, so that copyText sees where to cut
    std::vsnprintf(message, sizeof(message), format, arguments);
    char vendor_name[sizeof(ErrorDetail::vendor_name)];
    copyText(vendor_name, sizeof(vendor_name), name);
    ErrorDetail& error = last_error;
    error.status = status;
    error.vendor_code = code;
    error.function = current_function;
    std::memcpy(error.vendor_name, vendor_name, sizeof(vendor_name));
    copyText(error.message, sizeof(error.message), message);
    return status;
  }
  }  // namespace detail

  // Names the HAL function that runs on this thread ("memory.allocate", a literal) for the failures recorded
  // in it.
  class FunctionScope {
   public:
    explicit FunctionScope(const char* function) noexcept : before_(detail::current_function) {
      detail::current_function = function;
    }
    ~FunctionScope() { detail::current_function = before_; }
    FunctionScope(const FunctionScope&) = delete;
    FunctionScope& operator=(const FunctionScope&) = delete;

   private:
    const char* before_;
  };

  inline const char* currentFunction() noexcept { return detail::current_function; }

  // Records a failure that did not come from the vendor's runtime and returns `status`: `return fail(…)`.
  // printf-style.
  __attribute__((format(printf, 2, 3))) inline flagos_hal_status fail(flagos_hal_status status,
                                                                      const char* format, ...) noexcept {
    va_list arguments;
    va_start(arguments, format);
    detail::record(status, 0, "", format, arguments);
    va_end(arguments);
    return status;
  }

  // The same for a failure of the vendor's runtime, with its number and its name of that number.
  __attribute__((format(printf, 4, 5))) inline flagos_hal_status failVendor(
      flagos_hal_status status, int64_t code, const char* name, const char* format, ...) noexcept {
    va_list arguments;
    va_start(arguments, format);
    detail::record(status, code, name, format, arguments);
    va_end(arguments);
    return status;
  }

  // What system.last_error does (HAL-SYS-04). `out_error->struct_size` says how much of it the caller knows.
  inline flagos_hal_status lastError(flagos_hal_error * out_error) noexcept {
    // Reading must not disturb what is read, so a bad argument is answered without a detail.
    if (!out_error || out_error->struct_size < sizeof(size_t)) return FLAGOS_HAL_STATUS_INVALID_ARGUMENT;
    const ErrorDetail& error = detail::last_error;
    flagos_hal_error full = {};
    full.struct_size = out_error->struct_size;
    full.status = error.status;
    full.vendor_code = error.vendor_code;
    full.vendor_name = error.vendor_name;
    full.message = error.message;
    full.function = error.function ? error.function : "";
    const size_t size = out_error->struct_size < sizeof(full) ? out_error->struct_size : sizeof(full);
    std::memcpy(static_cast<void*>(out_error), &full, size);
    return FLAGOS_HAL_STATUS_OK;
  }

  // For tests of a library: forgets this thread's failure.
  inline void clearLastError() noexcept { detail::last_error = ErrorDetail{}; }

  // Writes a sized output structure (GEN-01, growth): as much of `value` as the caller knows; its struct_size
  // stays.
  template <typename Struct>
  flagos_hal_status writeSized(Struct * out, const Struct& value) noexcept {
    if (!out) return fail(FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "the output structure is null");
    const size_t known = out->struct_size;
    if (known < sizeof(size_t)) {
      return fail(FLAGOS_HAL_STATUS_INVALID_ARGUMENT,
                  "struct_size of the output structure is %zu; set it to its sizeof", known);
    }
    const size_t end = known < sizeof(Struct) ? known : sizeof(Struct);
    std::memcpy(reinterpret_cast<char*>(out) + sizeof(size_t),
                reinterpret_cast<const char*>(&value) + sizeof(size_t), end - sizeof(size_t));
    return FLAGOS_HAL_STATUS_OK;
  }

  // Reads a sized input structure that may be null or of an older or newer minor: what its author did not
  // know is 0.
  template <typename Struct>
  Struct readSized(const Struct* in) noexcept {
    Struct value = {};
    if (in) {
      const size_t known = in->struct_size < sizeof(Struct) ? in->struct_size : sizeof(Struct);
      std::memcpy(static_cast<void*>(&value), in, known);
    }
    value.struct_size = sizeof(Struct);
    return value;
  }

}  // namespace hal_support
}  // namespace flagos

// Checks an argument: on failure records the printf-style text and returns FLAGOS_HAL_STATUS_<name> from the
// function.
#define FLAGOS_HAL_REQUIRE(condition, name, ...)                                                 \
  do {                                                                                           \
    if (!(condition)) return ::flagos::hal_support::fail(FLAGOS_HAL_STATUS_##name, __VA_ARGS__); \
  } while (0)

// Returns from the function if `expression` (a flagos_hal_status, its detail already recorded) is not OK.
#define FLAGOS_HAL_TRY(expression)                                       \
  do {                                                                   \
    const flagos_hal_status flagos_hal_try_ = (expression);              \
    if (flagos_hal_try_ != FLAGOS_HAL_STATUS_OK) return flagos_hal_try_; \
  } while (0)
