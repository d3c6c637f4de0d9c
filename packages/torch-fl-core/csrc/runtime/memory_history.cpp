#include "csrc/runtime/memory_history.h"

#include <chrono>
#include <exception>
#include <iterator>
#include <mutex>
#include <utility>

namespace flagos {

std::atomic<bool> MemoryHistory::enabled_{false};

namespace {

struct Settings {
  std::mutex mutex;
  HistoryOptions options;  // guarded by mutex
};

Settings& settings() {
  static auto* const instance = new Settings;  // never destroyed: frees may come during exit
  return *instance;
}

}  // namespace

const char* memoryActionName(MemoryAction action) noexcept {
  switch (action) {
    case MemoryAction::Alloc:
      return "alloc";
    case MemoryAction::FreeRequested:
      return "free_requested";
    case MemoryAction::FreeCompleted:
      return "free_completed";
    case MemoryAction::SegmentAlloc:
      return "segment_alloc";
    case MemoryAction::SegmentFree:
      return "segment_free";
    case MemoryAction::Oom:
      return "oom";
    case MemoryAction::Snapshot:
      return "snapshot";
  }
  return "?";
}

void MemoryHistory::configure(const HistoryOptions& options) {
  Settings& current = settings();
  std::lock_guard<std::mutex> lock(current.mutex);
  current.options = options;
  enabled_.store(options.enabled, std::memory_order_relaxed);
}

HistoryOptions MemoryHistory::options() {
  Settings& current = settings();
  std::lock_guard<std::mutex> lock(current.mutex);
  return current.options;
}

ContextPtr MemoryHistory::gather(ContextLevel needed) {
  if (!enabled()) return nullptr;
  const HistoryOptions now = options();
  if (now.gather == nullptr || static_cast<int>(now.level) < static_cast<int>(needed)) return nullptr;
  try {
    return now.gather();
  } catch (const std::exception&) {
    return nullptr;  // a stack is an extra; allocations and frees must not fail for want of it
  }
}

void TraceRing::add(TraceRecord record, size_t max_entries) {
  if (max_entries == 0) return;
  if (records_.size() < max_entries) {
    if (next_ != 0) {  // the limit was raised: straighten the ring first
      records_ = inOrder();
      next_ = 0;
    }
    records_.push_back(std::move(record));
    return;
  }
  if (records_.size() > max_entries) {  // the limit was lowered: keep the newest
    std::vector<TraceRecord> all = inOrder();
    records_.assign(std::make_move_iterator(all.end() - static_cast<std::ptrdiff_t>(max_entries)),
                    std::make_move_iterator(all.end()));
    next_ = 0;
  }
  records_[next_] = std::move(record);
  next_ = (next_ + 1) % records_.size();
}

std::vector<TraceRecord> TraceRing::inOrder() const {
  std::vector<TraceRecord> ordered;
  ordered.reserve(records_.size());
  for (size_t i = 0; i < records_.size(); ++i) ordered.push_back(records_[(next_ + i) % records_.size()]);
  return ordered;
}

void TraceRing::clear() {
  records_.clear();
  next_ = 0;
}

int64_t nowMicroseconds() noexcept {
  using std::chrono::duration_cast;
  using std::chrono::microseconds;
  return duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace flagos
