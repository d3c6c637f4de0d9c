// Streams: a queue of work and the thread that does it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "csrc/reference/device.h"
#include "csrc/reference/handle_table.h"
#include "csrc/reference/options.h"
#include "csrc/reference/status.h"
#include "csrc/reference/work.h"

namespace flagos::reference {

// Bits of Stream::flags; all clear in the normal case, so that query looks at one word.
inline constexpr uint32_t kStreamFailed = 1u << 0;     // work failed and nobody has been told
inline constexpr uint32_t kStreamLost = 1u << 1;       // its device is lost
inline constexpr uint32_t kStreamCapturing = 1u << 2;  // work is recorded, not run

// Work that failed on the stream's thread.
struct Failure {
  flagos_hal_status status = kOk;
  WorkKind kind = WorkKind::Other;
};

// Lives as long as its slot in the table of handles (handle_table.h). `queued` and `finished` only ever grow,
// also from one owner of the slot to the next, so a mark (stream, number) stays true for ever once it is
// reached.
struct Stream {
  std::atomic<uint64_t> queued{0};    // pieces of work accepted; written under mutex
  std::atomic<uint64_t> finished{0};  // pieces of work done; written by the stream's thread
  std::atomic<uint32_t> flags{0};
  std::atomic<uint32_t> waiters{0};  // threads in waitFor
  int32_t device = -1;
  int32_t priority = 0;
  uint64_t number = 0;  // identifies the stream in traces
  flagos_hal_stream* handle = nullptr;

  std::mutex mutex;                  // guards what follows
  std::condition_variable work;      // the thread sleeps here
  std::condition_variable progress;  // threads that wait for `finished`
  std::vector<Task> tasks;
  std::thread thread;  // started with the first piece of work
  bool stop = false;
  Failure failure;
};

using StreamTable = HandleTable<flagos_hal_stream, Stream, 'S', kMaxDevices*(kMaxStreamsPerDevice + 64)>;
StreamTable& streams() noexcept;

flagos_hal_status unknownStream(const flagos_hal_stream* handle);

// Makes a stream and its handle. The device is not locked.
flagos_hal_status openStream(Device& device, int32_t priority, flagos_hal_stream** out_handle);

// Waits for the stream's work, ends its thread and frees the slot. `handle` was retired.
void closeStream(Stream& stream) noexcept;

// Waits until `sequence` pieces of work are done.
void waitFor(Stream& stream, uint64_t sequence);

inline bool reached(const Stream& stream, uint64_t sequence) noexcept {
  return stream.finished.load(std::memory_order_acquire) >= sequence;
}

// Reports the stream's asynchronous failure once; OK if there is none.
flagos_hal_status takeFailure(Stream& stream);
// The same for any stream of the device.
flagos_hal_status takeDeviceFailure(Device& device);

// INVALID_STATE where a stream's own thread would wait for itself (a host callback that calls the HAL).
flagos_hal_status refuseOnWorker();

// Runs `body(stream)` as HAL function `function` on a live stream of a device that is not lost.
template <typename Body>
flagos_hal_status invokeOnStream(Function function, flagos_hal_stream* handle, Body&& body) noexcept {
  return hal_support::call(functionName(function), [&]() -> flagos_hal_status {
    Stream* stream = streams().find(handle);
    FLAGOS_HAL_TRY(inject(function, stream ? stream->device : -1));
    if (!stream) return unknownStream(handle);
    if (stream->flags.load(std::memory_order_acquire) & kStreamLost) return failLost(stream->device);
    return body(*stream);
  });
}

}  // namespace flagos::reference
