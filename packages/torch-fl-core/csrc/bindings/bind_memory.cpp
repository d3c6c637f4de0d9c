// _C.memory: the device and pinned allocators for torch.flagos.memory and the tests.

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/bindings/bindings.h"
#include "csrc/runtime/device_allocator.h"
#include "csrc/runtime/host_allocator.h"

namespace py = pybind11;

// Of torch/csrc/profiler/python/combined_traceback.h, which wheels ship without a header that it includes.
// Weak: a torch that does not export them costs the call stacks of the memory history, not the import.
namespace torch {
__attribute__((weak)) std::vector<py::object> py_symbolize(std::vector<CapturedTraceback*>& to_symbolize);
__attribute__((weak)) void installCapturedTracebackPython();
}  // namespace torch

namespace flagos {

namespace {

using c10::CachingAllocator::DurationStat;
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;

py::dict describe(const Stat& stat) {
  py::dict out;
  out["current"] = stat.current;
  out["peak"] = stat.peak;
  out["allocated"] = stat.allocated;
  out["freed"] = stat.freed;
  return out;
}

py::dict describe(const StatArray& stats) {
  py::dict out;
  out["all"] = describe(stats[0]);
  out["small_pool"] = describe(stats[1]);
  out["large_pool"] = describe(stats[2]);
  return out;
}

py::dict describe(const DurationStat& stat) {
  py::dict out;
  out["total"] = stat.total;
  out["max"] = stat.max;
  out["min"] = stat.min;
  out["count"] = stat.count;
  out["avg"] = stat.count == 0 ? 0.0 : static_cast<double>(stat.total) / static_cast<double>(stat.count);
  return out;
}

py::dict deviceStats(c10::DeviceIndex device) {
  const auto stats = deviceAllocator()->getDeviceStats(device);
  py::dict out;
  out["allocation"] = describe(stats.allocation);
  out["segment"] = describe(stats.segment);
  out["active"] = describe(stats.active);
  out["inactive_split"] = describe(stats.inactive_split);
  out["allocated_bytes"] = describe(stats.allocated_bytes);
  out["reserved_bytes"] = describe(stats.reserved_bytes);
  out["active_bytes"] = describe(stats.active_bytes);
  out["inactive_split_bytes"] = describe(stats.inactive_split_bytes);
  out["requested_bytes"] = describe(stats.requested_bytes);
  out["oversize_allocations"] = describe(stats.oversize_allocations);
  out["oversize_segments"] = describe(stats.oversize_segments);
  out["num_alloc_retries"] = stats.num_alloc_retries;
  out["num_ooms"] = stats.num_ooms;
  out["num_sync_all_streams"] = stats.num_sync_all_streams;
  out["num_device_alloc"] = stats.num_device_alloc;
  out["num_device_free"] = stats.num_device_free;
  out["max_split_size"] = stats.max_split_size;
  return out;
}

py::dict hostStats() {
  const HostMemoryStats stats = hostMemoryStats();
  py::dict out;
  out["active_requests"] = describe(stats.active_requests);
  out["active_bytes"] = describe(stats.active_bytes);
  out["allocations"] = describe(stats.allocations);
  out["allocated_bytes"] = describe(stats.allocated_bytes);
  out["host_alloc_time"] = describe(stats.alloc_time);
  out["host_free_time"] = describe(stats.free_time);
  out["num_host_alloc"] = stats.num_alloc;
  out["num_host_free"] = stats.num_free;
  return out;
}

// Call stacks, each turned into a list of frames once, however many blocks and records share it.
class Frames {
 public:
  void want(const ContextPtr& context) {
    auto* traceback = dynamic_cast<torch::CapturedTraceback*>(context.get());
    if (traceback != nullptr && place_.emplace(traceback, wanted_.size()).second)
      wanted_.push_back(traceback);
  }
  void symbolize() {
    if (!wanted_.empty() && torch::py_symbolize != nullptr) frames_ = torch::py_symbolize(wanted_);
  }
  py::object of(const ContextPtr& context) const {
    auto found = place_.find(dynamic_cast<torch::CapturedTraceback*>(context.get()));
    return found == place_.end() || frames_.empty() ? py::list() : frames_[found->second];
  }

