#include "csrc/reference/status.h"

#include <cerrno>
#include <cstring>

namespace flagos::reference {

namespace {
const char* errnoName(int error) noexcept {
  switch (error) {
    case ENOMEM:
      return "ENOMEM";
    case EAGAIN:
      return "EAGAIN";
    case EMFILE:
      return "EMFILE";
    case ENFILE:
      return "ENFILE";
    case EACCES:
      return "EACCES";
    case EPERM:
      return "EPERM";
    default:
      return "errno";
  }
}
}  // namespace

flagos_hal_status failSystem(flagos_hal_status status, int error, const char* what) {
  char text[128] = "";
  // The GNU form of strerror_r returns the text; it may or may not use the buffer.
  const char* reason = strerror_r(error, text, sizeof(text));
  return failVendor(status, error, errnoName(error), "%s failed: %s", what, reason);
}

}  // namespace flagos::reference
