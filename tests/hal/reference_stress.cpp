// Stress of the reference HAL: many threads queue copies, fills, events, waits and callbacks on many streams
// of several devices, allocate and free, and check every byte that comes back. Built together with
// csrc/reference/*.cpp, plainly or with a sanitizer:
//
//   cd packages/torch-fl-core
//   g++ -std=c++17 -g -O1 [-fsanitize=thread] -I . -I include csrc/reference/*.cpp
//   ../../tests/hal/reference_stress.cpp -pthread -o stress
//   ./stress [rounds] [threads]
//
// Exit status 0 and one line of counts when all went well.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "flagos/hal.h"

namespace {

const flagos_hal_api* hal = nullptr;

#define CHECK(condition)                            \
  do {                                              \
    if (!(condition)) failed(__LINE__, #condition); \
  } while (0)
#define OK(call) CHECK((call) == FLAGOS_HAL_STATUS_OK)

[[noreturn]] void failed(int line, const char* what) {
  flagos_hal_error error = {};
  error.struct_size = sizeof(error);
  hal->system->last_error(&error);
  std::fprintf(stderr, "line %d: %s\n  last error: %s: %s\n", line, what, error.function, error.message);
  std::abort();
}

std::atomic<uint64_t> transfers{0};
std::atomic<uint64_t> callbacks{0};
std::atomic<uint64_t> refusals{0};  // calls that are wrong on purpose
int32_t devices = 0;
std::mutex default_order[16];  // by device: who queues on its default stream

void onCallback(void* argument) { static_cast<std::atomic<uint64_t>*>(argument)->fetch_add(1); }

// Events that all threads wait for on their own streams. An entry is replaced under the lock, and only its
// owner destroys it.
struct Board {
  static constexpr int kPlaces = 16;
  std::mutex mutex;
  flagos_hal_event* events[kPlaces] = {};
};
Board board;

class Worker {
 public:
  Worker(int index, unsigned seed)
      : index_(index), random_(seed), device_(index % devices), other_((index + 1) % devices) {}

  void run(int rounds) {
    for (flagos_hal_stream*& stream : streams_) stream = makeStream(device_);
    for (int i = 0; i < rounds; ++i) {
      OK(hal->device->set_current(device_));
      chain();
      if (i % 3 == 0) peers();
      if (i % 4 == 0) asynchronousAllocation();
      if (i % 6 == 0) graphs();
      if (i % 7 == 0) replaceStream();
      if (i % 5 == 0) askAround();
      if (i % 11 == 0) OK(hal->device->synchronize(other_));
      int32_t current = -1;
      OK(hal->device->get_current(&current));
      CHECK(current == device_);
    }
    takeFromBoard();
    for (flagos_hal_stream* stream : streams_) OK(hal->stream->destroy(stream));
  }

 private:
  uint64_t pick(uint64_t below) { return random_() % below; }

  flagos_hal_stream* makeStream(int32_t device) {
    flagos_hal_stream_options options = {};
    options.struct_size = sizeof(options);
    options.priority = -static_cast<int32_t>(pick(5));  // −4 is clamped
    flagos_hal_stream* stream = nullptr;
    OK(hal->stream->create(device, &options, &stream));
    return stream;
  }

  // fill on one stream, event, copies on another after it, back to the host: every byte must be the fill's.
  void chain() {
    const uint64_t size = 1 + pick(pick(4) ? 4096 : 400000);
    const int32_t value = static_cast<int32_t>(pick(256));
    void *first = nullptr, *second = nullptr, *pinned = nullptr;
    OK(hal->memory->allocate(device_, size, &first));
    OK(hal->memory->allocate(device_, size, &second));
    OK(hal->host->allocate(size, &pinned));
    std::vector<unsigned char> pageable(size);
    flagos_hal_event *filled = nullptr, *done = nullptr;
    OK(hal->event->create(device_, FLAGOS_HAL_EVENT_TIMING, &filled));
    OK(hal->event->create(device_, FLAGOS_HAL_EVENT_TIMING, &done));
    flagos_hal_stream* a = streams_[pick(kStreams)];
    flagos_hal_stream* b = streams_[pick(kStreams)];
    waitForBoard(b);
    OK(hal->memory->fill_async(a, first, value, size));
    OK(hal->event->record(filled, a));
    OK(hal->stream->wait_event(b, filled));
    OK(hal->memory->copy_async(b, second, first, size, FLAGOS_HAL_COPY_DEVICE_TO_DEVICE));
    OK(hal->memory->copy_async(b, pinned, second, size, FLAGOS_HAL_COPY_DEVICE_TO_HOST));
    OK(hal->memory->copy_async(b, pageable.data(), second, size, FLAGOS_HAL_COPY_DEVICE_TO_HOST));
    const uint64_t called = called_.load();
    OK(hal->stream->host_callback(b, onCallback, &called_));
    OK(hal->event->record(done, b));
    publish(b);
    flagos_hal_status status = hal->event->query(done);
    CHECK(status == FLAGOS_HAL_STATUS_OK || status == FLAGOS_HAL_STATUS_NOT_READY);
    if (pick(2)) {
      OK(hal->event->synchronize(done));
    } else if (pick(2)) {
      OK(hal->stream->synchronize(b));
    } else {
      while ((status = hal->stream->query(b)) == FLAGOS_HAL_STATUS_NOT_READY) std::this_thread::yield();
      CHECK(status == FLAGOS_HAL_STATUS_OK);
    }
    OK(hal->event->query(done));
    CHECK(called_.load() == called + 1);
    for (uint64_t i = 0; i < size; ++i) {
      CHECK(pageable[i] == value);
      CHECK(static_cast<unsigned char*>(pinned)[i] == value);
    }
    double ms = -1;
    OK(hal->event->elapsed(filled, done, &ms));
    CHECK(ms >= 0);
    OK(hal->event->destroy(filled));
    OK(hal->event->destroy(done));
    OK(hal->memory->release(device_, first));
    OK(hal->memory->release(device_, second));
    OK(hal->host->release(pinned));
    transfers += 4;
    ++callbacks;
  }

  void peers() {
    const uint64_t size = 1 + pick(20000);
    void *here = nullptr, *there = nullptr;
    std::vector<unsigned char> from(size), to(size);
    for (unsigned char& byte : from) byte = static_cast<unsigned char>(random_());
    OK(hal->memory->allocate(device_, size, &here));
    OK(hal->memory->allocate(other_, size, &there));
    OK(hal->memory->copy(device_, here, from.data(), size, FLAGOS_HAL_COPY_HOST_TO_DEVICE));
    flagos_hal_stream* stream = streams_[pick(kStreams)];
    OK(hal->peer->copy_async(stream, other_, there, device_, here, size));
    flagos_hal_event* copied = nullptr;
    OK(hal->event->create(device_, 0, &copied));
    OK(hal->event->record(copied, stream));
    flagos_hal_stream* far = nullptr;
    OK(hal->stream->default_stream(other_, &far));
    flagos_hal_event* back = nullptr;
    OK(hal->event->create(other_, FLAGOS_HAL_EVENT_BLOCKING, &back));
    {
      // All threads queue on the default streams, and what is queued on one stream is ordered by its callers.
      std::lock_guard<std::mutex> order(default_order[other_]);
      OK(hal->stream->wait_event(far, copied));
      OK(hal->event->destroy(copied));  // the wait goes on
      OK(hal->memory->copy_async(far, to.data(), there, size, FLAGOS_HAL_COPY_DEVICE_TO_HOST));
      OK(hal->event->record(back, far));
    }
    OK(hal->event->synchronize(back));
    CHECK(std::memcmp(from.data(), to.data(), size) == 0);
    OK(hal->event->destroy(back));
    OK(hal->memory->release(device_, here));
    OK(hal->memory->release(other_, there));
    transfers += 2;
  }

  void asynchronousAllocation() {
    const uint64_t size = 1 + pick(300000);
    flagos_hal_stream* stream = streams_[pick(kStreams)];
    void* memory = nullptr;
    OK(hal->async_alloc->allocate_async(stream, size, &memory));
    OK(hal->memory->fill_async(stream, memory, 7, size));
    OK(hal->async_alloc->release_async(stream, memory));
    ++transfers;
  }

  // A captured fill and copy over two streams, launched twice while the graph is destroyed in between.
  void graphs() {
    const uint64_t size = 1 + pick(10000);
    void *from = nullptr, *to = nullptr;
    OK(hal->memory->allocate(device_, size, &from));
    OK(hal->memory->allocate(device_, size, &to));
    flagos_hal_stream *first = makeStream(device_), *second = makeStream(device_);
    flagos_hal_event *forked = nullptr, *joined = nullptr;
    OK(hal->event->create(device_, 0, &forked));
    OK(hal->event->create(device_, 0, &joined));
    OK(hal->graph->begin_capture(first, FLAGOS_HAL_CAPTURE_RELAXED));
    OK(hal->memory->fill_async(first, from, 77, size));
    OK(hal->event->record(forked, first));
    OK(hal->stream->wait_event(second, forked));
    OK(hal->memory->copy_async(second, to, from, size, FLAGOS_HAL_COPY_DEVICE_TO_DEVICE));
    OK(hal->stream->host_callback(second, onCallback, &called_));
    OK(hal->event->record(joined, second));
    OK(hal->stream->wait_event(first, joined));
    flagos_hal_graph* graph = nullptr;
    OK(hal->graph->end_capture(first, &graph));
    const uint64_t called = called_.load();
    OK(hal->graph->launch(graph, second));
    OK(hal->graph->launch(graph, second));
    OK(hal->graph->destroy(graph));
    OK(hal->stream->synchronize(second));
    CHECK(called_.load() == called + 2);
    std::vector<unsigned char> bytes(size);
    OK(hal->memory->copy(device_, bytes.data(), to, size, FLAGOS_HAL_COPY_DEVICE_TO_HOST));
    for (unsigned char byte : bytes) CHECK(byte == 77);
    OK(hal->stream->destroy(first));
    OK(hal->stream->destroy(second));
    OK(hal->event->destroy(forked));
    OK(hal->event->destroy(joined));
    OK(hal->memory->release(device_, from));
    OK(hal->memory->release(device_, to));
    transfers += 4;
  }

  void replaceStream() {
    flagos_hal_stream*& place = streams_[pick(kStreams)];
    flagos_hal_stream* old = place;
    OK(hal->stream->destroy(old));
    CHECK(hal->stream->query(old) == FLAGOS_HAL_STATUS_INVALID_HANDLE);
    ++refusals;
    place = makeStream(device_);
    CHECK(hal->stream->query(old) == FLAGOS_HAL_STATUS_INVALID_HANDLE);
    ++refusals;
    OK(hal->stream->query(place));
  }

  void askAround() {
    uint64_t free = 0, total = 0;
    OK(hal->device->memory_info(other_, &free, &total));
    CHECK(free <= total);
    flagos_hal_pointer_info info = {};
    info.struct_size = sizeof(info);
    OK(hal->memory->pointer_info(&info, &info));
    CHECK(info.kind == FLAGOS_HAL_MEMORY_UNKNOWN);
    void* memory = nullptr;
    OK(hal->memory->allocate(other_, 1000, &memory));
    OK(hal->memory->pointer_info(static_cast<char*>(memory) + 999, &info));
    CHECK(info.kind == FLAGOS_HAL_MEMORY_DEVICE && info.device == other_ && info.base == memory &&
          info.size == 1000);
    OK(hal->memory->release(other_, memory));
    uint64_t correlation = static_cast<uint64_t>(index_);
    OK(hal->trace->exchange_correlation(&correlation));
    OK(hal->device->health(other_));
  }

  void waitForBoard(flagos_hal_stream* stream) {
    std::lock_guard<std::mutex> lock(board.mutex);
    for (int i = 0; i < 3; ++i) {
      flagos_hal_event* event = board.events[pick(Board::kPlaces)];
      if (event) OK(hal->stream->wait_event(stream, event));
    }
  }

  void publish(flagos_hal_stream* stream) {
    std::lock_guard<std::mutex> lock(board.mutex);
    flagos_hal_event*& place = board.events[index_ % Board::kPlaces];
    if (!place) OK(hal->event->create(device_, 0, &place));
    OK(hal->event->record(place, stream));
  }

  void takeFromBoard() {
    std::lock_guard<std::mutex> lock(board.mutex);
    flagos_hal_event*& place = board.events[index_ % Board::kPlaces];
    if (place) OK(hal->event->destroy(place));
    place = nullptr;
  }

  static constexpr int kStreams = 3;
  int index_;
  std::mt19937 random_;
  int32_t device_, other_;
  flagos_hal_stream* streams_[kStreams] = {};
  std::atomic<uint64_t> called_{0};
};

std::atomic<uint64_t> activities{0};
void onActivity(void* context, const flagos_hal_activity* activity) {
  CHECK(context == &activities && activity->end_ns >= activity->start_ns);
  ++activities;
}

// Starts and stops traces while the others work.
void traceUntil(const std::atomic<bool>& done) {
  while (!done.load()) {
    OK(hal->trace->start(onActivity, &activities));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    OK(hal->trace->stop());
    const uint64_t seen = activities.load();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    CHECK(activities.load() == seen);
  }
}

void session(int rounds, int threads, unsigned seed) {
  OK(hal->system->init());
  OK(hal->device->count(&devices));
  std::atomic<bool> done{false};
  std::thread tracer([&] { traceUntil(done); });
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i)
    workers.emplace_back([=] { Worker(i, seed + static_cast<unsigned>(i)).run(rounds); });
  for (std::thread& worker : workers) worker.join();
  done = true;
  tracer.join();
  for (int32_t device = 0; device < devices; ++device) {
    OK(hal->device->synchronize(device));
    uint64_t free = 0, total = 0;
    OK(hal->device->memory_info(device, &free, &total));
    CHECK(free == total);
  }
  // Shut down with work in flight and things left over.
  void* left = nullptr;
  flagos_hal_stream* stream = nullptr;
  OK(hal->memory->allocate(0, 1 << 20, &left));
  OK(hal->stream->create(0, nullptr, &stream));
  for (int i = 0; i < 20; ++i) OK(hal->memory->fill_async(stream, left, i, 1 << 20));
  OK(hal->system->shutdown());
  CHECK(hal->stream->query(stream) == FLAGOS_HAL_STATUS_NOT_INITIALIZED);
  ++refusals;
  OK(hal->stream->destroy(stream));
  OK(hal->memory->release(0, left));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 100;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 8;
  if (flagos_hal_query(FLAGOS_HAL_ABI_MAJOR, FLAGOS_HAL_ABI_MINOR, &hal) != FLAGOS_HAL_STATUS_OK) return 1;
  for (unsigned seed = 1; seed <= 3; ++seed) session(rounds, threads, seed * 1000);
  std::printf("reference stress: %d threads, %llu transfers, %llu callbacks, %llu activities: all right\n",
              threads, static_cast<unsigned long long>(transfers), static_cast<unsigned long long>(callbacks),
              static_cast<unsigned long long>(activities));
  return 0;
}
