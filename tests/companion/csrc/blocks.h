// Blocks of memory between guard bytes. Shared by device memory and pinned memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace standin {

struct Block {
  size_t bytes;
  int device;  // −1: the host's
};

// Not thread-safe: the owner holds a lock.
class BlockRegistry {
 public:
  // Memory aligned to 512 bytes, filled with a pattern (as floats: NaN), so that reading it unwritten shows.
  void* make(size_t bytes, int device);
  // Checks the guard bytes, spoils the memory and gives it back. Returns a complaint, or "".
  std::string take(void* address, Block* taken);
  // The live block in which these bytes lie, or null.
  const Block* find(const void* pointer, size_t bytes) const;
  bool isStart(const void* pointer) const;  // the first byte of a live block
  void each(const std::function<void(uintptr_t, const Block&, bool intact)>& visit) const;

 private:
  std::map<uintptr_t, Block> live_;
};

}  // namespace standin