 private:
  std::vector<torch::CapturedTraceback*> wanted_;
  std::unordered_map<torch::CapturedTraceback*, size_t> place_;
  std::vector<py::object> frames_;
};

py::list snapshot() {
  std::vector<SegmentSnapshot> segments;
  {
    py::gil_scoped_release released;
    segments = memorySnapshot();
  }
  Frames frames;
  for (const SegmentSnapshot& segment : segments) {
    frames.want(segment.context);
    for (const BlockSnapshot& block : segment.blocks) frames.want(block.context);
  }
  frames.symbolize();
  py::list out;
  for (const SegmentSnapshot& segment : segments) {
    py::dict entry;
    entry["device"] = static_cast<int>(segment.device);
    entry["address"] = segment.address;
    entry["total_size"] = segment.total_size;
    entry["allocated_size"] = segment.allocated_size;
    entry["active_size"] = segment.active_size;
    entry["requested_size"] = segment.requested_size;
    entry["stream"] = segment.stream;
    entry["segment_type"] = segment.is_large ? "large" : "small";
    entry["segment_pool_id"] = py::make_tuple(0, 0);
    entry["is_expandable"] = false;
    entry["frames"] = frames.of(segment.context);
    py::list blocks;
    for (const BlockSnapshot& block : segment.blocks) {
      py::dict part;
      part["address"] = block.address;
      part["size"] = block.size;
      part["requested_size"] = block.requested;
      part["state"] = block.state;
      part["frames"] = frames.of(block.context);
      blocks.append(std::move(part));
    }
    entry["blocks"] = std::move(blocks);
    out.append(std::move(entry));
  }
  return out;
}

py::list history() {
  std::vector<std::vector<TraceRecord>> traces;
  {
    py::gil_scoped_release released;
    traces = memoryTraces();
  }
  Frames frames;
  for (const auto& trace : traces) {
    for (const TraceRecord& record : trace) frames.want(record.context);
  }
  frames.symbolize();
  py::list out;
  for (const auto& trace : traces) {
    py::list records;
    for (const TraceRecord& record : trace) {
      py::dict entry;
      entry["action"] = memoryActionName(record.action);
      entry[record.action == MemoryAction::Oom ? "device_free" : "addr"] = record.address;
      entry["size"] = record.size;
      entry["stream"] = record.stream;
      entry["time_us"] = record.time_us;
      entry["frames"] = frames.of(record.context);
      records.append(std::move(entry));
    }
    out.append(std::move(records));
  }
  return out;
}

ContextPtr gatherPython() {
  return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, /*cpp=*/false);
}
ContextPtr gatherAll() {
  return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, /*cpp=*/true);
}

ContextLevel levelOf(const std::optional<std::string>& context) {
  if (!context) return ContextLevel::Never;
  if (*context == "state") return ContextLevel::State;
  if (*context == "alloc") return ContextLevel::Alloc;
  TORCH_CHECK_VALUE(*context == "all",
                    "flagos: context of the memory history is None, 'state', 'alloc' or 'all', not '",
                    *context, "'.");
  return ContextLevel::All;
}

void recordHistory(const std::optional<std::string>& enabled, const std::optional<std::string>& context,
                   const std::string& stacks, size_t max_entries, bool clear_history) {
  TORCH_CHECK_VALUE(!enabled || *enabled == "state" || *enabled == "all",
                    "flagos: enabled of the memory history is None, 'state' or 'all', not '", *enabled, "'.");
  TORCH_CHECK_VALUE(stacks == "python" || stacks == "all",
                    "flagos: stacks of the memory history is 'python' or 'all', not '", stacks, "'.");
  HistoryOptions options;
  options.enabled = enabled.has_value();
  options.keep_trace = enabled == "all";
  options.max_entries = max_entries;
  options.level = enabled ? levelOf(context) : ContextLevel::Never;
  options.gather = stacks == "all" ? &gatherAll : &gatherPython;
  if (enabled && torch::installCapturedTracebackPython != nullptr) torch::installCapturedTracebackPython();
  py::gil_scoped_release released;
  recordMemoryHistory(options, clear_history);
}

