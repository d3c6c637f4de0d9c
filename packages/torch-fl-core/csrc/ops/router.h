// Which source serves an operator: dense ids, one immutable table, counters.
//
// A look-up is one atomic load and an index. A change publishes a new table for all threads; old tables are
// kept, since a reader may still hold one and a table is a few kilobytes.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/api.h"

namespace flagos::ops {

using OpId = uint32_t;
inline constexpr OpId kMaxOps =
    8192;  // PyTorch has about 3,200 overloads of its own; a fixed bound keeps the look-up free of checks

enum class Source : uint8_t { Native, Boxed, Gems, GemsCpp, Triton, TileOps, Cpu, Count_ };
inline constexpr size_t kSourceCount = static_cast<size_t>(Source::Count_);
FLAGOS_API const char* sourceName(Source source) noexcept;  // as in route tables: "cpu"

struct RouteTable {
  std::array<Source, kMaxOps> source;
  uint64_t version = 0;  // 1, 2, … in order of publication
};

namespace detail {
FLAGOS_API extern std::atomic<const RouteTable*> current_table;
FLAGOS_API extern std::array<std::array<std::atomic<uint64_t>, kSourceCount>, kMaxOps> call_counts;
FLAGOS_API extern std::array<std::atomic<uint64_t>, kMaxOps> host_bytes;
}  // namespace detail

// The source that serves `op` now. Wait-free.
inline Source route(OpId op) noexcept {
  return detail::current_table.load(std::memory_order_acquire)->source[op];
}

inline void countCall(OpId op, Source source) noexcept {
  detail::call_counts[op][static_cast<size_t>(source)].fetch_add(1, std::memory_order_relaxed);
}

// Bytes that crossed between host and device because of `op` (staged host kernels).
inline void countHostBytes(OpId op, uint64_t bytes) noexcept {
  detail::host_bytes[op].fetch_add(bytes, std::memory_order_relaxed);
}

// The id of an operator, made at its first mention; the same for the life of the process. Thread-safe.
FLAGOS_API OpId opId(const c10::OperatorName& name);
std::string opName(OpId op);
OpId opCount();

struct OpCount {
  std::string op;  // "aten::add.Tensor"
  Source source;
  uint64_t calls;
  uint64_t host_bytes;
};
// What was called since the start or the last reset, in order of ids; zero rows are left out.
FLAGOS_API std::vector<OpCount> callCounts();
FLAGOS_API void resetCallCounts();

}  // namespace flagos::ops
