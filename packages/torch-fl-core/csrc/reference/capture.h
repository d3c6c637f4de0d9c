// Capturing of streams: work that is queued on a capturing stream is recorded instead of run.
//
// A capture keeps its work in the order of the calls. Any dependency that events can express points backwards
// in that order, so a graph is replayed correctly as one list on one stream; what is lost is that branches
// could run side by side.
//
// While a capture runs, calls that wait for the device or change memory are unsafe: memory.allocate, release,
// copy and fill, host.allocate and release, device.synchronize, query and synchronize of a captured stream or
// event. They give CAPTURE, and by the capture's mode end it: see flagos_hal_capture_mode and
// graph.exchange_thread_mode.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "csrc/reference/status.h"
#include "csrc/reference/stream.h"
#include "csrc/reference/work.h"

namespace flagos::reference {

struct Event;

// One piece of recorded work. Addresses are looked up anew at every launch.
struct CapturedNode {
  std::variant<Transfer, CallbackWork> work;
  WorkKind kind;
  Function function;
};

// How many pieces of work of each stream of a capture come before a point of it.
using CaptureClock = std::map<const Stream*, size_t>;

// What an event that was recorded in a capture stands for.
struct CapturePoint {
  uint64_t capture;  // its number
  CaptureClock clock;
};

extern std::atomic<int32_t> captures_running;

flagos_hal_status refuseDuringCaptureSlow(const char* function);

// OK, or CAPTURE where an unsafe call is not allowed now.
inline flagos_hal_status refuseDuringCapture(const char* function) {
  return __builtin_expect(captures_running.load(std::memory_order_acquire) != 0, 0)
             ? refuseDuringCaptureSlow(function)
             : kOk;
}

inline bool capturing(const Stream& stream) noexcept {
  return stream.flags.load(std::memory_order_acquire) & kStreamCapturing;
}

// OK, or CAPTURE if the stream is being captured (or the event was recorded in a capture).
flagos_hal_status refuseCapturing(Stream& stream, const char* function);
flagos_hal_status refuseCapturedEvent(const CapturePoint& point, const char* function);

// Records work of a capturing stream.
flagos_hal_status captureWork(Stream& stream, std::vector<CapturedNode> nodes);
// The point at which a capturing stream is now.
flagos_hal_status capturePoint(Stream& stream, std::shared_ptr<const CapturePoint>* point);
// Makes work of `stream` that follows come after `point` (null: the event was not recorded in a capture). A
// stream that was not capturing joins the capture.
flagos_hal_status captureWait(Stream& stream, const CapturePoint* point);

flagos_hal_status beginCapture(Stream& stream, int32_t mode);
// Ends the stream's capture. CAPTURE, and no work, if it was invalidated or a stream that joined has work
// that the first one did not wait for.
flagos_hal_status endCapture(Stream& stream, std::vector<CapturedNode>* nodes);
// Ends, with an error, what the stream takes part in: it is being destroyed.
void abandonCapture(Stream& stream) noexcept;

// The calling thread's mode.
int32_t exchangeThreadMode(int32_t mode) noexcept;

}  // namespace flagos::reference
