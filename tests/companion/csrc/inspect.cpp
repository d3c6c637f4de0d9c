// What tests see of the stand-in and tell it, by ctypes: numbers, and JSON for what is longer. A text lives
// until the thread's next call. No function throws.
#include <ATen/detail/HPUHooksInterface.h>

#include <sstream>
#include <string>

#include "allocator.h"
#include "devices.h"
#include "events.h"
#include "generator.h"
#include "op_table.h"
#include "pinned.h"
#include "records.h"
#include "streams.h"
#include "strictness.h"

#define STANDIN_API extern "C" __attribute__((visibility("default")))

namespace standin {
namespace {

const char* kept(std::string text) {
  thread_local std::string last;
  last = std::move(text);
  return last.c_str();
}

template <typename List, typename Write>
const char* jsonList(const List& list, const Write& write) {
  std::ostringstream out;
  const char* separator = "[";
  for (const auto& element : list) {
    out << separator;
    write(out, element);
    separator = ",";
  }
  out << (list.empty() ? "[]" : "]");
  return kept(out.str());
}

}  // namespace
}  // namespace standin

using namespace standin;

// −1: the stand-in has no counted kernel under this name.
STANDIN_API int64_t standin_calls(const char* op) {
  const OpInfo* info = findOp(op);
  return info == nullptr ? -1 : info->calls.load();
}

STANDIN_API const char* standin_called_ops() {
  return jsonList(allOps(), [](auto& out, const OpInfo* op) {
    out << "[" << quoted(op->name) << "," << op->calls << "]";
  });
}

STANDIN_API const char* standin_stream_log() {
  return jsonList(workLog(), [](auto& out, const Work& work) {
    out << "[" << quoted(work.what) << "," << int(work.device) << "," << work.stream << ","
        << int(work.current) << "," << work.depth << "]";
  });
}

STANDIN_API const char* standin_memory_log() {
  return jsonList(memoryLog(), [](auto& out, const MemoryEvent& event) {
    out << "[" << quoted(event.what) << "," << event.address << "," << event.bytes << "," << int(event.device)
        << "," << event.stream << "," << int(event.current) << "," << int(event.in_kernel) << "]";
  });
}

STANDIN_API const char* standin_faults() {
  checkGuardBytes();
  return jsonList(faults(), [](auto& out, const std::string& text) { out << quoted(text); });
}

STANDIN_API const char* standin_counts() {
  return jsonList(counts(), [](auto& out, const auto& entry) {
    out << "[" << quoted(entry.first) << "," << entry.second << "]";
  });
}

// 0: PyTorch looked for hooks of this device type before the library was loaded, and never will again.
STANDIN_API int standin_hooks_in_use() { return at::detail::getHPUHooks().hasHPU() ? 1 : 0; }

STANDIN_API int64_t standin_device_count() { return deviceCount(); }
STANDIN_API int64_t standin_current_device() { return currentDevice(); }
STANDIN_API int64_t standin_exchange_device(int64_t device) {
  const c10::DeviceIndex before = currentDevice();
  if (device < 0 || device >= deviceCount()) return -1;
  setCurrentDevice(static_cast<c10::DeviceIndex>(device));
  return before;
}
STANDIN_API int64_t standin_live_blocks(int device) {
  return liveBlocks(static_cast<c10::DeviceIndex>(device));
}
STANDIN_API int64_t standin_live_events() { return static_cast<int64_t>(liveEvents()); }
STANDIN_API int64_t standin_live_pinned_blocks() { return livePinnedBlocks(); }
STANDIN_API int64_t standin_pinned_uses() { return pinnedUses(); }

// −1 in the next three: there is no such device, or no such stream.
STANDIN_API int64_t standin_allocated_bytes(int device) {
  if (device < 0 || device >= deviceCount()) return -1;
  return allocatedBytes(static_cast<c10::DeviceIndex>(device));
}

STANDIN_API int64_t standin_submitted(int device, int64_t stream) {
  if (device < 0 || device >= deviceCount()) return -1;
  const c10::Device on = deviceOf(static_cast<c10::DeviceIndex>(device));
  return submitted(c10::Stream(c10::Stream::UNSAFE, on, stream));
}

STANDIN_API int64_t standin_current_stream(int device) {
  if (device < 0 || device >= deviceCount()) return -1;
  return currentStream(static_cast<c10::DeviceIndex>(device)).id();
}

// Seed and offset of a device's default generator, and setting both; −1: there is no such device.
STANDIN_API int64_t standin_random_state(int device, uint64_t* seed, uint64_t* offset) {
  if (device < 0 || device >= deviceCount()) return -1;
  const at::Generator& generator = defaultGenerator(static_cast<c10::DeviceIndex>(device));
  *seed = generator.current_seed();
  *offset = generator.get_offset();
  return 0;
}

STANDIN_API int64_t standin_set_random_state(int device, uint64_t seed, uint64_t offset) {
  if (device < 0 || device >= deviceCount() || offset % 4 != 0) return -1;
  at::Generator generator = defaultGenerator(static_cast<c10::DeviceIndex>(device));
  generator.set_current_seed(seed);
  generator.set_offset(offset);
  return 0;
}

// The device in whose live memory the byte lies; −1: none.
STANDIN_API int64_t standin_owner(const void* pointer) { return ownerOf(pointer, 1); }

STANDIN_API void standin_fail_allocations(int64_t skip, int64_t times) { failAllocations(skip, times); }

// 0: the stand-in has no counted kernel under this name.
STANDIN_API int standin_fail_op(const char* op, int64_t times) {
  OpInfo* info = findOp(op);
  if (info == nullptr) return 0;
  info->fails = times;
  return 1;
}

// `ops`: names separated by spaces; null: no rule by name.
STANDIN_API void standin_set_rules(int labels, const char* ops, int own_memory, int bare_tensors) {
  Rules rules;
  rules.labels = static_cast<StorageLabels>(labels);
  rules.restrict_ops = ops != nullptr;
  std::istringstream names(ops == nullptr ? "" : ops);
  for (std::string name; names >> name;) rules.foreign_label_ops.push_back(name);
  rules.own_memory = own_memory != 0;
  rules.bare_tensors = bare_tensors != 0;
  setRules(std::move(rules));
}

// Forgets records, counts and failures to come; keeps memory, events, streams and rules.
STANDIN_API void standin_reset() {
  clearRecords();
  clearMemoryLog();
  failAllocations(0, 0);
  for (const OpInfo* op : allOps()) {
    op->calls = 0;
    op->fails = 0;
  }
}
