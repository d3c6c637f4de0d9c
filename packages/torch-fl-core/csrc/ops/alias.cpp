#include "csrc/ops/alias.h"

#include <algorithm>
#include <new>
#include <utility>

namespace flagos::ops {

namespace {

// One size serves both classes.
constexpr size_t kBytes = std::max(sizeof(AliasTensor), sizeof(AliasStorage));
constexpr size_t kMostKept = 512;  // per thread: about 100 KB, lists of parameters included

struct Piece {
  Piece* next;
};

struct Pieces {
  Piece* first = nullptr;
  size_t count = 0;
  bool closed = false;  // the thread ends: what comes later goes back to the system

  ~Pieces() {
    closed = true;
    while (first != nullptr) ::operator delete(std::exchange(first, first->next));
  }
};

thread_local Pieces pieces;

}  // namespace

void* takeAliasMemory(size_t bytes) {
  Pieces& mine = pieces;
  if (C10_UNLIKELY(mine.first == nullptr || bytes > kBytes)) return ::operator new(std::max(bytes, kBytes));
  --mine.count;
  return std::exchange(mine.first, mine.first->next);
}

void giveAliasMemory(void* memory, size_t bytes) noexcept {
  Pieces& mine = pieces;
  if (C10_UNLIKELY(mine.closed || mine.count >= kMostKept || bytes > kBytes)) {
    ::operator delete(memory);
    return;
  }
  mine.first = ::new (memory) Piece{mine.first};
  ++mine.count;
}

}  // namespace flagos::ops
