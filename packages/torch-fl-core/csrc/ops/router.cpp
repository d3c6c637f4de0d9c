#include "csrc/ops/router.h"

#include <c10/util/Exception.h>

#include <mutex>
#include <unordered_map>

namespace flagos::ops {

namespace {

const RouteTable* firstTable() {
  auto* table = new RouteTable();
  table->source.fill(Source::Cpu);
  table->version = 1;
  return table;
}

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

namespace detail {
std::atomic<const RouteTable*> current_table{firstTable()};
std::array<std::array<std::atomic<uint64_t>, kSourceCount>, kMaxOps> call_counts{};
std::array<std::atomic<uint64_t>, kMaxOps> host_bytes{};
}  // namespace detail

const char* sourceName(Source source) noexcept {
  switch (source) {
    case Source::Native:
      return "native";
    case Source::Boxed:
      return "boxed";
    case Source::Gems:
      return "gems";
    case Source::GemsCpp:
      return "gems_cpp";
    case Source::Triton:
      return "triton";
    case Source::TileOps:
      return "tileops";
    case Source::Cpu:
      return "cpu";
    case Source::Count_:
      break;
  }
  return "?";
}

OpId opId(const c10::OperatorName& name) {
  const std::string text = c10::toString(name);
  Names& all = names();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto [where, inserted] = all.ids.try_emplace(text, static_cast<OpId>(all.names.size()));
  if (inserted) {
    TORCH_CHECK(all.names.size() < kMaxOps, "flagos: more than ", kMaxOps,
                " operators are registered in this process");
    all.names.push_back(text);
  }
  return where->second;
}

std::string opName(OpId op) {
  Names& all = names();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return op < all.names.size() ? all.names[op] : std::string("?");
}

OpId opCount() {
  Names& all = names();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return static_cast<OpId>(all.names.size());
}

std::vector<OpCount> callCounts() {
  std::vector<OpCount> rows;
  const OpId count = opCount();
  for (OpId op = 0; op < count; ++op) {
    const uint64_t bytes = detail::host_bytes[op].load(std::memory_order_relaxed);
    for (size_t source = 0; source < kSourceCount; ++source) {
      const uint64_t calls = detail::call_counts[op][source].load(std::memory_order_relaxed);
      if (calls == 0) continue;
      const bool is_host = static_cast<Source>(source) == Source::Cpu;
      rows.push_back({opName(op), static_cast<Source>(source), calls, is_host ? bytes : 0});
    }
  }
  return rows;
}

void resetCallCounts() {
  for (OpId op = 0; op < opCount(); ++op) {
    for (auto& counter : detail::call_counts[op]) counter.store(0, std::memory_order_relaxed);
    detail::host_bytes[op].store(0, std::memory_order_relaxed);
  }
}

}  // namespace flagos::ops
