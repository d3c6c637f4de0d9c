#include "csrc/reference/options.h"

#include <cctype>
#include <cstdlib>

#include "csrc/reference/status.h"

namespace flagos::reference {

namespace {

flagos_hal_status refuse(const char* variable, const std::string& value, const std::string& reason) {
  return fail(FLAGOS_HAL_STATUS_UNKNOWN, "%s is '%s': %s", variable, value.c_str(), reason.c_str());
}

// Reads a variable without the blanks around its value; false where it is unset or empty.
bool read(const char* variable, std::string* value) {
  const char* text = std::getenv(variable);
  *value = text ? text : "";
  const size_t begin = value->find_first_not_of(" \t");
  if (begin == std::string::npos) return false;
  *value = value->substr(begin, value->find_last_not_of(" \t") + 1 - begin);
  return true;
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

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool parseTruth(const std::string& text, bool* truth) {
  const std::string word = lower(text);
  *truth = word == "1" || word == "true" || word == "yes" || word == "on";
  return *truth || word == "0" || word == "false" || word == "no" || word == "off";
}

bool parseBytes(const std::string& text, uint64_t* bytes) {
  const size_t digits = text.find_first_not_of("0123456789");
  if (!parseDigits(text.substr(0, digits), bytes)) return false;
  const size_t letters = text.find_first_not_of(' ', digits);
  if (letters == std::string::npos) return true;
  const std::string unit = lower(text.substr(letters));
  if (unit == "b") return true;
  int shift = 0;
  if (unit == "kib") shift = 10;
  if (unit == "mib") shift = 20;
  if (unit == "gib") shift = 30;
  if (unit == "tib") shift = 40;
  if (shift == 0 || *bytes > (UINT64_MAX >> shift)) return false;
  *bytes <<= shift;
  return true;
}

constexpr const char* kTruthValues = "it must be 1, true, yes or on; or 0, false, no or off";

}  // namespace

bool readIpcOption(bool* wanted) {
  std::string value;
  return !read("FLAGOS_REFERENCE_IPC", &value) || parseTruth(value, wanted);
}

flagos_hal_status readOptions(Options* options) {
  constexpr uint64_t kMaxMemory = uint64_t{1} << 46;
  std::string value;
  std::string problem;
  if (read("FLAGOS_REFERENCE_DEVICES", &value)) {
    uint64_t devices = 0;
    if (!parseDigits(value, &devices) || devices > kMaxDevices) {
      return refuse("FLAGOS_REFERENCE_DEVICES", value, "the number of devices must be 0 to 64");
    }
    options->devices = static_cast<int32_t>(devices);
  }
  if (read("FLAGOS_REFERENCE_MEMORY", &value)) {
    if (!parseBytes(value, &options->memory) || options->memory == 0 || options->memory > kMaxMemory) {
      return refuse("FLAGOS_REFERENCE_MEMORY", value,
                    "the memory of a device must be bytes, or a whole number with KiB, MiB, GiB or TiB; at "
                    "least 1 byte, at most 64TiB");
    }
  }
  if (read("FLAGOS_REFERENCE_MEMORY_FAULT", &value)) {
    if (!parseTruth(value, &options->memory_fault)) {
      return refuse("FLAGOS_REFERENCE_MEMORY_FAULT", value, kTruthValues);
    }
  }
  bool ipc = false;
  if (!readIpcOption(&ipc)) {
    read("FLAGOS_REFERENCE_IPC", &value);
    return refuse("FLAGOS_REFERENCE_IPC", value, kTruthValues);
  }
  if (read("FLAGOS_REFERENCE_FAIL", &value)) {
    if (!parseFailures(value, &options->faults, &problem)) {
      return refuse("FLAGOS_REFERENCE_FAIL", value, problem);
    }
    for (const int32_t device : options->faults.lost_devices) {
      if (device >= options->devices) {
        return refuse("FLAGOS_REFERENCE_FAIL", value,
                      "device.lost:" + std::to_string(device) +
                          " names a device that is not there; devices: " + std::to_string(options->devices));
      }
    }
  }
  if (read("FLAGOS_REFERENCE_LATENCY", &value)) {
    if (!parseLatencies(value, &options->faults, &problem)) {
      return refuse("FLAGOS_REFERENCE_LATENCY", value, problem);
    }
  }
  return kOk;
}

}  // namespace flagos::reference
