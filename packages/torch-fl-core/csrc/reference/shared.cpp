#include "csrc/reference/shared.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "csrc/reference/options.h"
#include "csrc/reference/status.h"

namespace flagos::reference {

namespace {

constexpr uint64_t kFileSize = uint64_t{1}
                               << 62;  // sparse; parts are never reused, so this is used up but once
constexpr uint64_t kHugePage = uint64_t{2} << 20;

struct File {
  int descriptor = -1;
  uint64_t token = 0;
  std::atomic<uint64_t> next{0};  // where the next part begins
};
File file;  // written by init and shutdown

uint64_t roundUp(uint64_t size, uint64_t unit) noexcept { return (size + unit - 1) / unit * unit; }

uint64_t lengthOf(uint64_t size) noexcept {
  return roundUp(size, static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
}

void nameOf(uint64_t token, char (&name)[40]) noexcept {
  std::snprintf(name, sizeof(name), "flagos-%016llx", static_cast<unsigned long long>(token));
}

flagos_hal_status mapPart(int descriptor, uint64_t offset, uint64_t length, bool faulting, Block* block) {
  const off_t begin = static_cast<off_t>(offset);
  void* alias = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, begin);
  if (alias == MAP_FAILED) return failSystem(FLAGOS_HAL_STATUS_OUT_OF_MEMORY, errno, "mapping shared memory");
  void* base = alias;
  if (faulting) {
    base = mmap(nullptr, length, PROT_NONE, MAP_SHARED | MAP_NORESERVE, descriptor, begin);
    if (base == MAP_FAILED) {
      const int error = errno;
      munmap(alias, length);
      return failSystem(FLAGOS_HAL_STATUS_OUT_OF_MEMORY, error, "mapping shared memory");
    }
  }
  // A child forked later must not see, or change, what the parent's device does.
  madvise(alias, length, MADV_DONTFORK);
  if (base != alias) madvise(base, length, MADV_DONTFORK);
  *block = Block{};
  block->kind = faulting ? Block::Kind::Faulting : Block::Kind::Anonymous;
  block->base = static_cast<char*>(base);
  block->alias = static_cast<char*>(alias);
  block->length = length;
  return kOk;
}

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) noexcept {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

bool ipcWanted() noexcept {
  static const bool wanted = [] {
    bool value = false;
    return readIpcOption(&value) && value;
  }();
  return wanted;
}

flagos_hal_status openShared() {
  if (!ipcWanted() || file.descriptor >= 0) return kOk;
  uint64_t token = 0;
  if (getrandom(&token, sizeof(token), 0) != static_cast<ssize_t>(sizeof(token))) {
    return failSystem(FLAGOS_HAL_STATUS_UNAVAILABLE, errno, "getrandom");
  }
  char name[40];
  nameOf(token, name);
  const int descriptor = memfd_create(name, MFD_CLOEXEC);
  if (descriptor < 0) return failSystem(FLAGOS_HAL_STATUS_UNAVAILABLE, errno, "memfd_create");
  if (ftruncate(descriptor, static_cast<off_t>(kFileSize)) != 0) {
    const int error = errno;
    close(descriptor);
    return failSystem(FLAGOS_HAL_STATUS_UNAVAILABLE, error, "ftruncate of a memory file");
  }
  file.descriptor = descriptor;
  file.token = token;
  file.next.store(0, std::memory_order_relaxed);
  return kOk;
}

void closeShared() noexcept {
  if (file.descriptor >= 0) close(file.descriptor);
  file.descriptor = -1;
}

flagos_hal_status mapSharedBlock(uint64_t size, bool faulting, Block* block) {
  const uint64_t length = lengthOf(size);
  const uint64_t offset = file.next.fetch_add(roundUp(length, kHugePage), std::memory_order_relaxed);
  FLAGOS_HAL_REQUIRE(offset <= kFileSize - length, OUT_OF_MEMORY, "the file of shared memory is used up");
  FLAGOS_HAL_TRY(mapPart(file.descriptor, offset, length, faulting, block));
  block->shared = Block::Shared::Own;
  block->offset = offset;
  return kOk;
}

flagos_hal_status mapForeignBlock(const SharedHandle& handle, bool faulting, Block* block) {
  const uint64_t length = lengthOf(handle.size);
  FLAGOS_HAL_REQUIRE(handle.process > 0 && handle.file >= 0 && handle.size != 0 && handle.size <= kFileSize &&
                         handle.offset <= kFileSize - length && handle.offset % kHugePage == 0,
                     INVALID_ARGUMENT, "the bytes are not a handle of this library");
  char name[40];
  nameOf(handle.token, name);
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle.process, handle.file);
  // The open file is looked at, not the path: the descriptor there may change in between.
  const int descriptor = open(path, O_RDWR | O_CLOEXEC);
  if (descriptor < 0) {
    const int error = errno;
    if (error == EACCES || error == EPERM) return failSystem(FLAGOS_HAL_STATUS_UNSUPPORTED, error, path);
    return fail(FLAGOS_HAL_STATUS_INVALID_ARGUMENT,
                "process %d, which exported the handle, is gone or has shut the library down",
                handle.process);
  }
  char own[64];
  std::snprintf(own, sizeof(own), "/proc/self/fd/%d", descriptor);
  char target[80] = "";
  const ssize_t read = readlink(own, target, sizeof(target) - 1);
  const std::string expected = std::string("/memfd:") + name;
  if (read <= 0 || std::strncmp(target, expected.c_str(), expected.size()) != 0) {
    close(descriptor);
    return fail(FLAGOS_HAL_STATUS_INVALID_ARGUMENT,
                "process %d has no such memory any more: it ended, or has shut the library down",
                handle.process);
  }
  const flagos_hal_status status = mapPart(descriptor, handle.offset, length, faulting, block);
  close(descriptor);  // the mapping keeps the file
  if (status == kOk) block->shared = Block::Shared::Foreign;
  return status;
}

void forgetShared(uint64_t offset, uint64_t length) noexcept {
  if (file.descriptor < 0) return;
  fallocate(file.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(length));
}

SharedHandle handleOf(uint64_t magic, const Block& block, uint64_t size) noexcept {
  return {magic, file.token, static_cast<int32_t>(getpid()), file.descriptor, block.offset, size};
}

SharedEventPart::~SharedEventPart() { unmapBlock(block_); }

bool sharedReached(const SharedEvent& event, uint32_t number) noexcept {
  return static_cast<int32_t>(event.reached.load(std::memory_order_acquire) - number) >= 0;
}

void reachShared(SharedEvent& event, uint32_t number) noexcept {
  uint32_t before = event.reached.load(std::memory_order_relaxed);
  do {
    if (static_cast<int32_t>(before - number) >= 0) return;
  } while (!event.reached.compare_exchange_weak(before, number, std::memory_order_acq_rel));
  futex(event.reached, FUTEX_WAKE, INT_MAX, nullptr);
}

void waitForShared(SharedEvent& event, uint32_t number) noexcept {
  const timespec patience = {0, 50 * 1000 * 1000};
  for (;;) {
    const uint32_t seen = event.reached.load(std::memory_order_acquire);
    if (static_cast<int32_t>(seen - number) >= 0) return;
    futex(event.reached, FUTEX_WAIT, seen, &patience);
    const int32_t recorder = event.recorder.load(std::memory_order_acquire);
    // 0: the process that made the event destroyed it.
    if (recorder == 0 || (kill(recorder, 0) != 0 && errno == ESRCH)) return;
  }
}

}  // namespace flagos::reference
