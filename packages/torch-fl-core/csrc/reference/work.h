// Pieces of work as a stream's thread executes them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <variant>

#include "csrc/reference/faults.h"
#include "csrc/reference/memory.h"
#include "csrc/reference/shared.h"

namespace flagos::reference {

struct Stream;

// Nanoseconds on the clock of all time stamps.
int64_t steadyNanoseconds() noexcept;

// When a timed event was reached; 0 until then.
struct Stamp {
  std::atomic<int64_t> nanoseconds{0};
};

// A copy or fill that has been checked; it holds its memory until it is done.
struct DeviceWork {
  Transfer transfer;
  Hold hold;
};
struct WaitWork {
  Stream* stream;
  uint64_t sequence;
};
struct StampWork {
  std::shared_ptr<Stamp> stamp;  // null: nobody asks for the time
};
struct CallbackWork {
  void (*function)(void* argument);
  void* argument;
};
struct SharedWaitWork {
  std::shared_ptr<SharedEventPart> event;
  uint32_t number;
};
struct SharedReachWork {
  std::shared_ptr<SharedEventPart> event;
  uint32_t number;
};
struct ReleaseWork {
  void* pointer;
};

struct Task {
  std::variant<DeviceWork, WaitWork, StampWork, CallbackWork, SharedWaitWork, SharedReachWork, ReleaseWork>
      work;
  int64_t latency_us = 0;
  uint64_t correlation = 0;
};

// Does the transfer with the addresses of `hold`, on the calling thread.
void transferNow(const Transfer& transfer, const Hold& hold) noexcept;

}  // namespace flagos::reference
