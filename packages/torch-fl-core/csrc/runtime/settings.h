// The FLAGOS_ variables as Python read and checked them (torch_fl_base/_env.py). C++ never reads the
// environment itself: a program may change it at any time, and one parser is enough.
#pragma once

#include <string>
#include <unordered_map>

#include "csrc/api.h"

namespace flagos {

// Replaces all settings. Throws c10::Error once the devices are in use: half of the runtime would keep the
// old ones.
FLAGOS_API void configure(std::unordered_map<std::string, std::string> settings);

// The value of a variable; `otherwise` if it was not handed over or is empty.
std::string setting(const std::string& name, const std::string& otherwise = {});

// Likewise for a variable that is on or off. Python hands over "1" and "0".
bool settingIsOn(const std::string& name);

}  // namespace flagos
