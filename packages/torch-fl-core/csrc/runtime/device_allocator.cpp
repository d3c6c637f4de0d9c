#include "csrc/runtime/device_allocator.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "csrc/runtime/companion.h"
#include "csrc/runtime/device_arena.h"
#include "csrc/runtime/settings.h"
#include "csrc/runtime/stream.h"

namespace flagos {

namespace {

// One arena for each device that was used. Never destroyed: blocks may be freed during exit.
std::array<std::atomic<DeviceArena*>, kMaxDevices> arenas{};
std::mutex arenas_mutex;  // for making one
std::atomic<bool> shut_down{false};
constexpr int kUnset = -1;
std::atomic<int> mode{
    kUnset};  // an AllocatorMode; until it is set or devices are open, FLAGOS_ALLOCATOR decides

DeviceArena& makeArena(c10::DeviceIndex index) {
  const DeviceEntry& device = deviceEntry(index);
  std::lock_guard<std::mutex> lock(arenas_mutex);
  auto& slot = arenas[static_cast<size_t>(index)];
  DeviceArena* arena = slot.load(std::memory_order_relaxed);
  if (arena == nullptr) {
    arena = new DeviceArena(device);
    slot.store(arena, std::memory_order_release);
  }
  return *arena;
}

DeviceArena* existingArena(c10::DeviceIndex index) noexcept {
  if (index < 0 || index >= kMaxDevices) return nullptr;
  return arenas[static_cast<size_t>(index)].load(std::memory_order_acquire);
}

DeviceArena& arenaOf(c10::DeviceIndex index) {
  DeviceArena* arena = existingArena(index);
  return C10_LIKELY(arena != nullptr) ? *arena : makeArena(index);
}

template <typename Function>
void eachArena(Function function) {
  for (auto& slot : arenas) {
    if (DeviceArena* arena = slot.load(std::memory_order_acquire)) function(*arena);
  }
}

// The deleter of every DataPtr from here; `context` is a Block. A child of fork() must not touch the mutex,
// which another thread of the parent may have held, nor the parent's memory.
void deleteBlock(void* context) noexcept {
  if (context == nullptr || shut_down.load(std::memory_order_acquire) || inBadFork()) return;
  auto* block = static_cast<Block*>(context);
  DeviceArena& arena = *block->arena;
  void* const address = block->address;
  const auto size = static_cast<int64_t>(block->size);
  MemoryTotals totals;
  arena.release(block, totals);
  c10::reportMemoryUsageToProfiler(address, -size, totals.allocated, totals.reserved,
                                   c10::Device(kDeviceType, arena.device().index));
}

Block* allocateBlock(c10::DeviceIndex device, size_t bytes, c10::StreamId stream) {
  if (C10_UNLIKELY(inBadFork())) throwIfBadFork();
  MemoryTotals totals;
  Block* block = arenaOf(device).allocate(bytes, stream, totals);
  c10::reportMemoryUsageToProfiler(block->address, static_cast<int64_t>(block->size), totals.allocated,
                                   totals.reserved, c10::Device(kDeviceType, device));
  return block;
}

struct Observers {
  std::mutex mutex;
  std::vector<OutOfMemoryObserver> list;  // guarded by mutex
};

Observers& observers() {
  static auto* const instance = new Observers;
  return *instance;
}

const DeviceEntry* withCompanion(c10::DeviceIndex index) {
  if (!activated()) return nullptr;
  const DeviceEntry& entry = deviceEntry(index);
  return entry.companion != nullptr ? &entry : nullptr;
}

[[noreturn]] void ownedByCompanion(const DeviceEntry& entry) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "flagos: the memory of ", describeDevice(entry),
                              " is that of torch's device type '", entry.companion->name, "'. Ask torch.",
                              entry.companion->name, ".memory for it.");
}

template <typename Function>
void eachCompanionAllocator(Function function) {
  const Companion* last = nullptr;
  const int size = detail::device_table_size.load(std::memory_order_acquire);
  for (int i = 0; i < size; ++i) {
    const Companion* companion = detail::device_table[i].companion;
    if (companion != nullptr && companion != last) function(*companion->allocator);
    last = companion;
  }
}

class FlagosDeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { return allocateOn(currentDevice(), bytes); }

  // Queued on the current stream of the device that owns the memory, since that is where the copy's result
  // will be used.
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    if (bytes == 0) return;
    if (const DeviceEntry* entry = withCompanion(currentDevice())) {
      copyByCompanion(*entry, destination, false, source, false, bytes, /*non_blocking=*/true);
      return;
    }
    const c10::DeviceIndex to = deviceOfPointer(destination);
    const c10::DeviceIndex from = deviceOfPointer(source);
    TORCH_CHECK(to >= 0 && from >= 0, "flagos: copy_data was given memory that this allocator does not own.");
    const DeviceEntry& target = deviceEntry(to);
    if (to == from) {
      const c10::Stream stream = currentStream(to);
      FLAGOS_CHECK(target,
                   target.hal->memory.copy_async(streamHandle(stream), destination, source, bytes,
                                                 FLAGOS_HAL_COPY_DEVICE_TO_DEVICE),
                   "copy memory within the device");
      arenaOf(from).recordUse(source, stream);
      return;
    }
    // c10's clone() allocates on the current device, which need not be the source's. Rare enough to go
    // through the host.
    const DeviceEntry& origin = deviceEntry(from);
    std::vector<char> staging(bytes);
    synchronizeStream(currentStream(from));
    FLAGOS_CHECK(
        origin,
        origin.hal->memory.copy(origin.local, staging.data(), source, bytes, FLAGOS_HAL_COPY_DEVICE_TO_HOST),
        "copy memory to the host");
    synchronizeStream(currentStream(to));
    FLAGOS_CHECK(target,
                 target.hal->memory.copy(target.local, destination, staging.data(), bytes,
                                         FLAGOS_HAL_COPY_HOST_TO_DEVICE),
                 "copy memory from the host");
  }

  bool initialized() override { return activated(); }

  void emptyCache(c10::MempoolId_t pool = {0, 0}) override {
    TORCH_CHECK(pool.first == 0 && pool.second == 0, "flagos: there is no private memory pool (", pool.first,
                ", ", pool.second, "): this allocator has none yet. Call empty_cache() without a pool.");
    if (shut_down.load(std::memory_order_acquire) || inBadFork()) return;
    eachCompanionAllocator([](c10::DeviceAllocator& allocator) { allocator.emptyCache(); });
    std::exception_ptr error;
    eachArena([&](DeviceArena& arena) {
      try {
        arena.emptyCache();
      } catch (...) {
        if (!error) error = std::current_exception();
      }
    });
    if (error) std::rethrow_exception(error);
  }

  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    flagos::recordStream(pointer, stream);
  }

  // A device that was never used has statistics too, all zero; asking for them starts nothing.
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    throwIfBadFork();
    index = resolveIndex(index);
    if (const DeviceEntry* entry = withCompanion(index))
      return entry->companion->allocator->getDeviceStats(companionDevice(*entry).index());
    if (DeviceArena* arena = existingArena(index)) return arena->stats();
    return activated() ? arenaOf(index).stats() : c10::CachingDeviceAllocator::DeviceStats{};
  }

  void resetAccumulatedStats(c10::DeviceIndex index) override {
    throwIfBadFork();
    if (const DeviceEntry* entry = withCompanion(resolveIndex(index))) {
      entry->companion->allocator->resetAccumulatedStats(companionDevice(*entry).index());
      return;
    }
    if (activated()) arenaOf(resolveIndex(index)).resetAccumulatedStats();
  }

  void resetPeakStats(c10::DeviceIndex index) override {
    throwIfBadFork();
    if (const DeviceEntry* entry = withCompanion(resolveIndex(index))) {
      entry->companion->allocator->resetPeakStats(companionDevice(*entry).index());
      return;
    }
    if (activated()) arenaOf(resolveIndex(index)).resetPeakStats();
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    return memoryInfo(resolveIndex(index));
  }
};

FlagosDeviceAllocator& instance() noexcept {
  static auto* const allocator = new FlagosDeviceAllocator;  // c10 keeps the pointer for ever
  return *allocator;
}

// c10 has no way to ask whether an allocator is there; fetching one that is not fails.
bool takenByOthers() noexcept {
  try {
    return c10::GetAllocator(kDeviceType) != nullptr;
  } catch (const std::exception&) {
    return false;
  }
}

