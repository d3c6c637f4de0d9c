#include "csrc/ops/source_kernels.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace flagos::ops {

namespace {

using Kernels = std::array<std::atomic<const SourceKernel*>, kMaxOps>;
constexpr size_t kAllBackends = kMaxBackends;  // the place of kernels for every backend

struct Registry {
  std::mutex mutex;  // held by writers
  std::array<std::array<std::atomic<Kernels*>, kMaxBackends + 1>, kSourceCount> places{};
  std::vector<std::unique_ptr<SourceKernel>> kernels;  // all that ever were
};

Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

const SourceKernel* at(size_t source, size_t place, OpId op) noexcept {
  const Kernels* kernels = registry().places[source][place].load(std::memory_order_acquire);
  return kernels == nullptr ? nullptr : (*kernels)[op].load(std::memory_order_acquire);
}

}  // namespace

void registerSourceKernel(Source source, OpId op, int slot, SourceKernel kernel) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto& place = all.places[static_cast<size_t>(source)][slot < 0 ? kAllBackends : static_cast<size_t>(slot)];
  if (place.load(std::memory_order_relaxed) == nullptr) place.store(new Kernels(), std::memory_order_release);
  const SourceKernel* fresh = nullptr;
  if (kernel) {
    all.kernels.push_back(std::make_unique<SourceKernel>(std::move(kernel)));
    fresh = all.kernels.back().get();
  }
  (*place.load(std::memory_order_relaxed))[op].store(fresh, std::memory_order_release);
}

const SourceKernel* sourceKernel(Source source, OpId op, int slot) noexcept {
  const auto index = static_cast<size_t>(source);
  if (const SourceKernel* own = at(index, static_cast<size_t>(slot), op)) return own;
  return at(index, kAllBackends, op);
}

}  // namespace flagos::ops
