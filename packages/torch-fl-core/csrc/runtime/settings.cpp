#include "csrc/runtime/settings.h"

#include <c10/util/Exception.h>

#include <mutex>
#include <utility>

#include "csrc/runtime/devices.h"

namespace flagos {
namespace {

struct Settings {
  std::mutex mutex;  // guards values
  std::unordered_map<std::string, std::string> values;
};

// Leaked: the allocators read settings from destructors of other libraries' statics.
Settings& settings() {
  static auto* instance = new Settings;
  return *instance;
}

}  // namespace

void configure(std::unordered_map<std::string, std::string> values) {
  TORCH_CHECK(
      !activated(),
      "flagos: the settings were changed after the devices were opened. Set FLAGOS_ variables before ",
      "the first use of a flagos device.");
  std::lock_guard<std::mutex> lock(settings().mutex);
  settings().values = std::move(values);
}

std::string setting(const std::string& name, const std::string& otherwise) {
  std::lock_guard<std::mutex> lock(settings().mutex);
  const auto found = settings().values.find(name);
  return found == settings().values.end() || found->second.empty() ? otherwise : found->second;
}

bool settingIsOn(const std::string& name) {
  const std::string value = setting(name, "0");
  return value == "1" || value == "true" || value == "on" || value == "yes";
}

}  // namespace flagos
