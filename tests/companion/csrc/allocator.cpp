#include "allocator.h"

#include <c10/util/Exception.h>

#include <array>
#include <cstdlib>
#include <mutex>

#include "blocks.h"
#include "records.h"
#include "streams.h"

namespace standin {
namespace {

constexpr size_t kMostEvents = 100000;

struct Memory {
  std::mutex mutex;  // guards the rest
  BlockRegistry blocks;
  std::array<c10::CachingDeviceAllocator::DeviceStats, kMaxDevices> stats;
  std::vector<MemoryEvent> log;
  int64_t skip = 0;   // allocations to pass before
  int64_t fails = 0;  // so many fail
};

Memory& memory() noexcept {
  static auto* const instance = new Memory;  // never destroyed: memory is freed during exit, too
  return *instance;
}

size_t totalBytes() {
  static const size_t megabytes = [] {
    const char* text = std::getenv("STANDIN_MEMORY_MB");
    return text != nullptr ? static_cast<size_t>(std::atoll(text)) : 4096;
  }();
  return megabytes << 20;
}

// PyTorch's [0] is "all", the only kind kept here; the stand-in has no cache, so reserved is allocated.
template <typename Change>
void change(c10::CachingDeviceAllocator::DeviceStats& stats, size_t bytes, const Change& apply) {
  for (auto* stat : {&stats.allocation, &stats.segment, &stats.active}) apply((*stat)[0], 1);
  for (auto* stat :
       {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes})
    apply((*stat)[0], bytes);
}

void append(Memory& all, const char* what, const void* address, size_t bytes, c10::DeviceIndex device,
            c10::StreamId stream) {
  if (all.log.size() >= kMostEvents) return;
  all.log.push_back({what, reinterpret_cast<uintptr_t>(address), bytes, device, stream, currentDevice(),
                     kernelDepth() > 0});
}

bool asksToFail(Memory& all) {
  if (all.fails == 0) return false;
  if (all.skip > 0) {
    --all.skip;
    return false;
  }
  --all.fails;
  return true;
}

void freeBlock(void* address) {
  if (address == nullptr) return;
  Memory& all = memory();
  std::string complaint;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    Block block{};
    complaint = all.blocks.take(address, &block);
    if (block.device >= 0) {
      auto& stats = all.stats[static_cast<size_t>(block.device)];
      change(stats, block.bytes, [](auto& stat, size_t amount) { stat.decrease(amount); });
      append(all, "free", address, block.bytes, static_cast<c10::DeviceIndex>(block.device), -1);
    }
  }
  if (!complaint.empty()) fault(complaint);
}

class StandinAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { return allocateOn(currentDevice(), bytes); }
  // The context is the address, as CUDA's allocator has it.
  c10::DeleterFnPtr raw_deleter() const override { return &freeBlock; }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/ = {0, 0}) override { count("emptyCache"); }
  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    standin::recordStream(pointer, stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    checkedIndex(device, "getDeviceStats");
    const std::lock_guard<std::mutex> lock(memory().mutex);
    return memory().stats[static_cast<size_t>(device)];
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    eachStat(device, [](auto& stat) { stat.reset_accumulated(); });
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    eachStat(device, [](auto& stat) { stat.reset_peak(); });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    checkedIndex(device, "getMemoryInfo");
    return {totalBytes() - static_cast<size_t>(allocatedBytes(device)), totalBytes()};
  }

 private:
  template <typename Function>
  static void eachStat(c10::DeviceIndex device, const Function& function) {
    checkedIndex(device, "resetting statistics");
    const std::lock_guard<std::mutex> lock(memory().mutex);
    change(memory().stats[static_cast<size_t>(device)], 0, [&](auto& stat, size_t) { function(stat); });
  }
};

StandinAllocator& instance() noexcept {
  static auto* const allocator = new StandinAllocator;  // c10 keeps the pointer for ever
  return *allocator;
}

[[maybe_unused]] const bool registered = [] {
  c10::SetAllocator(kType, &instance());
  return true;
}();

}  // namespace

c10::DeviceAllocator* allocator() noexcept { return &instance(); }

c10::DataPtr allocateOn(c10::DeviceIndex device, size_t bytes) {
  checkedIndex(device, "an allocation");
  if (bytes == 0) return {nullptr, nullptr, &freeBlock, deviceOf(device)};
  markInUse(device);
  const c10::StreamId stream = currentStream(device).id();
  Memory& all = memory();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto& stats = all.stats[static_cast<size_t>(device)];
  const size_t held = static_cast<size_t>(stats.allocated_bytes[0].current);
  if (asksToFail(all) || bytes > totalBytes() - held) {
    ++stats.num_ooms;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "HPU out of memory. Tried to allocate ", bytes,
                     " bytes. hpu:", static_cast<int>(device), " has a total capacity of ", totalBytes(),
                     " bytes of which ", totalBytes() - held, " are free.");
  }
  void* address = all.blocks.make(bytes, device);
  change(stats, bytes, [](auto& stat, size_t amount) { stat.increase(amount); });
  append(all, "allocate", address, bytes, device, stream);
  return {address, address, &freeBlock, deviceOf(device)};
}

c10::DeviceIndex ownerOf(const void* pointer, size_t bytes) noexcept {
  Memory& all = memory();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const Block* block = all.blocks.find(pointer, bytes);
  return block == nullptr ? static_cast<c10::DeviceIndex>(-1) : static_cast<c10::DeviceIndex>(block->device);
}

// Strict where CUDA is not: it returns without a word for memory that is not its own.
void recordStream(const c10::DataPtr& pointer, c10::Stream stream) {
  count("recordStream");
  checkStream(stream, "recordStream");
  if (pointer.get() == nullptr) return;
  Memory& all = memory();
  const std::lock_guard<std::mutex> lock(all.mutex);
  TORCH_CHECK(all.blocks.isStart(pointer.get()), "standin: recordStream was given ", pointer.get(),
              ", which is not the first byte of a live block.");
  TORCH_CHECK(pointer.get_context() == pointer.get(),
              "standin: recordStream was given a DataPtr whose context is not its address: not one of this "
              "allocator.");
  const Block* block = all.blocks.find(pointer.get(), 0);
  append(all, "record_stream", pointer.get(), block->bytes, static_cast<c10::DeviceIndex>(block->device),
         stream.id());
}

std::vector<MemoryEvent> memoryLog() {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  return memory().log;
}

void clearMemoryLog() {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  memory().log.clear();
}

int64_t liveBlocks(c10::DeviceIndex device) {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  int64_t blocks = 0;
  memory().blocks.each([&](uintptr_t, const Block& block, bool) {
    if (device < 0 || block.device == device) ++blocks;
  });
  return blocks;
}

int64_t allocatedBytes(c10::DeviceIndex device) {
  checkedIndex(device, "asking for allocated bytes");
  const std::lock_guard<std::mutex> lock(memory().mutex);
  return memory().stats[static_cast<size_t>(device)].allocated_bytes[0].current;
}

void checkGuardBytes() {
  std::vector<std::string> complaints;
  {
    const std::lock_guard<std::mutex> lock(memory().mutex);
    memory().blocks.each([&](uintptr_t, const Block& block, bool intact) {
      if (!intact)
        complaints.push_back("something wrote beyond a live block of " + std::to_string(block.bytes) +
                             " bytes");
    });
  }
  for (const std::string& complaint : complaints) fault(complaint);
}

void failAllocations(int64_t skip, int64_t times) {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  memory().skip = skip;
  memory().fails = times;
}

}  // namespace standin
