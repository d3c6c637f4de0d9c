// What the stand-in remembers for the tests: faults, counts of calls, and the work of every stream in order.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace standin {

// Something that was wrong where no exception may be thrown (a deleter, a destructor). Kept, and printed.
void fault(const std::string& text) noexcept;
std::vector<std::string> faults();

// One piece of work: a kernel, a copy, an event recorded or waited for, a wait of the host.
struct Work {
  std::string what;
  c10::DeviceIndex device;  // of the stream
  c10::StreamId stream;
  c10::DeviceIndex current;  // the thread's current device when it was queued
  int depth;                 // > 0: queued by another kernel of the stand-in
};
void recordWork(std::string what, c10::Stream stream, c10::DeviceIndex current);
std::vector<Work> workLog();

// Calls of the guard and the hooks, by name.
void count(const char* what) noexcept;
std::vector<std::pair<std::string, int64_t>> counts();

void clearRecords();  // faults, counts and work

// How deep the thread is in kernels of the stand-in.
int kernelDepth() noexcept;
class KernelScope {
 public:
  KernelScope() noexcept;
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;
};

// `text` as a JSON string.
std::string quoted(std::string_view text);

}  // namespace standin
