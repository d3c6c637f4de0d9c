// Whether a library may be used now: before init, after shutdown (GEN-03) and in a forked child (GEN-04), and
// the two wrappers that put these rules, the function's name and a stop for C++ exceptions around each HAL
// function:
//
//   flagos_hal_status allocate(int32_t device, uint64_t size, void** out) {
//     return call("memory.allocate", [&] { … return FLAGOS_HAL_STATUS_OK; });
//   }
//   flagos_hal_status release(int32_t device, void* pointer) {
//     return releaseCall("memory.release", [&] { … });
//   }
#pragma once

#include <pthread.h>

#include <atomic>
#include <exception>
#include <new>
#include <utility>

#include "flagos/hal_support/error.hpp"

namespace flagos {
namespace hal_support __attribute__((visibility("hidden"))) {

  // The one instance of a library is state(). Reading the phase is one atomic load.
  class LibraryState {
   public:
    enum class Phase : int {
      Fresh,     // init never succeeded
      Starting,  // the first init is running
      Ready,
      Stopped,  // shut down; init may follow
      Forked    // a child of a process in which init had begun
    };

    constexpr LibraryState() = default;
    LibraryState(const LibraryState&) = delete;
    LibraryState& operator=(const LibraryState&) = delete;

    Phase phase() const noexcept { return phase_.load(std::memory_order_acquire); }
    bool ready() const noexcept { return phase() == Phase::Ready; }
    bool forked() const noexcept { return phase() == Phase::Forked; }

    // OK where a function may touch the vendor's runtime; else the status of GEN-03 or GEN-04, with a detail.
    flagos_hal_status check() const noexcept {
      const Phase now = phase();
      if (now == Phase::Ready) return FLAGOS_HAL_STATUS_OK;
      if (now == Phase::Forked) return refuseFork();
      return fail(FLAGOS_HAL_STATUS_NOT_INITIALIZED,
                  now == Phase::Stopped ? "the library was shut down; call system.init to use it again"
                                        : "system.init has not been called, or has not succeeded");
    }

    // What system.init does (HAL-SYS-01). `open()` opens the vendor's runtime; its status is returned, and
    // anything but OK leaves the library as it was, so that init can be called again.
    template <typename Open>
    flagos_hal_status init(Open&& open) noexcept {
      FunctionScope scope("system.init");
      if (forked()) return refuseFork();
      Lock lock(&mutex_);
      const Phase before = phase();
      if (before == Phase::Ready) return FLAGOS_HAL_STATUS_OK;
      if (before == Phase::Forked) return refuseFork();
      if (!watching_fork_) {
        const int code = pthread_atfork(nullptr, nullptr, &LibraryState::onForkInChild);
        if (code != 0) return fail(FLAGOS_HAL_STATUS_UNKNOWN, "pthread_atfork failed with code %d", code);
        watching_fork_ = true;
      }
      phase_.store(Phase::Starting, std::memory_order_release);
      flagos_hal_status status = FLAGOS_HAL_STATUS_UNKNOWN;
      try {
        status = std::forward<Open>(open)();
      } catch (const std::bad_alloc&) {
        status = fail(FLAGOS_HAL_STATUS_OUT_OF_MEMORY,
                      "no host memory was left while the library was being initialised");
      } catch (const std::exception& error) {
        status = fail(FLAGOS_HAL_STATUS_UNKNOWN, "unexpected C++ exception: %s", error.what());
      } catch (...) {
        status = fail(FLAGOS_HAL_STATUS_UNKNOWN, "unexpected C++ exception of unknown type");
      }
      phase_.store(status == FLAGOS_HAL_STATUS_OK ? Phase::Ready : before, std::memory_order_release);
      return status;
    }

    // What system.shutdown does (HAL-SYS-02). `close()` returns nothing: a device that is lost is skipped.
    // Calls of other threads are refused from the moment it starts.
    template <typename Close>
    flagos_hal_status shutdown(Close&& close) noexcept {
      FunctionScope scope("system.shutdown");
      if (forked()) return refuseFork();
      Lock lock(&mutex_);
      if (phase() != Phase::Ready) return FLAGOS_HAL_STATUS_OK;
      phase_.store(Phase::Stopped, std::memory_order_release);
      try {
        std::forward<Close>(close)();
      } catch (...) {
        // Nothing may stop a shutdown, and there is nobody to tell.
      }
      return FLAGOS_HAL_STATUS_OK;
    }

   private:
    static flagos_hal_status refuseFork() noexcept {
      return fail(FLAGOS_HAL_STATUS_FORKED,
                  "this process was forked after the library was initialised in its parent; start it with "
                  "the spawn method");
    }
    static void onForkInChild() noexcept;

    struct Lock {
      explicit Lock(pthread_mutex_t* locked) noexcept : mutex(locked) { pthread_mutex_lock(mutex); }
      ~Lock() { pthread_mutex_unlock(mutex); }
      Lock(const Lock&) = delete;
      Lock& operator=(const Lock&) = delete;
      pthread_mutex_t* mutex;
    };

    std::atomic<Phase> phase_{Phase::Fresh};
    bool watching_fork_ = false;  // guarded by the mutex
    // Of C, not std::mutex: it is trivially destroyed and can be made anew in a child, where another thread
    // of the parent may have held it.
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  };

  namespace detail {
  inline LibraryState library_state;  // constant-initialised, trivially destroyed: usable at any time
  }

  inline LibraryState& state() noexcept { return detail::library_state; }

  inline void LibraryState::onForkInChild() noexcept {
    LibraryState& library = state();
    if (library.phase_.load(std::memory_order_relaxed) != Phase::Fresh) {
      library.phase_.store(Phase::Forked, std::memory_order_release);
    }
    library.mutex_ = PTHREAD_MUTEX_INITIALIZER;
  }

  namespace detail {
  template <typename Body>
  flagos_hal_status guarded(Body&& body) noexcept {
    try {
      return std::forward<Body>(body)();
    } catch (const std::bad_alloc&) {
      return fail(FLAGOS_HAL_STATUS_OUT_OF_MEMORY, "no host memory was left");
    } catch (const std::exception& error) {
      return fail(FLAGOS_HAL_STATUS_UNKNOWN, "unexpected C++ exception: %s", error.what());
    } catch (...) {
      return fail(FLAGOS_HAL_STATUS_UNKNOWN, "unexpected C++ exception of unknown type");
    }
  }
  }  // namespace detail

  // A HAL function that needs an initialised library. `body` returns a flagos_hal_status.
  template <typename Body>
  flagos_hal_status call(const char* function, Body&& body) noexcept {
    FunctionScope scope(function);
    if (!state().ready()) return state().check();
    return detail::guarded(std::forward<Body>(body));
  }

  // A HAL function that releases something: before init, after shutdown and in a forked child it is OK and
  // does nothing.
  template <typename Body>
  flagos_hal_status releaseCall(const char* function, Body&& body) noexcept {
    FunctionScope scope(function);
    if (!state().ready()) return FLAGOS_HAL_STATUS_OK;
    return detail::guarded(std::forward<Body>(body));
  }

  // A HAL function that works before init too (system.info); in a forked child it is refused like all others.
  template <typename Body>
  flagos_hal_status callAnytime(const char* function, Body&& body) noexcept {
    FunctionScope scope(function);
    if (state().forked()) return state().check();
    return detail::guarded(std::forward<Body>(body));
  }

}  // namespace hal_support
}  // namespace flagos
