#include "csrc/runtime/host_pool.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

namespace flagos {

namespace {

constexpr size_t kSmallestClass = 4096;

size_t highestBit(uint64_t bits) noexcept { return 63 - static_cast<size_t>(__builtin_clzll(bits)); }

std::string bytesInWords(size_t bytes) { return c10::CachingAllocator::format_size(bytes); }

int64_t microsecondsSince(std::chrono::steady_clock::time_point start) {
  using std::chrono::duration_cast;
  return duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
}

size_t bucketOf(size_t size) noexcept { return size <= 1 ? 0 : highestBit(size - 1) + 1; }

}  // namespace

size_t hostSizeClass(size_t bytes) noexcept {
  if (bytes <= kSmallestClass) return kSmallestClass;
  const size_t step = size_t{1} << (highestBit(bytes - 1) - 2);
  return (bytes + step - 1) & ~(step - 1);
}

void HostPool::hand(HostBlock* block) {
  block->allocated = true;
  stats_.active_requests.increase(1);
  stats_.active_bytes.increase(block->size);
  ++stats_.buckets[bucketOf(block->size)];
}

HostBlock* HostPool::takeCached(size_t size, const DeviceEntry& device) {
  std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!closed_, "flagos: pinned memory was asked for after shutdown.");
  auto lists = free_.find(device.backend);
  if (lists == free_.end()) return nullptr;
  auto list = lists->second.find(size);
  if (list == lists->second.end() || list->second.empty()) return nullptr;
  HostBlock* block = list->second.back();
  list->second.pop_back();
  hand(block);
  return block;
}

HostBlock* HostPool::grow(size_t size, const DeviceEntry& device, flagos_hal_status& status) {
  void* address = nullptr;
  const auto start = std::chrono::steady_clock::now();
  status = device.hal->host.allocate(size, &address);
  if (status != FLAGOS_HAL_STATUS_OK) return nullptr;
  const int64_t took = microsecondsSince(start);
  auto owned = std::make_unique<HostBlock>();
  HostBlock* block = owned.get();
  block->address = static_cast<char*>(address);
  block->size = size;
  block->device = &device;
  const auto first = reinterpret_cast<uintptr_t>(address);
  {
    std::unique_lock<std::shared_mutex> lock(index_mutex_);
    index_[first] = std::move(owned);
    lowest_.store(std::min(lowest_.load(std::memory_order_relaxed), first), std::memory_order_release);
    end_.store(std::max(end_.load(std::memory_order_relaxed), first + size), std::memory_order_release);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  stats_.allocations.increase(1);
  stats_.allocated_bytes.increase(size);
  stats_.alloc_time.increase(took);
  ++stats_.num_alloc;
  hand(block);
  return block;
}

HostBlock* HostPool::allocate(size_t bytes, const DeviceEntry& device) {
  TORCH_CHECK_NOT_IMPLEMENTED(device.hal->has_host, "flagos: backend '", device.backend->request.name,
                              "' of flagos:", int(device.index),
                              " offers no pinned host memory (its library has no HAL group 'host'). Use "
                              "pageable memory: leave out pin_memory.");
  TORCH_CHECK_WITH(OutOfMemoryError, bytes <= size_t{1} << 47, "flagos: ", bytes,
                   " bytes of pinned host memory cannot be had.");
  const size_t size = hostSizeClass(bytes);
  if (pending_.size() != 0) collect(PendingEvents::Mode::Poll);
  if (HostBlock* block = takeCached(size, device)) return block;
  flagos_hal_status status = FLAGOS_HAL_STATUS_OK;
  if (HostBlock* block = grow(size, device, status)) return block;
  const std::string what = "allocate " + bytesInWords(size) + " of pinned host memory";
  if (status != FLAGOS_HAL_STATUS_OUT_OF_MEMORY) throwHalError(device, status, what.c_str());

  // Out of memory: wait for what queued work still uses, then give the cache back and ask again.
  std::lock_guard<std::mutex> one_at_a_time(slow_mutex_);
  collect(PendingEvents::Mode::Wait);
  if (HostBlock* block = takeCached(size, device)) return block;
  releaseFree(device.backend);
  if (HostBlock* block = grow(size, device, status)) return block;
  if (status != FLAGOS_HAL_STATUS_OUT_OF_MEMORY) throwHalError(device, status, what.c_str());
  HostMemoryStats now = stats();
  TORCH_CHECK_WITH(OutOfMemoryError, false, "flagos: backend '", device.backend->request.name,
                   "' has no more pinned host memory. Asked for ", bytesInWords(bytes), " (as a block of ",
                   bytesInWords(size), "); ", bytesInWords(static_cast<size_t>(now.active_bytes.current)),
                   " are in use and ", bytesInWords(static_cast<size_t>(now.allocated_bytes.current)),
                   " are held by this process. Tried: waiting for copies in flight, giving back the cache, "
                   "asking again. What to do: "
                   "free pinned tensors, use fewer DataLoader workers or a smaller prefetch_factor, raise "
                   "the limit of locked "
                   "memory (ulimit -l), or use pageable memory.");
}

// The block is used by nobody any more. With mutex_ held.
void HostPool::finishFree(HostBlock* block) {
  stats_.active_requests.decrease(1);
  stats_.active_bytes.decrease(block->size);
  --stats_.buckets[bucketOf(block->size)];
  free_[block->device->backend][block->size].push_back(block);
}

void HostPool::release(HostBlock* block) noexcept {
  std::vector<c10::Stream> uses;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return;
    block->allocated = false;
    uses.swap(block->uses);
    if (uses.empty()) return finishFree(block);
    block->pending = static_cast<uint32_t>(uses.size());
  }
  std::vector<PendingEvents::Token> finished;
  pending_.defer(block, uses, finished);
  if (finished.empty()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  block->pending -= static_cast<uint32_t>(finished.size());
  if (block->pending == 0) finishFree(block);
}

std::exception_ptr HostPool::collect(PendingEvents::Mode mode) {
  PendingEvents::Result result = pending_.collect(mode);
  if (!result.finished.empty()) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (PendingEvents::Token token : result.finished) {
      auto* block = static_cast<HostBlock*>(token);
      if (--block->pending == 0) finishFree(block);
    }
  }
  return result.error;
}

