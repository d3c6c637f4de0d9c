#include "csrc/reference/blocks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "csrc/reference/memory.h"
#include "csrc/reference/shared.h"
#include "csrc/reference/status.h"

namespace flagos::reference {

namespace {

constexpr uint64_t kMapFrom = uint64_t{128} << 10;  // bytes from which a block is mapped by itself
constexpr uint64_t kHugePage = uint64_t{2} << 20;

uint64_t roundUp(uint64_t size, uint64_t unit) noexcept { return (size + unit - 1) / unit * unit; }

uint64_t pageSize() noexcept {
  static const uint64_t size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return size;
}

Block makeBlock(Block::Kind kind, void* base, void* alias, uint64_t length) noexcept {
  Block block;
  block.kind = kind;
  block.base = static_cast<char*>(base);
  block.alias = static_cast<char*>(alias);
  block.length = length;
  return block;
}

}  // namespace

flagos_hal_status mapBlock(uint64_t size, Block* block) {
  if (size < kMapFrom) {
    void* memory = nullptr;
    const int error = posix_memalign(&memory, kAlignment, size);
    if (error != 0) return failSystem(FLAGOS_HAL_STATUS_OUT_OF_MEMORY, error, "posix_memalign");
    *block = makeBlock(Block::Kind::Heap, memory, memory, size);
    return kOk;
  }
  // Big blocks begin at a huge page, so that the system can back them with such; what sticks out is given
  // back at once.
  const bool huge = size >= kHugePage;
  const uint64_t length = roundUp(size, pageSize());
  const uint64_t reserved = huge ? length + kHugePage : length;
  void* mapped =
      mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return failSystem(FLAGOS_HAL_STATUS_OUT_OF_MEMORY, errno, "mmap");
  char* base = static_cast<char*>(mapped);
  if (huge) {
    char* const begin = base;
    base = reinterpret_cast<char*>(roundUp(reinterpret_cast<uintptr_t>(begin), kHugePage));
    if (base != begin) munmap(begin, static_cast<size_t>(base - begin));
    const uint64_t rest = reserved - static_cast<uint64_t>(base - begin) - length;
    if (rest != 0) munmap(base + length, rest);
    madvise(base, length, MADV_HUGEPAGE);  // only speed depends on it
  }
  *block = makeBlock(Block::Kind::Anonymous, base, base, length);
  return kOk;
}

flagos_hal_status mapFaultingBlock(uint64_t size, Block* block) {
  const uint64_t length = roundUp(size, pageSize());
  const int file = memfd_create("flagos-reference", MFD_CLOEXEC);
  if (file < 0) return failSystem(FLAGOS_HAL_STATUS_OUT_OF_MEMORY, errno, "memfd_create");
  int error = 0;
  void* alias = MAP_FAILED;
  void* base = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(length)) != 0) {
    error = errno;
  } else {
    alias = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (alias == MAP_FAILED) error = errno;
  }
  if (error == 0) {
    base = mmap(nullptr, length, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (base == MAP_FAILED) error = errno;
  }
  close(file);  // the mappings keep it
  if (error != 0) {
    if (alias != MAP_FAILED) munmap(alias, length);
    return failSystem(FLAGOS_HAL_STATUS_OUT_OF_MEMORY, error, "mapping a memory file");
  }
  *block = makeBlock(Block::Kind::Faulting, base, alias, length);
  return kOk;
}

void unmapBlock(const Block& block) noexcept {
  switch (block.kind) {
    case Block::Kind::None:
      return;
    case Block::Kind::Heap:
      std::free(block.base);
      return;
    case Block::Kind::Anonymous:
      munmap(block.base, block.length);
      break;
    case Block::Kind::Faulting:
      munmap(block.base, block.length);
      munmap(block.alias, block.length);
      break;
  }
  if (block.shared == Block::Shared::Own) forgetShared(block.offset, block.length);
}

}  // namespace flagos::reference
