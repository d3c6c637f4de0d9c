#include "csrc/reference/queue.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <cstdio>
#include <cstring>
#include <iterator>
#include <system_error>
#include <utility>

#include "csrc/reference/capture.h"
#include "csrc/reference/trace.h"

namespace flagos::reference {

namespace {

thread_local bool is_worker = false;

// The turn of a stream's thread at its device's gate; a no-op while the device has streams of one priority
// only.
class Turn {
 public:
  explicit Turn(Stream& stream)
      : device_(deviceAt(stream.device)), level_(stream.priority - kGreatestPriority) {}
  ~Turn() { leave(); }
  void take() {
    if (held_) {
      device_.gate.next(level_);
    } else if (device_.has_priorities.load(std::memory_order_acquire)) {
      held_ = true;
      device_.gate.enter(level_);
    }
  }
  void leave() {
    if (held_) device_.gate.leave(level_);
    held_ = false;
  }

 private:
  Device& device_;
  int level_;
  bool held_ = false;
};

WorkKind kindOf(const DeviceWork& work) noexcept {
  return work.transfer.isFill() ? WorkKind::Fill : WorkKind::Copy;
}

// Executes pieces of work on the stream's thread.
class Executor {
 public:
  Executor(Stream& stream, Turn& turn) : stream_(stream), turn_(turn) {}

  void run(Task& task) {
    task_ = &task;
    std::visit([this](auto& work) { execute(work); }, task.work);
  }

 private:
  bool lost() const noexcept { return stream_.flags.load(std::memory_order_acquire) & kStreamLost; }

  void execute(DeviceWork& work) {
    turn_.take();
    sleepMicroseconds(task_->latency_us);
    const WorkKind kind = kindOf(work);
    const flagos_hal_status failure =
        lost() ? FLAGOS_HAL_STATUS_DEVICE_LOST : workFailure(kind, stream_.device);
    const int64_t start = steadyNanoseconds();
    if (failure == kOk) transferNow(work.transfer, work.hold);
    letGo(work.hold);
    if (failure == kOk) {
      if (tracing()) {
        traceTransfer(stream_.device, stream_.number, task_->correlation, start, steadyNanoseconds(),
                      work.transfer);
      }
    } else if (failure != FLAGOS_HAL_STATUS_DEVICE_LOST) {
      keep({failure, kind});
    }
  }

  void execute(WaitWork& work) {
    turn_.leave();
    sleepMicroseconds(task_->latency_us);
    waitFor(*work.stream, work.sequence);
  }

  void execute(StampWork& work) {
    sleepMicroseconds(task_->latency_us);
    if (work.stamp) work.stamp->nanoseconds.store(steadyNanoseconds(), std::memory_order_release);
  }

  void execute(CallbackWork& work) {
    turn_.leave();
    sleepMicroseconds(task_->latency_us);
    const int64_t start = steadyNanoseconds();
    work.function(work.argument);
    if (tracing()) {
      traceCallback(stream_.device, stream_.number, task_->correlation, start, steadyNanoseconds());
    }
  }

  void execute(SharedWaitWork& work) {
    turn_.leave();
    sleepMicroseconds(task_->latency_us);
    waitForShared(work.event->event(), work.number);
  }

  void execute(SharedReachWork& work) {
    sleepMicroseconds(task_->latency_us);
    reachShared(work.event->event(), work.number);
  }

  void execute(ReleaseWork& work) {
    sleepMicroseconds(task_->latency_us);
    const flagos_hal_status status = releaseFromDevice(stream_.device, work.pointer, true);
    if (status == kOk) return;
    cancelRelease(work.pointer);  // it is the caller's again
    keep({status, WorkKind::Other});
  }

  // Keeps the first failure until someone asks.
  void keep(Failure failure) {
    std::lock_guard<std::mutex> lock(stream_.mutex);
    if (stream_.flags.load(std::memory_order_relaxed) & kStreamFailed) return;
    stream_.failure = failure;
    stream_.flags.fetch_or(kStreamFailed, std::memory_order_acq_rel);
  }

