// Blocks that were freed while work on other streams may still use them, and the events that tell when it has
// finished. Shared by the device and the pinned allocator, which name their blocks by an opaque token.
//
// The events are recorded when the block is freed, not when the use was announced, so they cover all work
// queued in between. There is one queue for each stream: a busy stream holds up nothing but its own. An event
// whose record or query fails never counts as reached; its block stays out of use and is tried again at the
// next occasion.
//
// Locks: mutex_ guards the containers and is never held across a HAL call. collecting_ lets one thread at a
// time query events; it is held across HAL calls, so a thread that frees never takes it. Order: collecting_,
// mutex_. A record also takes the stream's own order lock (stream_table.h), held across calls that only
// queue.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "csrc/runtime/devices.h"

namespace flagos {

class PendingEvents {
 public:
  using Token = void*;

  // Records an event on each of `streams` on behalf of `token`. The token comes back once for each stream,
  // from this call (where the stream turned out to be idle) or from a later collect(). Never throws.
  void defer(Token token, const std::vector<c10::Stream>& streams, std::vector<Token>& finished) noexcept;

  enum class Mode {
    Poll,   // what has finished; returns at once if another thread is polling
    Sweep,  // likewise, but waits for that other thread
    Wait,   // waits for everything that is queued now
  };
  struct Result {
    std::vector<Token> finished;
    std::exception_ptr error;  // the first failure; what it concerns stays queued
  };
  Result collect(Mode mode);

  size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }

  // Forgets everything and destroys the events; the tokens do not come back.
  void clear() noexcept;

 private:
  struct Entry {
    Token token;
    flagos_hal_event* event;
  };
  struct Queue {
    c10::Stream stream;
    std::deque<Entry> entries;
  };
  struct Unrecorded {
    Token token;
    c10::Stream stream;
  };

  flagos_hal_event* takeEvent(const DeviceEntry& device, flagos_hal_status& status);
  void keepEvent(c10::DeviceIndex device, flagos_hal_event* event);
  bool tryRecord(Token token, c10::Stream stream, std::exception_ptr* error);
  bool waitForStream(c10::Stream stream);
  void recordAgain(Mode mode, Result& result);
  void collectQueue(size_t queue, Mode mode, Result& result);

  std::mutex collecting_;
  mutable std::mutex mutex_;
  std::deque<Queue> queues_;            // never shrinks, so an index stays valid
  std::vector<Unrecorded> unrecorded_;  // the event could be neither recorded nor replaced by waiting
  std::unordered_map<c10::DeviceIndex, std::vector<flagos_hal_event*>> spare_;
  std::atomic<size_t> size_{0};  // tokens not yet given back
};

}  // namespace flagos
