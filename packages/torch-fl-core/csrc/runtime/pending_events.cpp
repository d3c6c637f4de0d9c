#include "csrc/runtime/pending_events.h"

#include "csrc/runtime/stream.h"
#include "csrc/runtime/stream_table.h"

namespace flagos {

namespace {

// The exception that FLAGOS_CHECK would throw. The HAL's detail is thread-local and the next failure replaces
// it, so it is taken at once.
std::exception_ptr failure(const DeviceEntry& device, flagos_hal_status status, const char* what) {
  try {
    throwHalError(device, status, what);
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

flagos_hal_event* PendingEvents::takeEvent(const DeviceEntry& device, flagos_hal_status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& spare = spare_[device.index];
    if (!spare.empty()) {
      flagos_hal_event* event = spare.back();
      spare.pop_back();
      return event;
    }
  }
  flagos_hal_event* event = nullptr;
  status = device.hal->event.create(device.local, 0, &event);
  return status == FLAGOS_HAL_STATUS_OK ? event : nullptr;
}

void PendingEvents::keepEvent(c10::DeviceIndex device, flagos_hal_event* event) {
  std::lock_guard<std::mutex> lock(mutex_);
  spare_[device].push_back(event);
}

// Queues an event for `token`; false if that failed, with `error` saying why.
bool PendingEvents::tryRecord(Token token, c10::Stream stream, std::exception_ptr* error) {
  const DeviceEntry& device = deviceEntry(stream.device_index());
  flagos_hal_status status = FLAGOS_HAL_STATUS_OK;
  flagos_hal_event* event = takeEvent(device, status);
  if (event != nullptr) {
    {
      detail::StreamEntry& entry = detail::findStream(device, stream.id());
      std::lock_guard<std::mutex> order(entry.order);
      status = device.hal->event.record(event, entry.handle);
    }
    if (status == FLAGOS_HAL_STATUS_OK) {
      std::lock_guard<std::mutex> lock(mutex_);
      for (Queue& queue : queues_) {
        if (queue.stream == stream) {
          queue.entries.push_back({token, event});
          return true;
        }
      }
      queues_.push_back({stream, {{token, event}}});
      return true;
    }
    keepEvent(device.index, event);
  }
  if (error != nullptr)
    *error = failure(device, status, "record an event for memory in use on another stream");
  return false;
}

void PendingEvents::defer(Token token, const std::vector<c10::Stream>& streams,
                          std::vector<Token>& finished) noexcept {
  size_.fetch_add(streams.size(), std::memory_order_relaxed);
  for (const c10::Stream stream : streams) {
    try {
      if (tryRecord(token, stream, nullptr)) continue;
      if (waitForStream(stream)) {
        size_.fetch_sub(1, std::memory_order_relaxed);
        finished.push_back(token);
        continue;
      }
    } catch (const std::exception&) {
      // An unknown stream id or a device that is gone: the use cannot be shown to be over, so the block stays
      // out of use.
    }
    std::lock_guard<std::mutex> lock(mutex_);
    unrecorded_.push_back({token, stream});
  }
}

// No event to be had: waiting for the stream tells the same, at a price.
bool PendingEvents::waitForStream(c10::Stream stream) {
  const DeviceEntry& device = deviceEntry(stream.device_index());
  return device.hal->stream.synchronize(streamHandle(stream)) == FLAGOS_HAL_STATUS_OK;
}

void PendingEvents::recordAgain(Mode mode, Result& result) {
  std::vector<Unrecorded> again;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    again.swap(unrecorded_);
  }
  for (const Unrecorded& entry : again) {
    std::exception_ptr error;
    try {
      if (tryRecord(entry.token, entry.stream, &error)) continue;
      if (mode == Mode::Wait && waitForStream(entry.stream)) {
        size_.fetch_sub(1, std::memory_order_relaxed);
        result.finished.push_back(entry.token);
        continue;
      }
    } catch (...) {
      error = std::current_exception();
    }
    if (!result.error) result.error = error;
    std::lock_guard<std::mutex> lock(mutex_);
    unrecorded_.push_back(entry);
  }
}

void PendingEvents::collectQueue(size_t index, Mode mode, Result& result) {
  size_t todo;
  const c10::Stream stream = [&] {
    std::lock_guard<std::mutex> lock(mutex_);
    todo = queues_[index].entries.size();
    return queues_[index].stream;
  }();
  if (todo == 0) return;
  const DeviceEntry& device = deviceEntry(stream.device_index());
  for (; todo > 0; --todo) {
    flagos_hal_event* event;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      event = queues_[index].entries.front().event;
    }
    const flagos_hal_status status =
        mode == Mode::Wait ? device.hal->event.synchronize(event) : device.hal->event.query(event);
    if (status != FLAGOS_HAL_STATUS_OK) {
      if (status != FLAGOS_HAL_STATUS_NOT_READY && !result.error) {
        result.error = failure(device, status, "ask whether memory is still in use on another stream");
      }
      return;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    result.finished.push_back(queues_[index].entries.front().token);
    queues_[index].entries.pop_front();
    spare_[device.index].push_back(event);
    size_.fetch_sub(1, std::memory_order_relaxed);
  }
}

PendingEvents::Result PendingEvents::collect(Mode mode) {
  Result result;
  if (size() == 0) return result;
  std::unique_lock<std::mutex> collecting(collecting_, std::defer_lock);
  if (mode == Mode::Poll) {
    if (!collecting.try_lock()) return result;
  } else {
    collecting.lock();
  }
  recordAgain(mode, result);
  size_t queues;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    queues = queues_.size();
  }
  for (size_t index = 0; index < queues; ++index) collectQueue(index, mode, result);
  return result;
}

void PendingEvents::clear() noexcept {
  std::lock_guard<std::mutex> collecting(collecting_);
  std::lock_guard<std::mutex> lock(mutex_);
  const auto destroy = [](c10::DeviceIndex index, flagos_hal_event* event) {
    try {
      (void)deviceEntry(index).hal->event.destroy(event);
    } catch (const std::exception&) {
      // The table of devices is gone: so is the library that owns the event.
    }
  };
  for (Queue& queue : queues_) {
    for (const Entry& entry : queue.entries) destroy(queue.stream.device_index(), entry.event);
    queue.entries.clear();
  }
  for (auto& [index, events] : spare_) {
    for (flagos_hal_event* event : events) destroy(index, event);
    events.clear();
  }
  unrecorded_.clear();
  size_.store(0, std::memory_order_relaxed);
}

}  // namespace flagos
