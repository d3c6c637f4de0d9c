#include "csrc/reference/options.h"

#include <cctype>
#include <cstdlib>
#include <cstring>

#include "csrc/reference/status.h"

namespace flagos::reference {

namespace {

flagos_hal_status refuse(const char* variable, const char* value, const std::string& reason) {
  return fail(FLAGOS_HAL_STATUS_UNAVAILABLE, "%s is '%s': %s", variable, value, reason.c_str());
}

// The variable's value, or null where it is unset or empty.
const char* read(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value ? value : nullptr;
}

bool parseDigits(const std::string& text, uint64_t* value) {
  if (text.empty() || text.size() > 18) return false;
  *value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    *value = *value * 10 + static_cast<uint64_t>(c - '0');
  }
  return true;
}

bool parseBytes(const std::string& text, uint64_t* bytes) {
  const size_t digits = text.find_first_not_of("0123456789");
  if (!parseDigits(text.substr(0, digits), bytes)) return false;
  if (digits == std::string::npos) return true;
  std::string unit = text.substr(digits);
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  int shift = 0;
  if (unit == "kib") shift = 10;
  if (unit == "mib") shift = 20;
  if (unit == "gib") shift = 30;
  if (unit == "tib") shift = 40;
  if (shift == 0 || *bytes > (UINT64_MAX >> shift)) return false;
  *bytes <<= shift;
  return true;
}

}  // namespace

flagos_hal_status readOptions(Options* options) {
  constexpr uint64_t kMaxMemory = uint64_t{1} << 46;
  if (const char* value = read("FLAGOS_REFERENCE_DEVICES")) {
    uint64_t devices = 0;
    if (!parseDigits(value, &devices) || devices > kMaxDevices) {
      return refuse("FLAGOS_REFERENCE_DEVICES", value, "the number of devices must be 0 to 64");
    }
    options->devices = static_cast<int32_t>(devices);
  }
  if (const char* value = read("FLAGOS_REFERENCE_MEMORY")) {
    if (!parseBytes(value, &options->memory) || options->memory == 0 || options->memory > kMaxMemory) {
      return refuse("FLAGOS_REFERENCE_MEMORY", value,
                    "the memory of a device must be bytes, or a whole number with KiB, MiB, GiB or TiB, from 1 to 64TiB");
    }
  }
  if (const char* value = read("FLAGOS_REFERENCE_MEMORY_FAULT")) {
    if (std::strcmp(value, "0") != 0 && std::strcmp(value, "1") != 0) {
      return refuse("FLAGOS_REFERENCE_MEMORY_FAULT", value, "it must be 0 or 1");
    }
    options->memory_fault = *value == '1';
  }
  std::string problem;
  if (const char* value = read("FLAGOS_REFERENCE_FAIL")) {
    if (!parseFailures(value, &options->faults, &problem)) return refuse("FLAGOS_REFERENCE_FAIL", value, problem);
    for (const int32_t device : options->faults.lost_devices) {
      if (device >= options->devices) {
        return refuse("FLAGOS_REFERENCE_FAIL", value,
                      "device.lost:" + std::to_string(device) + " names a device that is not there; devices: " +
                          std::to_string(options->devices));
      }
    }
  }
  if (const char* value = read("FLAGOS_REFERENCE_LATENCY")) {
    if (!parseLatencies(value, &options->faults, &problem)) return refuse("FLAGOS_REFERENCE_LATENCY", value, problem);
  }
  return kOk;
}

}  // namespace flagos::reference
