// Memory and events that other processes can use (FLAGOS_REFERENCE_IPC): parts of one memory file, which
// another process of the same user opens through /proc/<pid>/fd. The file's name carries a random token, so a
// handle of a process that is gone is never taken for one of a later process.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "csrc/reference/blocks.h"
#include "flagos/hal.h"

namespace flagos::reference {

// Whether the variable asks for it; read once, by query, since the tables depend on it. A bad value is no,
// and refused by init.
bool ipcWanted() noexcept;

// What a flagos_hal_ipc_handle holds.
struct SharedHandle {
  uint64_t magic;  // what it is of: memory or an event
  uint64_t token;  // in the file's name
  int32_t process;
  int32_t file;     // descriptor there
  uint64_t offset;  // in the file
  uint64_t size;    // of the allocation
};
inline constexpr uint64_t kMemoryMagic = 0x31304d454d464c46;  // "FLFMEM01"
inline constexpr uint64_t kEventMagic = 0x3130545645464c46;   // "FLFEVT01"

// Called by init and shutdown.
flagos_hal_status openShared();
void closeShared() noexcept;

// A new part of this process' file, mapped once, or, `faulting`, twice.
flagos_hal_status mapSharedBlock(uint64_t size, bool faulting, Block* block);
// The same part of another process' file. INVALID_ARGUMENT if the handle does not lead to one.
flagos_hal_status mapForeignBlock(const SharedHandle& handle, bool faulting, Block* block);
// Gives the memory of a part of this process' file back to the system; nothing is mapped there any more.
void forgetShared(uint64_t offset, uint64_t length) noexcept;

SharedHandle handleOf(uint64_t magic, const Block& block, uint64_t size) noexcept;

// An event of several processes, in shared memory. A record takes the next number; the stream's thread sets
// `reached` to it.
struct SharedEvent {
  std::atomic<uint32_t> next;      // the last number taken
  std::atomic<uint32_t> recorded;  // the last number whose work was queued
  std::atomic<uint32_t> reached;   // the last number whose work is done; waiters sleep on it
  std::atomic<int32_t> recorder;   // the process that recorded last
};

// Keeps the mapping of a SharedEvent.
class SharedEventPart {
 public:
  explicit SharedEventPart(const Block& block) noexcept : block_(block) {}
  ~SharedEventPart();
  SharedEventPart(const SharedEventPart&) = delete;
  SharedEventPart& operator=(const SharedEventPart&) = delete;
  SharedEvent& event() const noexcept { return *reinterpret_cast<SharedEvent*>(block_.base); }
  const Block& block() const noexcept { return block_; }

 private:
  Block block_;
};

// Whether record `number` was reached (numbers wrap around).
bool sharedReached(const SharedEvent& event, uint32_t number) noexcept;
// Waits for it. A recorder that died will not reach it: then it counts as reached.
void waitForShared(SharedEvent& event, uint32_t number) noexcept;
void reachShared(SharedEvent& event, uint32_t number) noexcept;

}  // namespace flagos::reference
