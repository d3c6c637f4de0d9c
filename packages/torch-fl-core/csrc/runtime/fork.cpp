#include "csrc/runtime/fork.h"

#include <pthread.h>

#include <atomic>

#include "csrc/runtime/devices.h"
#include "csrc/runtime/thread_device.h"

namespace flagos {
namespace detail {
namespace {

std::atomic<int> initialised{0};  // backends
std::atomic<int> opening{0};      // threads at it
std::atomic<bool> bad_fork{false};

// Runs in the child, on its only thread. Emptying the table costs the parent's hot paths nothing and sends
// every use in the child down the slow path, which throws.
void afterForkInChild() {
  renewLocksAfterFork();
  if (initialised.load() == 0 && opening.load() == 0) return;
  bad_fork.store(true);
  device_table_size.store(0);
  thread_device.applied = kNotApplied;
}

// At load, not at first use: a fork between the two must be seen as well.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, afterForkInChild);

}  // namespace

void noteInitialised(int change) noexcept { initialised.fetch_add(change); }

OpeningMark::OpeningMark() noexcept { opening.fetch_add(1); }
OpeningMark::~OpeningMark() { opening.fetch_sub(1); }

}  // namespace detail

bool inBadFork() noexcept { return detail::bad_fork.load(std::memory_order_relaxed); }

void throwIfBadFork() {
  TORCH_CHECK(
      !inBadFork(),
      "flagos: this process was forked from one that had opened the flagos devices, and a device cannot be ",
      "used on both sides of a fork. Start it with the spawn start method: ",
      "torch.multiprocessing.set_start_method('spawn'), or multiprocessing_context='spawn' of a DataLoader. "
      "Tensors are sent to it as tensor.cpu(), or as copies: torch_fl.compat.multiprocessing.send_copies().");
}

}  // namespace flagos