void observeOutOfMemory(py::function observer) {
  // The observer lives as long as the process: the allocator may call it at any time, and outlives the
  // interpreter.
  auto* kept = new py::function(std::move(observer));
  addOutOfMemoryObserver([kept](c10::DeviceIndex device, size_t asked, size_t total, size_t free) {
    if (!Py_IsInitialized()) return;
    py::gil_scoped_acquire acquired;
    try {
      (*kept)(static_cast<int>(device), asked, total, free);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("an observer of out-of-memory errors");
    }
  });
}

// An index as Python gives it: checked while its value is still whole.
c10::DeviceIndex checkedIndex(int64_t index) {
  if (index < -1 || index >= kMaxDevices) {
    activate();
    detail::badDeviceIndex(index);
  }
  return static_cast<c10::DeviceIndex>(index);
}

c10::Stream streamOf(c10::StreamId id, int64_t device) {
  const c10::DeviceIndex index = deviceEntry(resolveIndex(checkedIndex(device))).index;
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, index), id);
}

void* pointerOf(uintptr_t address) { return reinterpret_cast<void*>(address); }

void setMode(const std::string& mode) {
  TORCH_CHECK_VALUE(mode == "caching" || mode == "direct",
                    "flagos: the allocator is 'caching' or 'direct', not '", mode, "'.");
  setAllocatorMode(mode == "direct" ? AllocatorMode::Direct : AllocatorMode::Caching);
}

std::string modeName() { return allocatorMode() == AllocatorMode::Direct ? "direct" : "caching"; }

void recordStreamAt(uintptr_t pointer, c10::StreamId id, int64_t device) {
  const c10::Stream stream = streamOf(id, device);
  recordStream(c10::DataPtr(pointerOf(pointer), stream.device()), stream);
}

// Adds functions to the module behind torch's wrapper, so that errors arrive as torch's classes. `blocking`
// lets other threads of Python run meanwhile.
struct Adder {
  py::module_& m;
  template <typename Function, typename... Rest>
  void quick(const char* name, Function function, Rest&&... rest) {
    m.def(name, torch::wrap_pybind_function(std::move(function)), std::forward<Rest>(rest)...);
  }
  template <typename Function, typename... Rest>
  void blocking(const char* name, Function function, Rest&&... rest) {
    m.def(name, torch::wrap_pybind_function_no_gil(std::move(function)), std::forward<Rest>(rest)...);
  }
};