// Another plugin that owns PrivateUse1 keeps its allocator; claiming the name says so in words.
[[maybe_unused]] const bool registered = [] {
  if (takenByOthers()) return false;
  c10::SetAllocator(kDeviceType, &instance());
  return true;
}();

}  // namespace

c10::DeviceAllocator* deviceAllocator() noexcept { return &instance(); }

c10::DataPtr allocateLabelled(c10::DeviceIndex device, size_t bytes, c10::Device label) {
  if (C10_UNLIKELY(bytes == 0)) return {nullptr, nullptr, &deleteBlock, label};
  const DeviceEntry& entry = deviceEntry(device);
  if (entry.companion != nullptr) return allocateFromCompanion(entry, bytes, label);
  Block* block = allocateBlock(device, bytes, currentStream(device).id());
  return {block->address, block, &deleteBlock, label};
}

c10::DataPtr allocateOn(c10::DeviceIndex device, size_t bytes) {
  device = resolveIndex(device);
  return allocateLabelled(device, bytes, c10::Device(kDeviceType, device));
}

void* contextOfAddress(const void* address) noexcept {
  Block* block = nullptr;
  eachArena([&](DeviceArena& arena) {
    if (block == nullptr) block = arena.blockAt(address);
  });
  return block;
}

c10::DataPtr pointerFromContext(void* context, c10::Device label) {
  return {static_cast<Block*>(context)->address, context, &deleteBlock, label};
}

bool isFromDeviceAllocator(const c10::DataPtr& pointer) noexcept {
  return pointer.get_deleter() == &deleteBlock;
}

void recordStream(const c10::DataPtr& pointer, c10::Stream stream) {
  if (pointer.get() == nullptr || shut_down.load(std::memory_order_acquire)) return;
  throwIfBadFork();
  TORCH_CHECK(stream.device_type() == kDeviceType, "flagos: record_stream was given the stream ", stream,
              "; it takes a stream of a flagos device.");
  if (isFromDeviceAllocator(pointer)) {
    auto* block = static_cast<Block*>(pointer.get_context());
    block->arena->recordUse(block, stream);
    return;
  }
  const DeviceEntry& entry = deviceEntry(stream.device_index());
  if (entry.companion != nullptr) {
    entry.companion->guard->recordDataPtrOnStream(pointer, toCompanion(entry, stream));
    return;
  }
  bool found = false;
  eachArena([&](DeviceArena& arena) { found = found || arena.recordUse(pointer.get(), stream); });
}

void setMemoryFraction(c10::DeviceIndex device, double fraction) {
  throwIfBadFork();
  if (const DeviceEntry* entry = withCompanion(resolveIndex(device))) ownedByCompanion(*entry);
  arenaOf(resolveIndex(device)).setFraction(fraction);
}

double memoryFraction(c10::DeviceIndex device) {
  throwIfBadFork();
  if (const DeviceEntry* entry = withCompanion(resolveIndex(device))) ownedByCompanion(*entry);
  return arenaOf(resolveIndex(device)).fraction();
}

std::pair<size_t, size_t> memoryInfo(c10::DeviceIndex device) {
  const DeviceEntry& entry = deviceEntry(resolveIndex(device));
  uint64_t free = 0;
  uint64_t total = 0;
  FLAGOS_CHECK(entry, entry.hal->device.memory_info(entry.local, &free, &total),
               "ask for the device's memory");
  return {free, total};
}

c10::DeviceIndex deviceOfPointer(const void* pointer) {
  throwIfBadFork();
  c10::DeviceIndex found = -1;
  eachArena([&](DeviceArena& arena) {
    if (found < 0 && arena.contains(pointer)) found = arena.device().index;
  });
  return found;
}

namespace {

// Addresses that rawAllocate took from a companion: its allocator does not say whether one is its own.
struct RawAddresses {
  std::mutex mutex;
  std::unordered_map<void*, c10::DataPtr> held;  // guarded by mutex
};

RawAddresses& rawAddresses() {
  static auto* const instance = new RawAddresses;
  return *instance;
}

void* rawAllocateFromCompanion(const DeviceEntry& entry, size_t bytes, c10::StreamId id) {
  const c10::Stream stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, entry.index), id);
  const c10::Stream before = exchangeCurrentStream(stream);
  c10::DataPtr pointer;
  try {
    pointer = allocateFromCompanion(entry, bytes, stream.device());
  } catch (...) {
    exchangeCurrentStream(before);
    throw;
  }
  exchangeCurrentStream(before);
  void* address = pointer.get();
  RawAddresses& raw = rawAddresses();
  const std::lock_guard<std::mutex> lock(raw.mutex);
  raw.held.emplace(address, std::move(pointer));
  return address;
}

