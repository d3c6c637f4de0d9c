// One statistic of the device allocator: for small and large blocks apart and for both together, the present
// value, its peak, and the totals in and out. What can be derived is not stored, since ten of these change
// with every allocation.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>

namespace flagos {

class Tally {
 public:
  void increase(bool large, size_t amount) noexcept {
    Pool& pool = pools_[large];
    const int64_t now = pool.current += static_cast<int64_t>(amount);
    pool.total += static_cast<int64_t>(amount);
    if (now > pool.peak) pool.peak = now;
    const int64_t both = now + pools_[!large].current;
    if (both > peak_) peak_ = both;
  }
  void decrease(bool large, size_t amount) noexcept { pools_[large].current -= static_cast<int64_t>(amount); }

  int64_t current() const noexcept { return pools_[0].current + pools_[1].current; }

  void resetPeak() noexcept {
    for (Pool& pool : pools_) pool.peak = pool.current;
    peak_ = current();
  }
  // The totals start again from 0; the present values stay.
  void resetAccumulated() noexcept {
    for (Pool& pool : pools_) {
      pool.first_in = pool.total;
      pool.first_out = pool.total - pool.current;
    }
  }

  c10::CachingAllocator::StatArray stats() const noexcept {
    c10::CachingAllocator::StatArray out;
    for (size_t i = 0; i < 2; ++i) {
      const Pool& pool = pools_[i];
      auto& stat = out[i + 1];
      stat.current = pool.current;
      stat.peak = pool.peak;
      stat.allocated = pool.total - pool.first_in;
      stat.freed = pool.total - pool.current - pool.first_out;
      out[0].current += stat.current;
      out[0].allocated += stat.allocated;
      out[0].freed += stat.freed;
    }
    out[0].peak = peak_;
    return out;
  }

 private:
  struct Pool {
    int64_t current = 0;
    int64_t total = 0;  // all that ever came in
    int64_t peak = 0;
    int64_t first_in = 0;  // `total`, and what had gone out, at the last reset
    int64_t first_out = 0;
  };
  Pool pools_[2];  // small, large
  int64_t peak_ = 0;
};

}  // namespace flagos
