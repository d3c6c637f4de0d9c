#include "csrc/ops/sources.h"

#include <c10/util/Exception.h>

#include <array>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace flagos::ops {

namespace {

constexpr std::array<const char*, kSourceCount> kNames = {"native", "boxed",   "gems", "gems_cpp",
                                                          "triton", "tileops", "cpu"};

struct Names {
  std::mutex mutex;
  std::unordered_map<std::string, OpId> ids;
  std::vector<std::string> names;
};

// Never destroyed: operators may run in threads that outlive static destruction.
Names& names() {
  static auto* instance = new Names();
  return *instance;
}

}  // namespace

const char* sourceName(Source source) noexcept {
  const auto index = static_cast<size_t>(source);
  return index < kSourceCount ? kNames[index] : "?";
}

std::optional<Source> sourceOf(const std::string& name) noexcept {
  for (size_t i = 0; i < kSourceCount; ++i) {
    if (name == kNames[i]) return static_cast<Source>(i);
  }
  return std::nullopt;
}

OpId opId(const std::string& name) {
  Names& all = names();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto [where, inserted] = all.ids.try_emplace(name, static_cast<OpId>(all.names.size()));
  if (inserted) {
    TORCH_CHECK(all.names.size() < kMaxOps, "flagos: more than ", kMaxOps,
                " operators are registered in this process");
    all.names.push_back(name);
  }
  return where->second;
}

std::string opName(OpId op) {
  Names& all = names();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return op < all.names.size() ? all.names[op] : std::string("?");
}

std::optional<OpId> findOpId(const std::string& name) {
  Names& all = names();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.ids.find(name);
  if (found == all.ids.end()) return std::nullopt;
  return found->second;
}

OpId opCount() {
  Names& all = names();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return static_cast<OpId>(all.names.size());
}

}  // namespace flagos::ops
