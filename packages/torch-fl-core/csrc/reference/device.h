// The simulated devices.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "csrc/reference/status.h"
#include "flagos/hal.h"

namespace flagos::reference {

struct Stream;

inline constexpr int32_t kLeastPriority = 0;
inline constexpr int32_t kGreatestPriority = -3;
inline constexpr int32_t kMaxStreamsPerDevice = 1024;  // the default stream is not counted

// What priorities do: copies and fills of a stream start only while no stream of the same device with a more
// urgent priority has a copy or fill running or ready. Work that has started is not interrupted; streams of
// one priority do not wait for each other. Host callbacks and waits for events count on neither side, so a
// callback may wait for a less urgent stream.
class PriorityGate {
 public:
  // A stream of this level (0 = most urgent) has device work at its head, and waits for its turn to run it.
  void enter(int level);
  // Its next piece of device work, without having left in between.
  void next(int level);
  // Its head is no longer device work.
  void leave(int level);

 private:
  void waitTurn(std::unique_lock<std::mutex>& lock, int level);
  static constexpr int kLevels = kLeastPriority - kGreatestPriority + 1;
  std::mutex mutex_;  // guards ready_
  std::condition_variable turn_;
  int ready_[kLevels] = {};
};

struct Device {
  int32_t index = 0;
  uint64_t capacity = 0;
  std::atomic<uint64_t> used{0};  // bytes of capacity taken
  std::atomic<bool> lost{false};
  std::atomic<bool> has_priorities{false};  // some stream was made with a priority other than 0
  PriorityGate gate;
  std::mutex mutex;              // guards streams
  std::vector<Stream*> streams;  // all that exist, the default one first
  Stream* default_stream = nullptr;
  flagos_hal_stream* default_handle = nullptr;
};

extern int32_t device_count;  // written by init and shutdown only

// The device of a valid index.
Device& deviceAt(int32_t index) noexcept;

// INVALID_DEVICE, or OK.
flagos_hal_status checkIndex(int32_t device);
// INVALID_DEVICE, DEVICE_LOST, or OK: what most functions that name a device begin with.
flagos_hal_status checkDevice(int32_t device);
flagos_hal_status failLost(int32_t device);

// The device fails for good: its queued work is dropped. Does nothing for an index that is none.
void loseDevice(int32_t device) noexcept;

// Waits for all work queued so far on all streams of the device. Does not look at failures.
void drainDevice(Device& device);

// Called by init and shutdown.
flagos_hal_status openDevices(int32_t count, uint64_t capacity);
void closeDevices() noexcept;

}  // namespace flagos::reference
