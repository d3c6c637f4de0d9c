#include "pinned.h"

#include <c10/util/Exception.h>

#include <mutex>

#include "blocks.h"
#include "devices.h"
#include "records.h"
#include "streams.h"

namespace standin {
namespace {

struct Pinned {
  std::mutex mutex;  // guards the rest
  BlockRegistry blocks;
  int64_t uses = 0;
};

Pinned& pinned() noexcept {
  static auto* const instance = new Pinned;
  return *instance;
}

void freePinned(void* address) {
  if (address == nullptr) return;
  std::string complaint;
  {
    const std::lock_guard<std::mutex> lock(pinned().mutex);
    Block block{};
    complaint = pinned().blocks.take(address, &block);
  }
  if (!complaint.empty()) fault("pinned: " + complaint);
}

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &freePinned, cpu};
    const std::lock_guard<std::mutex> lock(pinned().mutex);
    void* address = pinned().blocks.make(bytes, -1);
    return {address, address, &freePinned, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &freePinned; }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }

  bool record_event(void* pointer, void* /*context*/, c10::Stream stream) override {
    checkStream(stream, "recording a use of pinned memory");
    const std::lock_guard<std::mutex> lock(pinned().mutex);
    const bool known = pinned().blocks.find(pointer, 0) != nullptr;
    pinned().uses += known ? 1 : 0;
    return known;
  }
  void empty_cache() override { count("pinned empty_cache"); }
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

PinnedAllocator& instance() noexcept {
  static auto* const allocator = new PinnedAllocator;  // torch keeps the pointer for ever
  return *allocator;
}

[[maybe_unused]] const bool registered = [] {
  at::setHostAllocator(kType, &instance());
  return true;
}();

}  // namespace

at::HostAllocator* pinnedAllocator() noexcept { return &instance(); }

bool isPinned(const void* pointer) noexcept {
  const std::lock_guard<std::mutex> lock(pinned().mutex);
  return pinned().blocks.find(pointer, 1) != nullptr;
}

int64_t livePinnedBlocks() {
  const std::lock_guard<std::mutex> lock(pinned().mutex);
  int64_t blocks = 0;
  pinned().blocks.each([&](uintptr_t, const Block&, bool) { ++blocks; });
  return blocks;
}

int64_t pinnedUses() {
  const std::lock_guard<std::mutex> lock(pinned().mutex);
  return pinned().uses;
}

}  // namespace standin
