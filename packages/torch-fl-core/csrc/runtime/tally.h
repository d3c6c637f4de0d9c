// Statistics of the device allocator: for small and large blocks apart and for both together, the present
// value, its peak, and the totals in and out. Some change with every allocation, under a lock that threads
// contend for, so that what can be derived is not stored and what is seldom read lies apart: it is cache
// lines that travel between processors.
#pragma once

#include <c10/core/Allocator.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace flagos {

// Where the totals of a Tally started, at the last reset.
struct TallyOrigin {
  std::array<int64_t, 2> in{};
  std::array<int64_t, 2> out{};
};

class Tally {
 public:
  // elsewhere: what counters of small blocks that are kept apart would add now.
  void increase(bool large, size_t amount, int64_t elsewhere = 0) noexcept {
    current_[large] += static_cast<int64_t>(amount);
    total_[large] += static_cast<int64_t>(amount);
    raisePeak(large, elsewhere);
  }
  void decrease(bool large, size_t amount) noexcept { current_[large] -= static_cast<int64_t>(amount); }

  // Takes over counters of small blocks that were kept apart: their change, its highest value, and what came
  // in.
  void fold(int64_t change, int64_t highest, int64_t in, int64_t elsewhere) noexcept {
    raisePeak(/*large=*/false, highest + elsewhere);
    current_[0] += change;
    total_[0] += in;
  }

  int64_t current() const noexcept { return current_[0] + current_[1]; }

  void resetPeak() noexcept {
    peak_ = current_;
    peak_both_ = current();
  }
  // The totals start again from 0; the present values stay.
  TallyOrigin originNow() const noexcept {
    TallyOrigin origin;
    for (size_t i = 0; i < 2; ++i) {
      origin.in[i] = total_[i];
      origin.out[i] = total_[i] - current_[i];
    }
    return origin;
  }

  c10::CachingAllocator::StatArray stats(const TallyOrigin& origin) const noexcept {
    c10::CachingAllocator::StatArray out;
    for (size_t i = 0; i < 2; ++i) {
      auto& stat = out[i + 1];
      stat.current = current_[i];
      stat.peak = peak_[i];
      stat.allocated = total_[i] - origin.in[i];
      stat.freed = total_[i] - current_[i] - origin.out[i];
      out[0].current += stat.current;
      out[0].allocated += stat.allocated;
      out[0].freed += stat.freed;
    }
    out[0].peak = peak_both_;
    return out;
  }

 private:
  friend class ActiveTally;

  void raisePeak(bool large, int64_t elsewhere) noexcept {
    const int64_t now = current_[large] + (large ? 0 : elsewhere);
    if (now > peak_[large]) peak_[large] = now;
    const int64_t both = current() + elsewhere;
    if (both > peak_both_) peak_both_ = both;
  }

  std::array<int64_t, 2> current_{};  // small, large
  std::array<int64_t, 2> total_{};    // all that ever came in
  std::array<int64_t, 2> peak_{};
  int64_t peak_both_ = 0;
};

// What is allocated, and what was freed but waits for work on other streams, together. While nothing waits,
// which is the usual case, this equals what is allocated, so that only the time when something waits is kept.
class ActiveTally {
 public:
  void startWaiting(bool large, size_t amount) noexcept { waiting_[large] += static_cast<int64_t>(amount); }
  void stopWaiting(bool large, size_t amount) noexcept { waiting_[large] -= static_cast<int64_t>(amount); }

  // To be called when `allocated` may have reached a peak.
  void follow(const Tally& allocated, int64_t elsewhere) noexcept {
    if ((waiting_[0] | waiting_[1]) == 0) return;
    peak_[0] = std::max(peak_[0], allocated.current_[0] + elsewhere + waiting_[0]);
    peak_[1] = std::max(peak_[1], allocated.current_[1] + waiting_[1]);
    peak_both_ = std::max(peak_both_, allocated.current() + elsewhere + waiting_[0] + waiting_[1]);
  }

  int64_t waiting() const noexcept { return waiting_[0] + waiting_[1]; }

  // As a Tally of its own would have it.
  Tally over(const Tally& allocated) const noexcept {
    Tally active = allocated;
    for (size_t i = 0; i < 2; ++i) {
      active.current_[i] += waiting_[i];
      active.peak_[i] = std::max(peak_[i], allocated.peak_[i]);
    }
    active.peak_both_ = std::max(peak_both_, allocated.peak_both_);
    return active;
  }

  void resetPeak(const Tally& allocated) noexcept {
    const Tally active = over(allocated);
    peak_ = active.current_;
    peak_both_ = active.current();
  }

 private:
  std::array<int64_t, 2> waiting_{};
  std::array<int64_t, 2> peak_{};
  int64_t peak_both_ = 0;
};

}  // namespace flagos
