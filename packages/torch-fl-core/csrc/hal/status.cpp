#include <string>

#include "csrc/hal/library.h"

namespace flagos::hal {

const char* statusName(flagos_hal_status status) noexcept {
  switch (status) {
#define FLAGOS_HAL_STATUS(name, number, text) \
  case number:                                \
    return #name;
#include "flagos/hal_status.def"
#undef FLAGOS_HAL_STATUS
    default:
      return "?";
  }
}

const char* statusText(flagos_hal_status status) noexcept {
  switch (status) {
#define FLAGOS_HAL_STATUS(name, number, text) \
  case number:                                \
    return text;
#include "flagos/hal_status.def"
#undef FLAGOS_HAL_STATUS
    default:
      return "?";
  }
}

std::string describeFailure(const Tables& tables, const std::string& backend, flagos_hal_status status) {
  flagos_hal_error error = {};
  error.struct_size = sizeof(error);
  const bool known = tables.system.last_error(&error) == FLAGOS_HAL_STATUS_OK;
  // A detail of another class belongs to an earlier failure: quoting it would point the reader to the wrong
  // place.
  const bool fits = known && error.status == status;
  std::string text = "backend '" + backend + "'";
  if (fits && error.function && *error.function) text += std::string(": ") + error.function;
  text += std::string(" failed: ") + statusName(status) + " (";
  if (statusText(status)[0] == '?') {
    text += "status " + std::to_string(status) + ", which is not one of this ABI";
  } else {
    text += statusText(status);
  }
  text += ")";
  if (!fits) return text + "; the library left no detail";
  if (error.message && *error.message) text += std::string(": ") + error.message;
  const bool named = error.vendor_name && *error.vendor_name;
  if (named || error.vendor_code != 0) {
    text += " [";
    if (named) text += std::string(error.vendor_name) + ", ";
    text += std::to_string(error.vendor_code) + "]";
  }
  return text;
}

}  // namespace flagos::hal
