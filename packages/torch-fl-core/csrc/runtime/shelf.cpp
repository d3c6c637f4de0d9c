#include "csrc/runtime/shelf.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "csrc/runtime/devices.h"

namespace flagos {

namespace {

// Trivial, so that they can still be read while the thread's other objects are being destroyed.
thread_local std::array<Shelf*, kMaxDevices> shelves{};
thread_local bool ending = false;

struct Retirement {
  std::vector<std::pair<c10::DeviceIndex, ShelfOwner*>> owners;
  ~Retirement() {
    ending = true;
    for (const auto& [device, owner] : owners) {
      owner->retire(std::exchange(shelves[static_cast<size_t>(device)], nullptr));
    }
  }
};

}  // namespace

void ShelfCounts::raiseTo(const ShelfCounts& other) noexcept {
  blocks = std::max(blocks, other.blocks);
  bytes = std::max(bytes, other.bytes);
  requested = std::max(requested, other.requested);
}

void Shelf::add(ShelfCounts change) noexcept {
  // Plain adds on values that only this lock's holder writes.
  blocks_.store(blocks_.load(std::memory_order_relaxed) + change.blocks, std::memory_order_relaxed);
  bytes_.store(bytes_.load(std::memory_order_relaxed) + change.bytes, std::memory_order_relaxed);
  requested_.store(requested_.load(std::memory_order_relaxed) + change.requested, std::memory_order_relaxed);
}

Block* Shelf::take(size_t size, size_t bytes, c10::StreamId stream) noexcept {
  std::lock_guard<SpinLock> lock(mutex_);
  Block*& top = bins_[binOf(size, stream)];
  Block* block = top;
  if (block == nullptr || block->size != size || block->segment->pools->stream != stream) return nullptr;
  top = block->free_next;
  block->free_next = nullptr;
  block->requested.store(bytes, std::memory_order_relaxed);
  held_ -= size;
  const ShelfCounts one{1, static_cast<int64_t>(size), static_cast<int64_t>(bytes)};
  add(one);
  in_ = in_ + one;
  highest_.raiseTo(net());
  return block;
}

bool Shelf::put(Block* block) noexcept {
  std::lock_guard<SpinLock> lock(mutex_);
  if (closed_ || held_ + block->size > kShelfBytes) return false;
  Block*& top = bins_[binOf(block->size, block->segment->pools->stream)];
  if (top != nullptr && (top->size != block->size || top->segment->pools != block->segment->pools))
    return false;
  block->free_next = top;
  top = block;
  held_ += block->size;
  add({-1, -static_cast<int64_t>(block->size),
       -static_cast<int64_t>(block->requested.load(std::memory_order_relaxed))});
  return true;
}

ShelfCounts Shelf::net() const noexcept {
  return {blocks_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed),
          requested_.load(std::memory_order_relaxed)};
}

ShelfChange Shelf::settleLocked() noexcept {
  const ShelfChange change{net(), highest_, in_};
  highest_ = in_ = ShelfCounts{};
  add({-change.net.blocks, -change.net.bytes, -change.net.requested});
  return change;
}

ShelfChange Shelf::settle() noexcept {
  std::lock_guard<SpinLock> lock(mutex_);
  return settleLocked();
}

Block* Shelf::clear(ShelfChange& change, bool close) noexcept {
  std::lock_guard<SpinLock> lock(mutex_);
  change = settleLocked();
  closed_ = closed_ || close;
  held_ = 0;
  Block* all = nullptr;
  for (Block*& bin : bins_) {
    while (bin != nullptr) {
      Block* block = std::exchange(bin, bin->free_next);
      block->free_next = all;
      all = block;
    }
  }
  return all;
}

Shelf* shelfOfThread(c10::DeviceIndex device) noexcept { return shelves[static_cast<size_t>(device)]; }

Shelf* makeShelfOfThread(c10::DeviceIndex device, ShelfOwner& owner) {
  if (ending) return nullptr;
  thread_local Retirement retirement;
  auto shelf = std::make_unique<Shelf>();
  retirement.owners.emplace_back(device, &owner);
  return shelves[static_cast<size_t>(device)] = shelf.release();
}

}  // namespace flagos