  Stream& stream_;
  Turn& turn_;
  Task* task_ = nullptr;
};

void finishOne(Stream& stream) noexcept {
  // Sequentially consistent with waitFor: either the waiter sees the number, or this sees the waiter.
  stream.finished.store(stream.finished.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  if (stream.waiters.load(std::memory_order_seq_cst) == 0) return;
  {
    std::lock_guard<std::mutex> lock(stream.mutex);
  }
  stream.progress.notify_all();
}

void runThread(Stream& stream) {
  is_worker = true;
  char name[16];  // the system's limit
  std::snprintf(name, sizeof(name), "flagos-ref-%d", stream.device);
  pthread_setname_np(pthread_self(), name);
  std::vector<Task> batch;
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(stream.mutex);
      stream.work.wait(lock, [&] { return stream.stop || !stream.tasks.empty(); });
      if (stream.tasks.empty()) return;
      batch.swap(stream.tasks);
    }
    Turn turn(stream);
    Executor executor(stream, turn);
    for (size_t i = 0; i < batch.size(); ++i) {
      executor.run(batch[i]);
      const bool last = i + 1 == batch.size();
      if (last) {
        turn.leave();   // before anyone who waits for this piece goes on
        batch.clear();  // also: what the tasks refer to is let go of first
      }
      finishOne(stream);
      if (last) break;
    }
  }
}

// Starts the stream's thread; its mutex is held. Signals are for the program's own threads.
flagos_hal_status startThread(Stream& stream) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  try {
    stream.thread = std::thread([&stream] { runThread(stream); });
  } catch (const std::system_error& failure) {
    error = failure.code().value();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error == 0 ? kOk
                    : failSystem(FLAGOS_HAL_STATUS_OUT_OF_MEMORY, error, "starting the stream's thread");
}

}  // namespace

int64_t steadyNanoseconds() noexcept {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

void transferNow(const Transfer& transfer, const Hold& hold) noexcept {
  if (transfer.isFill()) {
    std::memset(hold.destination, transfer.value, transfer.size);
  } else {
    std::memcpy(hold.destination, hold.source, transfer.size);
  }
}

Task makeTask(decltype(Task::work) work, WorkKind kind, Function function) {
  Task task;
  task.work = std::move(work);
  task.latency_us = workLatency(kind, function);
  task.correlation = currentCorrelation();
  return task;
}

flagos_hal_status enqueue(Stream& stream, Task* tasks, size_t count) {
  {
    std::lock_guard<std::mutex> lock(stream.mutex);
    if (!stream.thread.joinable()) FLAGOS_HAL_TRY(startThread(stream));
    stream.tasks.insert(stream.tasks.end(), std::make_move_iterator(tasks),
                        std::make_move_iterator(tasks + count));
    stream.queued.store(stream.queued.load(std::memory_order_relaxed) + count, std::memory_order_release);
  }
  stream.work.notify_one();
  return kOk;
}

flagos_hal_status queueTransfer(Stream& stream, const Transfer& transfer, Function function) {
  if (transfer.size == 0) return kOk;
  Hold hold;
  FLAGOS_HAL_TRY(takeHold(transfer, &hold));
  const WorkKind kind = transfer.isFill() ? WorkKind::Fill : WorkKind::Copy;
  if (capturing(stream)) {
    letGo(hold);  // only checked here; every launch takes hold anew
    return captureWork(stream, {{transfer, kind, function}});
  }
  flagos_hal_status status;
  try {
    Task task = makeTask(DeviceWork{transfer, hold}, kind, function);
    status = enqueue(stream, &task, 1);
  } catch (...) {
    letGo(hold);
    throw;
  }
  if (status != kOk) letGo(hold);
  return status;
}

void stopThread(Stream& stream) noexcept {
  {
    std::lock_guard<std::mutex> lock(stream.mutex);
    if (!stream.thread.joinable()) return;
    stream.stop = true;
  }
  stream.work.notify_one();
  stream.thread.join();
  std::lock_guard<std::mutex> lock(stream.mutex);
  stream.thread = std::thread();
  stream.stop = false;
}

bool onWorkerThread() noexcept { return is_worker; }

}  // namespace flagos::reference
