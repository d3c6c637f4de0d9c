// Blocks, segments and free lists of the caching allocator: bookkeeping only. No lock is taken here and no
// HAL function is called; a DeviceArena owns these objects and guards them with its mutex.
//
// A segment is one allocation of the HAL. It is cut into blocks that lie end to end, linked by address. A
// block is allocated, pending (freed, but work on other streams may still use it) or free. A free block is at
// first `recent`: it keeps its size, to serve the next request for exactly that, which is the usual one. As
// soon as a request finds no such block, all recent ones are joined with their free neighbours, so that of
// the other free blocks no two are neighbours, and the best fit is taken.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace flagos {

class DeviceArena;

inline constexpr size_t kMinBlock = 512;                // every size is a multiple of it
inline constexpr size_t kSmallLimit = size_t{1} << 20;  // up to here a request is served from small segments
inline constexpr size_t kSmallSegment = size_t{2} << 20;
inline constexpr size_t kMediumLimit = size_t{10} << 20;  // up to here from segments of kMediumSegment
inline constexpr size_t kMediumSegment = size_t{20} << 20;
inline constexpr size_t kLargeRound = size_t{2} << 20;  // larger segments are a multiple of it
// Requests from here on get a segment of their own size, and their segments serve nothing smaller: a huge
// segment with one small live block in it can be neither reused for its purpose nor given back.
inline constexpr size_t kOversize = size_t{1} << 30;
inline constexpr size_t kMaxRequest = size_t{1}
                                      << 47;  // beyond it rounding could overflow; no device has as much

constexpr size_t roundUp(size_t value, size_t unit) noexcept { return (value + unit - 1) / unit * unit; }
constexpr size_t blockSizeFor(size_t bytes) noexcept { return roundUp(bytes, kMinBlock); }
constexpr bool isSmall(size_t block_size) noexcept { return block_size <= kSmallLimit; }
constexpr size_t tightSegmentSizeFor(size_t block_size) noexcept {
  return isSmall(block_size) ? kSmallSegment : roundUp(block_size, kLargeRound);
}
constexpr size_t segmentSizeFor(size_t block_size) noexcept {
  return !isSmall(block_size) && block_size <= kMediumLimit ? kMediumSegment
                                                            : tightSegmentSizeFor(block_size);
}

// Whether the segment made for such a block has kOversize bytes or more.
constexpr bool isOversize(size_t block_size) noexcept { return block_size > kOversize - kLargeRound; }

struct StreamPools;
struct Block;

struct Segment {
  char* address = nullptr;
  size_t size = 0;
  StreamPools* pools = nullptr;  // of the stream that the segment was allocated for
  Block* first = nullptr;
  bool large = false;
  bool direct = false;  // FLAGOS_ALLOCATOR=direct: released with its only block
  std::shared_ptr<c10::GatheredContext> context;
};

// What few blocks have; made when first needed, so that a Block stays within two cache lines.
struct BlockExtra {
  std::vector<c10::Stream> uses;  // other streams that the block was used on since it was allocated
  std::shared_ptr<c10::GatheredContext> context;
};

struct Block {
  DeviceArena* arena = nullptr;
  Segment* segment = nullptr;
  char* address = nullptr;
  size_t size = 0;
  std::atomic<size_t> requested{0};  // written under the arena's lock or that of a shelf
  Block* previous = nullptr;         // neighbours by address in the segment
  Block* next = nullptr;
  Block* free_previous = nullptr;  // links of the free list, or of the list of unused Block objects
  Block* free_next = nullptr;
  std::unique_ptr<BlockExtra> extra;
  uint32_t pending = 0;  // events that must be reached before the block is free
  bool allocated = false;
  bool free = false;    // in a free list
  bool recent = false;  // free, and not yet joined with its neighbours

  bool isSplit() const noexcept { return previous != nullptr || next != nullptr; }
  BlockExtra& more() {
    if (!extra) extra = std::make_unique<BlockExtra>();
    return *extra;
  }
};

// Free blocks of one stream and one size range, in lists by size with a bitmap of the lists that are not
// empty, so that insert, remove and best fit take constant time. Lists are last in, first out: the memory
// used last is the warmest.
class FreeBlocks {
 public:
  explicit FreeBlocks(bool large);
  void insert(Block* block) noexcept;
  void remove(Block* block) noexcept;
  // The smallest block of at least `size` bytes and at most `most`; null if there is none.
  Block* find(size_t size, size_t most) const noexcept;
  Block* findExact(size_t size) const noexcept;
  Block* any() const noexcept;

 private:
  size_t listOf(size_t size) const noexcept;
  size_t firstFrom(size_t list) const noexcept;  // the first list at or after `list` that is not empty; kNone

  static constexpr size_t kNone = ~size_t{0};
  bool large_;
  std::vector<Block*> heads_;
  std::vector<uint64_t> occupied_;     // a bit for each list
  std::array<uint64_t, 2> summary_{};  // a bit for each word of occupied_
};

// The free blocks of one stream in one size range.
struct FreePool {
  explicit FreePool(bool large) : joined(large), recent(large) {}
  FreeBlocks joined;
  FreeBlocks recent;
  size_t recent_count = 0;
};

struct StreamPools {
  explicit StreamPools(c10::StreamId id) : stream(id) {}
  FreePool& of(bool is_large) noexcept { return is_large ? large : small; }
  const c10::StreamId stream;
  FreePool small{false};
  FreePool large{true};
};

// Joining is done under the arena's lock; more than these blocks are not left for one go.
inline constexpr size_t kMaxRecent = 1024;

// The Block objects of an arena: made in slabs, reused last in, first out, never given back.
class BlockObjects {
 public:
  Block* make();
  void discard(Block* block) noexcept;

 private:
  static constexpr size_t kSlab = 64;
  std::vector<std::unique_ptr<Block[]>> slabs_;
  Block* unused_ = nullptr;
};

// Most bytes that a cached block may have to serve a request of `size`.
size_t largestUsefulBlock(size_t size) noexcept;

// Whether `block` is worth cutting when `size` bytes of it are asked for. In the small range always; in the
// large range only if what remains can serve a large request by itself.
bool worthSplitting(const Block& block, size_t size) noexcept;

}  // namespace flagos