void bindDeviceMemory(Adder add) {
  const py::arg device("device");
  const py::arg pointer("pointer");
  const py::arg stream("stream_id");
  add.quick(
      "stats", [](int64_t index) { return deviceStats(checkedIndex(index)); }, device,
      "Statistics of a device, nested as those of torch.cuda.");
  add.blocking(
      "reset_peak_stats", [](int64_t index) { deviceAllocator()->resetPeakStats(checkedIndex(index)); },
      device, "Let the peaks of a device start again from the present values.");
  add.blocking(
      "reset_accumulated_stats",
      [](int64_t index) { deviceAllocator()->resetAccumulatedStats(checkedIndex(index)); }, device,
      "Let the totals of a device start again from 0; present values stay.");
  add.blocking(
      "info", [](int64_t index) { return memoryInfo(checkedIndex(index)); }, device,
      "(free, total) bytes of a device as its backend counts them.");
  add.blocking(
      "empty_cache", [] { deviceAllocator()->emptyCache(); },
      "Give the segments without a live block back, on all devices; waits for work that may still use them.");
  add.blocking(
      "set_fraction",
      [](double fraction, int64_t index) { setMemoryFraction(checkedIndex(index), fraction); },
      py::arg("fraction"), device,
      "Limit what this process may reserve to a fraction of the device's memory.");
  add.blocking(
      "fraction", [](int64_t index) { return memoryFraction(checkedIndex(index)); }, device,
      "The fraction set by set_fraction; 1.0 at first.");
  add.blocking(
      "allocate",
      [](size_t size, int64_t index, c10::StreamId id) {
        return reinterpret_cast<uintptr_t>(rawAllocate(checkedIndex(index), size, id));
      },
      py::arg("size"), device, stream,
      "Memory for use on a stream of a device, as an address; 0 for 0 bytes.");
  add.blocking(
      "release", [](uintptr_t address) { rawRelease(pointerOf(address)); }, pointer,
      "Give back what allocate gave; 0 is fine, anything else is a ValueError.");
  add.blocking(
      "record_stream", &recordStreamAt, pointer, stream, device,
      "Keep the block around an address from reuse until a stream has passed the point where it is freed.");
  add.blocking(
      "device_of_pointer", [](uintptr_t address) { return int{deviceOfPointer(pointerOf(address))}; },
      pointer, "The device whose memory an address lies in; -1 if none.");
  add.quick("set_mode", &setMode, py::arg("mode"),
            "Choose the allocator for later allocations: 'caching' or 'direct' (FLAGOS_ALLOCATOR).");
  add.quick("mode", &modeName, "The allocator in effect: 'caching' or 'direct'.");
}

void bindReports(Adder add) {
  add.quick("snapshot", &snapshot,
            "All segments with their blocks, with the keys of torch.cuda.memory_snapshot.");
  add.quick("history", &history,
            "The recorded actions of each device, with the keys of torch.cuda.memory._snapshot.");
  add.quick("record_history", &recordHistory, py::arg("enabled") = "all", py::arg("context") = "all",
            py::arg("stacks") = "python", py::arg("max_entries") = ~size_t{0},
            py::arg("clear_history") = false,
            "Record allocations and frees from now on, or stop (enabled=None). Arguments as "
            "torch.cuda.memory._record_memory_history.");
  add.quick("attach_out_of_memory_observer", &observeOutOfMemory, py::arg("observer"),
            "Call observer(device, asked, total, free) before each out-of-memory error, for the life of the "
            "process.");
}

void bindHostMemory(Adder add) {
  const py::arg pointer("pointer");
  const py::arg device("device");
  add.quick("host_stats", &hostStats, "Statistics of pinned host memory, nested as those of torch.cuda.");
  add.blocking(
      "reset_peak_host_stats", [] { hostAllocator()->reset_peak_stats(); },
      "Let the peaks of pinned host memory start again from the present values.");
  add.blocking(
      "reset_accumulated_host_stats", [] { hostAllocator()->reset_accumulated_stats(); },
      "Let the totals of pinned host memory start again from 0.");
  add.blocking(
      "host_empty_cache", [] { hostAllocator()->empty_cache(); }, "Give unused pinned host memory back.");
  add.blocking(
      "is_pinned", [](uintptr_t address) { return isPinned(pointerOf(address)); }, pointer,
      "Whether an address lies in pinned host memory of any backend.");
  add.blocking(
      "is_pinned_for",
      [](uintptr_t address, int64_t index) { return isPinnedFor(pointerOf(address), checkedIndex(index)); },
      pointer, device, "Whether an address is pinned for the backend of a device.");
  add.blocking(
      "record_pinned_use",
      [](uintptr_t address, c10::StreamId id, int64_t index) {
        return recordPinnedUse(pointerOf(address), streamOf(id, index));
      },
      pointer, py::arg("stream_id"), device,
      "Keep a pinned block from reuse until a stream has passed the point where it is freed; True if it is "
      "ours.");
}

}  // namespace

void bindMemory(py::module_& parent) {
  py::module_ m = parent.def_submodule("memory", "The device and pinned allocators.");
  bindDeviceMemory({m});
  bindReports({m});
  bindHostMemory({m});
}

}  // namespace flagos
