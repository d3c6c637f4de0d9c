#include "csrc/runtime/block_pool.h"

#include <algorithm>

namespace flagos {

namespace {

// Small lists hold one size each: 512, 1024, … 2 MiB. Large lists split every power of two from 1 MiB on into
// 64 steps.
constexpr size_t kSmallLists = kSmallSegment / kMinBlock + 1;
constexpr size_t kSteps = 64;
constexpr size_t kStepBits = 6;
constexpr size_t kLowestPower = 20;
constexpr size_t kPowers = 28;
constexpr size_t kLargeLists = kPowers * kSteps;

size_t lowestBit(uint64_t bits) noexcept { return static_cast<size_t>(__builtin_ctzll(bits)); }
size_t highestBit(uint64_t bits) noexcept { return 63 - static_cast<size_t>(__builtin_clzll(bits)); }

static_assert(kSmallLists <= 2 * 64 * 64 && kLargeLists <= 2 * 64 * 64, "the summary has 2 words");

}  // namespace

FreeBlocks::FreeBlocks(bool large)
    : large_(large),
      heads_(large ? kLargeLists : kSmallLists, nullptr),
      occupied_(heads_.size() / 64 + 1, 0) {}

size_t FreeBlocks::listOf(size_t size) const noexcept {
  if (!large_) return size / kMinBlock;
  const size_t power = highestBit(size);
  const size_t step = (size >> (power - kStepBits)) & (kSteps - 1);
  return std::min((power - kLowestPower) * kSteps + step, kLargeLists - 1);
}

size_t FreeBlocks::firstFrom(size_t list) const noexcept {
  if (list >= heads_.size()) return kNone;
  size_t word = list / 64;
  if (const uint64_t bits = occupied_[word] & (~uint64_t{0} << (list % 64))) {
    return word * 64 + lowestBit(bits);
  }
  ++word;
  for (size_t part = word / 64; part < summary_.size(); ++part) {
    const uint64_t mask = part == word / 64 ? ~uint64_t{0} << (word % 64) : ~uint64_t{0};
    if (const uint64_t words = summary_[part] & mask) {
      const size_t found = part * 64 + lowestBit(words);
      return found * 64 + lowestBit(occupied_[found]);
    }
  }
  return kNone;
}

void FreeBlocks::insert(Block* block) noexcept {
  const size_t list = listOf(block->size);
  Block*& head = heads_[list];
  block->free_previous = nullptr;
  block->free_next = head;
  if (head != nullptr) {
    head->free_previous = block;
  } else {
    occupied_[list / 64] |= uint64_t{1} << (list % 64);
    summary_[list / 64 / 64] |= uint64_t{1} << (list / 64 % 64);
  }
  head = block;
  block->free = true;
}

void FreeBlocks::remove(Block* block) noexcept {
  if (block->free_next != nullptr) block->free_next->free_previous = block->free_previous;
  if (block->free_previous != nullptr) {
    block->free_previous->free_next = block->free_next;
  } else {
    const size_t list = listOf(block->size);
    heads_[list] = block->free_next;
    if (heads_[list] == nullptr) {
      uint64_t& word = occupied_[list / 64];
      word &= ~(uint64_t{1} << (list % 64));
      if (word == 0) summary_[list / 64 / 64] &= ~(uint64_t{1} << (list / 64 % 64));
    }
  }
  block->free_previous = block->free_next = nullptr;
  block->free = false;
}

Block* FreeBlocks::find(size_t size, size_t most) const noexcept {
  const size_t own = listOf(size);
  for (size_t list = firstFrom(own); list != kNone; list = firstFrom(list + 1)) {
    Block* best = nullptr;
    for (Block* block = heads_[list]; block != nullptr; block = block->free_next) {
      if (block->size < size || (best != nullptr && block->size >= best->size)) continue;
      best = block;
      if (best->size == size || !large_) break;
    }
    // Later lists hold only larger blocks, so this is the best fit; only the request's own list may have held
    // none large enough.
    if (best != nullptr) return best->size <= most ? best : nullptr;
  }
  return nullptr;
}

Block* FreeBlocks::findExact(size_t size) const noexcept {
  Block* block = heads_[listOf(size)];
  while (block != nullptr && block->size != size) block = block->free_next;
  return block;
}

Block* FreeBlocks::any() const noexcept {
  const size_t list = firstFrom(0);
  return list == kNone ? nullptr : heads_[list];
}

Block* BlockObjects::make() {
  if (unused_ == nullptr) {
    slabs_.push_back(std::make_unique<Block[]>(kSlab));
    for (size_t i = 0; i < kSlab; ++i) {
      slabs_.back()[i].free_next = unused_;
      unused_ = &slabs_.back()[i];
    }
  }
  Block* block = unused_;
  unused_ = block->free_next;
  block->free_next = nullptr;
  return block;
}

void BlockObjects::discard(Block* block) noexcept {
  block->extra.reset();
  block->previous = block->next = block->free_previous = nullptr;
  block->segment = nullptr;
  block->pending = 0;
  block->allocated = block->free = block->recent = false;
  block->free_next = unused_;
  unused_ = block;
}

size_t largestUsefulBlock(size_t size) noexcept {
  if (isSmall(size)) return kSmallSegment;
  if (!isOversize(size)) return kOversize - 1;
  return size + std::max(kMediumSegment, size / 16);
}

bool worthSplitting(const Block& block, size_t size) noexcept {
  const size_t rest = block.size - size;
  if (!block.segment->large) return rest >= kMinBlock;
  return !isOversize(block.segment->size) && rest > kSmallLimit;
}

}  // namespace flagos
