#include "csrc/reference/capture.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>

#include "csrc/reference/device.h"

namespace flagos::reference {

std::atomic<int32_t> captures_running{0};

namespace {

thread_local int32_t thread_mode = FLAGOS_HAL_CAPTURE_GLOBAL;
thread_local const char thread_identity = 0;  // its address tells threads apart

struct Capture {
  uint64_t number = 0;
  int32_t mode = FLAGOS_HAL_CAPTURE_GLOBAL;
  const char* thread = nullptr;  // identity of the one that began it
  Stream* origin = nullptr;
  std::vector<CapturedNode> nodes;
  std::map<Stream*, CaptureClock> clocks;  // of every stream that takes part
  std::string invalid;                     // why it was invalidated; empty while it is good
};

// Captures are rare and short, so one lock guards all of them. Never destroyed.
struct Captures {
  std::mutex mutex;
  std::map<uint64_t, Capture> running;
  uint64_t last_number = 0;

  Capture* of(Stream& stream) {
    for (auto& entry : running) {
      if (entry.second.clocks.count(&stream)) return &entry.second;
    }
    return nullptr;
  }
};

Captures& captures() {
  static Captures& all = *new Captures;
  return all;
}

void invalidate(Capture& capture, const char* function) {
  if (capture.invalid.empty()) capture.invalid = std::string(function) + " was called while it ran";
}

// Whether an unsafe call of this thread ends that capture.
bool concerns(const Capture& capture) noexcept {
  if (capture.mode == FLAGOS_HAL_CAPTURE_RELAXED || thread_mode == FLAGOS_HAL_CAPTURE_RELAXED) return false;
  if (capture.thread == &thread_identity) return true;
  return capture.mode == FLAGOS_HAL_CAPTURE_GLOBAL && thread_mode == FLAGOS_HAL_CAPTURE_GLOBAL;
}

// Puts the streams of a capture back to normal and forgets it.
void dissolve(Captures& all, uint64_t number) {
  const auto it = all.running.find(number);
  for (const auto& entry : it->second.clocks) {
    entry.first->flags.fetch_and(~kStreamCapturing, std::memory_order_acq_rel);
  }
  all.running.erase(it);
  captures_running.fetch_sub(1, std::memory_order_acq_rel);
}

void merge(CaptureClock& into, const CaptureClock& from) {
  for (const auto& entry : from) {
    size_t& count = into[entry.first];
    count = std::max(count, entry.second);
  }
}

flagos_hal_status join(Capture& capture, Stream& stream) {
  FLAGOS_HAL_REQUIRE(stream.device == capture.origin->device, CAPTURE,
                     "a stream of device %d cannot join a capture of device %d", stream.device,
                     capture.origin->device);
  FLAGOS_HAL_REQUIRE(deviceAt(stream.device).default_stream != &stream, CAPTURE,
                     "the default stream cannot join a capture");
  capture.clocks[&stream];
  stream.flags.fetch_or(kStreamCapturing, std::memory_order_acq_rel);
  return kOk;
}

}  // namespace

flagos_hal_status refuseDuringCaptureSlow(const char* function) {
  Captures& all = captures();
  std::lock_guard<std::mutex> lock(all.mutex);
  bool refused = false;
  for (auto& entry : all.running) {
    if (!concerns(entry.second)) continue;
    invalidate(entry.second, function);
    refused = true;
  }
  FLAGOS_HAL_REQUIRE(!refused, CAPTURE,
                     "%s is not allowed while a stream is being captured; the capture is invalid now",
                     function);
  return kOk;
}

flagos_hal_status refuseCapturing(Stream& stream, const char* function) {
  if (!capturing(stream)) return kOk;
  Captures& all = captures();
  std::lock_guard<std::mutex> lock(all.mutex);
  Capture* capture = all.of(stream);
  if (!capture) return kOk;
  if (concerns(*capture)) invalidate(*capture, function);
  return fail(FLAGOS_HAL_STATUS_CAPTURE, "%s is not allowed on a stream that is being captured", function);
}

flagos_hal_status refuseCapturedEvent(const CapturePoint& point, const char* function) {
  Captures& all = captures();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto it = all.running.find(point.capture);
  if (it != all.running.end() && concerns(it->second)) invalidate(it->second, function);
  return fail(FLAGOS_HAL_STATUS_CAPTURE, "%s is not allowed on an event that was last recorded in a capture",
              function);
}

flagos_hal_status captureWork(Stream& stream, std::vector<CapturedNode> nodes) {
  Captures& all = captures();
  std::lock_guard<std::mutex> lock(all.mutex);
  Capture* capture = all.of(stream);
  FLAGOS_HAL_REQUIRE(capture, INVALID_STATE, "the capture of the stream was ended by another thread");
  const size_t count = nodes.size();
  capture->nodes.insert(capture->nodes.end(), std::make_move_iterator(nodes.begin()),
                        std::make_move_iterator(nodes.end()));
  capture->clocks[&stream][&stream] += count;
  return kOk;
}

flagos_hal_status capturePoint(Stream& stream, std::shared_ptr<const CapturePoint>* point) {
  Captures& all = captures();
  std::lock_guard<std::mutex> lock(all.mutex);
  Capture* capture = all.of(stream);
  FLAGOS_HAL_REQUIRE(capture, INVALID_STATE, "the capture of the stream was ended by another thread");
  *point = std::make_shared<const CapturePoint>(CapturePoint{capture->number, capture->clocks[&stream]});
  return kOk;
}

flagos_hal_status captureWait(Stream& stream, const CapturePoint* point) {
  Captures& all = captures();
  std::lock_guard<std::mutex> lock(all.mutex);
  Capture* own = all.of(stream);
  if (!point) {
    FLAGOS_HAL_REQUIRE(own, INVALID_STATE, "the capture of the stream was ended by another thread");
    invalidate(*own, "stream.wait_event with an event from outside");
    return fail(FLAGOS_HAL_STATUS_CAPTURE,
                "a stream that is being captured cannot wait for an event that was recorded outside");
  }
  const auto it = all.running.find(point->capture);
  FLAGOS_HAL_REQUIRE(it != all.running.end(), CAPTURE,
                     "the event was last recorded in a capture that has ended");
  FLAGOS_HAL_REQUIRE(!own || own == &it->second, CAPTURE,
                     "the event was recorded in another capture than the stream's");
  if (!own) FLAGOS_HAL_TRY(join(it->second, stream));
  merge(it->second.clocks[&stream], point->clock);
  return kOk;
}

flagos_hal_status beginCapture(Stream& stream, int32_t mode) {
  Captures& all = captures();
  std::lock_guard<std::mutex> lock(all.mutex);
  FLAGOS_HAL_REQUIRE(!all.of(stream), INVALID_STATE, "the stream is being captured already");
  const uint64_t number = ++all.last_number;
  Capture& capture = all.running[number];
  capture.number = number;
  capture.mode = mode;
  capture.thread = &thread_identity;
  capture.origin = &stream;
  capture.clocks[&stream];
  stream.flags.fetch_or(kStreamCapturing, std::memory_order_acq_rel);
  captures_running.fetch_add(1, std::memory_order_acq_rel);
  return kOk;
}

flagos_hal_status endCapture(Stream& stream, std::vector<CapturedNode>* nodes) {
  Captures& all = captures();
  std::lock_guard<std::mutex> lock(all.mutex);
  Capture* capture = all.of(stream);
  FLAGOS_HAL_REQUIRE(capture && capture->origin == &stream, INVALID_STATE,
                     "no capture was begun on this stream");
  const uint64_t number = capture->number;
  std::string problem = capture->invalid;
  const CaptureClock seen = capture->clocks[&stream];
  for (auto& entry : capture->clocks) {
    const Stream* other = entry.first;
    const auto own = entry.second.find(other);
    const auto known = seen.find(other);
    const size_t recorded = own == entry.second.end() ? 0 : own->second;
    if (problem.empty() && recorded > (known == seen.end() ? 0 : known->second)) {
      problem = "a stream that joined has work that the first stream did not wait for";
    }
  }
  std::vector<CapturedNode> recorded = std::move(capture->nodes);
  dissolve(all, number);
  FLAGOS_HAL_REQUIRE(problem.empty(), CAPTURE, "the capture gives no graph: %s", problem.c_str());
  *nodes = std::move(recorded);
  return kOk;
}

void abandonCapture(Stream& stream) noexcept {
  if (!capturing(stream)) return;
  Captures& all = captures();
  std::lock_guard<std::mutex> lock(all.mutex);
  Capture* capture = all.of(stream);
  if (!capture) return;
  if (capture->origin == &stream) {
    dissolve(all, capture->number);
  } else {
    if (capture->invalid.empty()) capture->invalid = "a stream that had joined was destroyed";
    capture->clocks.erase(&stream);
    stream.flags.fetch_and(~kStreamCapturing, std::memory_order_acq_rel);
  }
}

int32_t exchangeThreadMode(int32_t mode) noexcept { return std::exchange(thread_mode, mode); }

}  // namespace flagos::reference
