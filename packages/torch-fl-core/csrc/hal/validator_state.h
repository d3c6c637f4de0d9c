// What the validating layer knows of a library's objects. Not thread-safe by itself: Validator's mutex guards
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "flagos/hal.h"

namespace flagos::hal {

// Memory that the library gave out or was told of.
struct Range {
  enum class Origin { Allocated, AllocatedAsync, Imported, Pinned, Registered };
  uintptr_t base = 0;
  uint64_t size = 0;    // 0: not known (imported memory that the library cannot tell the size of)
  int32_t device = -1;  // −1: host memory
  Origin origin = Origin::Allocated;
};

// Ranges are kept in one book per way of giving them back: an imported range may lie over an allocated one of
// the same process, and registered memory over pinned memory.
enum Book { kDeviceBook, kImportedBook, kPinnedBook, kRegisteredBook, kBookCount };

constexpr Book bookOf(Range::Origin origin) {
  switch (origin) {
    case Range::Origin::Allocated:
    case Range::Origin::AllocatedAsync:
      return kDeviceBook;
    case Range::Origin::Imported:
      return kImportedBook;
    case Range::Origin::Pinned:
      return kPinnedBook;
    case Range::Origin::Registered:
      return kRegisteredBook;
  }
  return kDeviceBook;
}

// Ranges by address. They do not overlap, save that ranges of unknown size count as one byte.
class RangeMap {
 public:
  void add(const Range& range) { ranges_[range.base] = range; }

  // The range that starts at `pointer`, or null.
  const Range* at(const void* pointer) const {
    const auto it = ranges_.find(reinterpret_cast<uintptr_t>(pointer));
    return it == ranges_.end() ? nullptr : &it->second;
  }

  // The range that `pointer` lies in, or null.
  const Range* around(const void* pointer) const {
    const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
    auto it = ranges_.upper_bound(address);
    if (it == ranges_.begin()) return nullptr;
    --it;
    const uint64_t size = it->second.size ? it->second.size : 1;
    return address - it->first < size ? &it->second : nullptr;
  }

  // A range that shares a byte with [base, base + size), or null.
  const Range* overlapping(uintptr_t base, uint64_t size) const {
    const auto it = ranges_.lower_bound(base);
    if (it != ranges_.end() && it->first - base < size) return &it->second;
    return around(reinterpret_cast<const void*>(base));
  }

  bool remove(const void* pointer) { return ranges_.erase(reinterpret_cast<uintptr_t>(pointer)) != 0; }
  void clear() { ranges_.clear(); }
  const std::map<uintptr_t, Range>& all() const { return ranges_; }

 private:
  std::map<uintptr_t, Range> ranges_;
};

struct StreamState {
  int32_t device = 0;
  bool is_default = false;
  std::atomic<bool> capturing{false};  // changed outside the mutex, as the next
  // Calls in progress that queue on this stream: all of them in the low half, those whose order is the
  // caller's business (event.record, stream.wait_event) in the high half. Atomic: changed outside the mutex.
  std::atomic<uint64_t> in_progress{0};
};

struct EventState {
  int32_t device = 0;
  uint32_t flags = 0;
  std::atomic<bool> recorded{false};  // changed outside the mutex
  bool imported = false;
};

struct GraphState {
  int32_t device = 0;
};

// The live objects of one kind, and which addresses were alive before.
template <typename Handle, typename State>
class HandleMap {
 public:
  std::shared_ptr<State> find(const Handle* handle) const {
    const auto it = live_.find(handle);
    return it == live_.end() ? nullptr : it->second;
  }
  void add(const Handle* handle, std::shared_ptr<State> state) {
    dead_.erase(handle);
    live_[handle] = std::move(state);
  }
  void remove(const Handle* handle) {
    if (live_.erase(handle) != 0) dead_.insert(handle);
  }
  bool wasAlive(const Handle* handle) const { return dead_.count(handle) != 0; }
  void clear() {
    for (const auto& entry : live_) dead_.insert(entry.first);
    live_.clear();
  }
  const std::unordered_map<const Handle*, std::shared_ptr<State>>& all() const { return live_; }

 private:
  std::unordered_map<const Handle*, std::shared_ptr<State>> live_;
  std::unordered_set<const Handle*> dead_;  // bounded by the number of addresses that handles ever had
};

// The last released ranges, so that a late use can be called what it is.
class ReleasedRanges {
 public:
  void add(const Range& range) {
    released_.push_back(range);
    if (released_.size() > kKept) released_.pop_front();
  }
  // Memory that is in use again is not released any more.
  void forget(uintptr_t base, uint64_t size) {
    for (auto it = released_.begin(); it != released_.end();) {
      const bool overlaps =
          it->base < base + (size ? size : 1) && base < it->base + (it->size ? it->size : 1);
      it = overlaps ? released_.erase(it) : it + 1;
    }
  }
  const Range* around(const void* pointer) const {
    const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
    for (auto it = released_.rbegin(); it != released_.rend(); ++it) {
      if (address >= it->base && address - it->base < (it->size ? it->size : 1)) return &*it;
    }
    return nullptr;
  }

 private:
  static constexpr size_t kKept = 256;
  std::deque<Range> released_;
};

}  // namespace flagos::hal