// The block around `pointer`; with index_mutex_ held.
HostBlock* HostPool::find(const void* pointer) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto after = index_.upper_bound(address);
  if (after == index_.begin()) return nullptr;
  HostBlock* block = std::prev(after)->second.get();
  return address < std::prev(after)->first + block->size ? block : nullptr;
}

const BackendRecord* HostPool::ownerOf(const void* pointer) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (address >= end_.load(std::memory_order_acquire) || address < lowest_.load(std::memory_order_acquire))
    return nullptr;
  std::shared_lock<std::shared_mutex> lock(index_mutex_);
  const HostBlock* block = find(pointer);
  return block == nullptr ? nullptr : block->device->backend;
}

bool HostPool::recordUse(const void* pointer, c10::Stream stream) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (address >= end_.load(std::memory_order_acquire) || address < lowest_.load(std::memory_order_acquire))
    return false;
  HostBlock* block;
  {
    std::shared_lock<std::shared_mutex> lock(index_mutex_);
    block = find(pointer);
  }
  if (block == nullptr) return false;
  // The caller's use keeps the block alive: blocks are only taken from the index while they are free.
  std::lock_guard<std::mutex> lock(mutex_);
  if (!block->allocated) return false;
  for (const c10::Stream known : block->uses) {
    if (known == stream) return true;
  }
  block->uses.push_back(stream);
  return true;
}

// Gives free blocks back, of all backends or of one. A block that the HAL refuses to take stays in the cache.
std::exception_ptr HostPool::releaseFree(const BackendRecord* only) {
  std::vector<HostBlock*> victims;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [backend, lists] : free_) {
      if (only != nullptr && backend != only) continue;
      for (auto& [size, list] : lists) {
        victims.insert(victims.end(), list.begin(), list.end());
        list.clear();
      }
    }
  }
  std::exception_ptr error;
  for (HostBlock* block : victims) {
    // Out of the index first: once given back, the address may be anybody's.
    std::unique_ptr<HostBlock> owned;
    {
      std::unique_lock<std::shared_mutex> lock(index_mutex_);
      auto place = index_.find(reinterpret_cast<uintptr_t>(block->address));
      owned = std::move(place->second);
      index_.erase(place);
    }
    const auto start = std::chrono::steady_clock::now();
    const flagos_hal_status status = block->device->hal->host.release(block->address);
    const int64_t took = microsecondsSince(start);
    if (status != FLAGOS_HAL_STATUS_OK) {
      try {
        throwHalError(*block->device, status, "give pinned host memory back");
      } catch (...) {
        if (!error) error = std::current_exception();
      }
      {
        std::unique_lock<std::shared_mutex> lock(index_mutex_);
        index_[reinterpret_cast<uintptr_t>(block->address)] = std::move(owned);
      }
      std::lock_guard<std::mutex> lock(mutex_);
      free_[block->device->backend][block->size].push_back(block);
      continue;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.allocations.decrease(1);
    stats_.allocated_bytes.decrease(block->size);
    stats_.free_time.increase(took);
    ++stats_.num_free;
  }
  return error;
}

void HostPool::emptyCache() {
  std::lock_guard<std::mutex> one_at_a_time(slow_mutex_);
  std::exception_ptr first = collect(PendingEvents::Mode::Sweep);
  std::exception_ptr second = releaseFree(nullptr);
  if (first || second) std::rethrow_exception(first ? first : second);
}

HostMemoryStats HostPool::stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

void HostPool::resetPeakStats() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto* stat :
       {&stats_.active_requests, &stats_.active_bytes, &stats_.allocations, &stats_.allocated_bytes}) {
    stat->reset_peak();
  }
  stats_.alloc_time.reset_peak();
  stats_.free_time.reset_peak();
}

void HostPool::resetAccumulatedStats() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto* stat :
       {&stats_.active_requests, &stats_.active_bytes, &stats_.allocations, &stats_.allocated_bytes}) {
    stat->reset_accumulated();
  }
  stats_.alloc_time.reset_accumulated();
  stats_.free_time.reset_accumulated();
  stats_.num_alloc = stats_.num_free = 0;
}

void HostPool::shutDown() noexcept {
  std::lock_guard<std::mutex> one_at_a_time(slow_mutex_);
  collect(PendingEvents::Mode::Sweep);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  releaseFree(nullptr);
  pending_.clear();
}

}  // namespace flagos
