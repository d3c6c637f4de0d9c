// Blocks of address space from the operating system.
#pragma once

#include <cstdint>

#include "flagos/hal.h"

namespace flagos::reference {

struct Block {
  enum class Kind : uint8_t {
    None,       // not ours to give back
    Heap,       // small: from the C library, which may keep it
    Anonymous,  // mmap; goes back to the system at once
    Faulting    // a memory file mapped twice: `base` without any access rights, `alias` readable and writable
  };
  Kind kind = Kind::None;
  char* base = nullptr;
  char* alias = nullptr;  // where the library reads and writes what is at `base`; equal to it unless Faulting
  uint64_t length = 0;    // bytes of address space
  // Whether it is part of a memory file that processes share (shared.h), and where in it.
  enum class Shared : uint8_t { No, Own, Foreign } shared = Shared::No;
  uint64_t offset = 0;
};

// OUT_OF_MEMORY with the system's reason if there is none. `base` is a multiple of 256.
flagos_hal_status mapBlock(uint64_t size, Block* block);
flagos_hal_status mapFaultingBlock(uint64_t size, Block* block);
void unmapBlock(const Block& block) noexcept;

}  // namespace flagos::reference
