// A record of what the device allocator did: a ring of actions with address, size, stream, time and, if asked
// for, the call stack. Off by default; then its cost is one relaxed load for each allocation.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "csrc/api.h"

namespace flagos {

using ContextPtr = std::shared_ptr<c10::GatheredContext>;

enum class MemoryAction { Alloc, FreeRequested, FreeCompleted, SegmentAlloc, SegmentFree, Oom, Snapshot };

// The name that torch's memory viewer knows: "alloc", "free_requested", …
FLAGOS_API const char* memoryActionName(MemoryAction action) noexcept;

struct TraceRecord {
  MemoryAction action;
  size_t address;  // for Oom: the bytes free on the device
  size_t size;
  c10::StreamId stream;
  int64_t time_us;  // since the Unix epoch
  ContextPtr context;
};

// For which actions a call stack is taken.
enum class ContextLevel {
  Never,
  State,
  Alloc,
  All
};  // State: of live blocks; Alloc: also in the ring; All: frees too

struct HistoryOptions {
  bool enabled = false;
  bool keep_trace = false;  // false: only live blocks carry their stack
  size_t max_entries = ~size_t{0};
  ContextLevel level = ContextLevel::Never;
  ContextPtr (*gather)() = nullptr;
};

// The settings, one for the process. gather() runs without any lock of the allocator, since it may need the
// interpreter's.
class MemoryHistory {
 public:
  static void configure(const HistoryOptions& options);
  static bool enabled() noexcept { return enabled_.load(std::memory_order_relaxed); }
  static HistoryOptions options();
  static ContextPtr gather(ContextLevel needed);  // null unless the level in effect is at least `needed`

 private:
  static std::atomic<bool> enabled_;
};

// The ring of one device; guarded by the mutex of its arena.
class TraceRing {
 public:
  void add(TraceRecord record, size_t max_entries);
  std::vector<TraceRecord> inOrder() const;
  void clear();

 private:
  std::vector<TraceRecord> records_;
  size_t next_ = 0;  // where the next one goes once the ring is full
};

int64_t nowMicroseconds() noexcept;

}  // namespace flagos
