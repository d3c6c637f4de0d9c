// Whether this process is a fork of the one that something was made in. One atomic load per question.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace flagos::hal {

// 1 at first, one more in each generation of children. Watching starts at the first call.
uint32_t forkGeneration() noexcept;

// A mutex that a forked child can use although another thread held it at the moment of the fork. What it
// guards must be left alone there, or be whole at any time.
class ForkSafeMutex {
 public:
  void lock() noexcept {
    renew();
    pthread_mutex_lock(&mutex_);
  }
  void unlock() noexcept { pthread_mutex_unlock(&mutex_); }

 private:
  void renew() noexcept {
    const uint32_t now = forkGeneration();
    // Only the first call in a child gets in here with another number, while that child has one thread.
    if (generation_.load(std::memory_order_relaxed) == now) return;
    mutex_ = PTHREAD_MUTEX_INITIALIZER;
    generation_.store(now, std::memory_order_relaxed);
  }

  std::atomic<uint32_t> generation_{forkGeneration()};
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

}  // namespace flagos::hal
