// The sources: who can implement an operator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "csrc/api.h"

namespace flagos::ops {

using OpId = uint32_t;
inline constexpr OpId kMaxOps =
    8192;  // PyTorch has about 3,200 overloads of its own; a fixed bound keeps the look-up free of checks

enum class Source : uint8_t { Native, Boxed, Gems, GemsCpp, Triton, TileOps, Cpu, Count_ };
inline constexpr size_t kSourceCount = static_cast<size_t>(Source::Count_);

FLAGOS_API const char* sourceName(Source source) noexcept;  // as in route tables: "cpu"
FLAGOS_API std::optional<Source> sourceOf(const std::string& name) noexcept;

// The id of an operator ("aten::add.Tensor"), made at its first mention; the same for the life of the
// process. Thread-safe.
FLAGOS_API OpId opId(const std::string& name);
FLAGOS_API std::string opName(OpId op);
FLAGOS_API std::optional<OpId> findOpId(const std::string& name);  // without making one
FLAGOS_API OpId opCount();

}  // namespace flagos::ops
