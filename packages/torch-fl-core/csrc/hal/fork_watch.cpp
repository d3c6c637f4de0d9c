#include "csrc/hal/fork_watch.h"

namespace flagos::hal {
namespace {

std::atomic<uint32_t> generation{1};

void onForkInChild() noexcept { generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

uint32_t forkGeneration() noexcept {
  static const int watching = pthread_atfork(nullptr, nullptr, &onForkInChild);
  (void)watching;
  return generation.load(std::memory_order_relaxed);
}

}  // namespace flagos::hal