bool rawReleaseToCompanion(void* address) {
  c10::DataPtr pointer;  // freed after the lock
  RawAddresses& raw = rawAddresses();
  const std::lock_guard<std::mutex> lock(raw.mutex);
  const auto found = raw.held.find(address);
  if (found == raw.held.end()) return false;
  pointer = std::move(found->second);
  raw.held.erase(found);
  return true;
}

}  // namespace

void* rawAllocate(c10::DeviceIndex device, size_t bytes, c10::StreamId stream) {
  device = resolveIndex(device);
  if (bytes == 0) return nullptr;
  if (const DeviceEntry* entry = withCompanion(device))
    return rawAllocateFromCompanion(*entry, bytes, stream);
  // Throws for an id that was never given out.
  (void)streamHandle(c10::Stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, device), stream));
  return allocateBlock(device, bytes, stream)->address;
}

void rawRelease(void* pointer) {
  if (pointer == nullptr || shut_down.load(std::memory_order_acquire) || inBadFork()) return;
  Block* block = nullptr;
  eachArena([&](DeviceArena& arena) {
    if (block == nullptr) block = arena.blockAt(pointer);
  });
  if (block == nullptr && rawReleaseToCompanion(pointer)) return;
  TORCH_CHECK_VALUE(block != nullptr, "flagos: ", pointer,
                    " is not the start of memory that is allocated here.");
  deleteBlock(block);
}

void setAllocatorMode(AllocatorMode value) noexcept {
  mode.store(static_cast<int>(value), std::memory_order_relaxed);
}

AllocatorMode allocatorMode() noexcept {
  const int now = mode.load(std::memory_order_relaxed);
  if (C10_LIKELY(now != kUnset)) return static_cast<AllocatorMode>(now);
  const AllocatorMode asked =
      setting("FLAGOS_ALLOCATOR") == "direct" ? AllocatorMode::Direct : AllocatorMode::Caching;
  int unset = kUnset;
  if (activated()) mode.compare_exchange_strong(unset, static_cast<int>(asked));  // settings are final by now
  return unset == kUnset ? asked : static_cast<AllocatorMode>(unset);
}

void addOutOfMemoryObserver(OutOfMemoryObserver observer) {
  Observers& known = observers();
  std::lock_guard<std::mutex> lock(known.mutex);
  known.list.push_back(std::move(observer));
}

void notifyOutOfMemory(c10::DeviceIndex device, size_t asked, size_t total, size_t free) {
  std::vector<OutOfMemoryObserver> list;
  {
    Observers& known = observers();
    std::lock_guard<std::mutex> lock(known.mutex);
    list = known.list;
  }
  for (const OutOfMemoryObserver& observer : list) observer(device, asked, total, free);
}

std::vector<SegmentSnapshot> memorySnapshot() {
  throwIfBadFork();
  std::vector<SegmentSnapshot> segments;
  eachArena([&](DeviceArena& arena) { arena.snapshot(segments); });
  return segments;
}

std::vector<std::vector<TraceRecord>> memoryTraces() {
  throwIfBadFork();
  std::vector<std::vector<TraceRecord>> traces;
  eachArena([&](DeviceArena& arena) {
    traces.resize(static_cast<size_t>(arena.device().index) + 1);
    traces.back() = arena.trace();
  });
  return traces;
}

void recordMemoryHistory(const HistoryOptions& options, bool clear) {
  throwIfBadFork();
  MemoryHistory::configure(options);
  if (clear) eachArena([](DeviceArena& arena) { arena.clearTrace(); });
}

void releaseAllDeviceMemory() noexcept {
  if (shut_down.exchange(true, std::memory_order_acq_rel) || inBadFork()) return;
  eachArena([](DeviceArena& arena) { arena.shutDown(); });
}

}  // namespace flagos
