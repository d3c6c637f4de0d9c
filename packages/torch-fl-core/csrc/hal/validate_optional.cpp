// The optional groups under the validating layer.
#include <cinttypes>

#include "csrc/hal/validator_calls.h"
#include "flagos/hal_support/error.hpp"

namespace flagos::hal {

flagos_hal_status Validator::host_allocate(uint64_t size, void** out_pointer) {
  constexpr Member kMember = Member::host_allocate;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_pointer, "out_pointer"));
  void* pointer = nullptr;
  FLAGOS_HAL_TRY(returned(kMember, library_.host.allocate(size, &pointer)));
  if (size == 0) {
    if (pointer) return libraryFault(kMember, "HAL-HST-01", "it answered %p for 0 bytes, not null", pointer);
  } else {
    if (!pointer)
      return libraryFault(kMember, "HAL-HST-01", "it answered OK and null for %" PRIu64 " bytes", size);
    FLAGOS_HAL_TRY(
        addRange(kMember, {reinterpret_cast<uintptr_t>(pointer), size, -1, Range::Origin::Pinned}));
  }
  *out_pointer = pointer;
  return FLAGOS_HAL_STATUS_OK;
}

flagos_hal_status Validator::host_release(void* pointer) {
  constexpr Member kMember = Member::host_release;
  if (!pointer) return returned(kMember, library_.host.release(nullptr));
  Range range;
  FLAGOS_HAL_TRY(takeRange(kMember, kPinnedBook, -1, pointer, &range));
  const flagos_hal_status status = returned(kMember, library_.host.release(pointer));
  if (status != FLAGOS_HAL_STATUS_OK) putBack(range);
  return status;
}

flagos_hal_status Validator::host_register_range(void* pointer, uint64_t size) {
  constexpr Member kMember = Member::host_register_range;
  if (!pointer || size == 0) {
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "HAL-HST-03",
                     "nothing to register: %" PRIu64 " bytes at %p", size, pointer);
  }
  const Range range = {reinterpret_cast<uintptr_t>(pointer), size, -1, Range::Origin::Registered};
  Range other;
  bool overlaps = false;
  {
    Lock lock(mutex_);
    if (const Range* found = ranges_[kRegisteredBook].overlapping(range.base, size)) {
      other = *found;
      overlaps = true;
    }
  }
  if (overlaps) {
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_STATE, "HAL-HST-03",
                     "%" PRIu64 " bytes at %p overlap %" PRIu64 " bytes at %p that are registered", size,
                     pointer, other.size, reinterpret_cast<void*>(other.base));
  }
  FLAGOS_HAL_TRY(returned(kMember, library_.host.register_range(pointer, size)));
  return addRange(kMember, range);
}

flagos_hal_status Validator::host_unregister_range(void* pointer) {
  constexpr Member kMember = Member::host_unregister_range;
  Range range;
  FLAGOS_HAL_TRY(takeRange(kMember, kRegisteredBook, -1, pointer, &range));
  const flagos_hal_status status = returned(kMember, library_.host.unregister_range(pointer));
  if (status != FLAGOS_HAL_STATUS_OK) putBack(range);
  return status;
}

flagos_hal_status Validator::host_begin_access(int32_t device, void* pointer, uint64_t size,
                                               uint32_t access) {
  constexpr Member kMember = Member::host_begin_access;
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  FLAGOS_HAL_TRY(checkFlags(kMember, "access", access, FLAGOS_HAL_ACCESS_READ | FLAGOS_HAL_ACCESS_WRITE));
  FLAGOS_HAL_TRY(checkDeviceMemory(kMember, "pointer", device, pointer, size));
  FLAGOS_HAL_TRY(returned(kMember, library_.host.begin_access(device, pointer, size, access)));
  Lock lock(mutex_);
  accesses_.insert({reinterpret_cast<uintptr_t>(pointer), {size, access}});
  return FLAGOS_HAL_STATUS_OK;
}

flagos_hal_status Validator::host_end_access(int32_t device, void* pointer, uint64_t size, uint32_t access) {
  constexpr Member kMember = Member::host_end_access;
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  bool begun = false;
  {
    Lock lock(mutex_);
    const auto [first, last] = accesses_.equal_range(reinterpret_cast<uintptr_t>(pointer));
    for (auto it = first; it != last && !begun; ++it) {
      if (it->second == std::make_pair(size, access)) {
        accesses_.erase(it);
        begun = true;
        break;
      }
    }
  }
  if (!begun) {
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "HAL-HST-06",
                     "no begin_access with these arguments is open: %" PRIu64 " bytes at %p, access 0x%x",
                     size, pointer, access);
  }
  return returned(kMember, library_.host.end_access(device, pointer, size, access));
}

flagos_hal_status Validator::peer_can_access(int32_t device, int32_t peer, int32_t* out_yes) {
  constexpr Member kMember = Member::peer_can_access;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_yes, "out_yes"));
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  FLAGOS_HAL_TRY(checkDevice(kMember, peer));
  FLAGOS_HAL_TRY(returned(kMember, library_.peer.can_access(device, peer, out_yes)));
  if (*out_yes != 0 && (*out_yes != 1 || device == peer)) {
    return libraryFault(kMember, "HAL-PER-01", "it answered %d for devices %d and %d", *out_yes, device,
                        peer);
  }
  return FLAGOS_HAL_STATUS_OK;
}

flagos_hal_status Validator::peer_enable(int32_t device, int32_t peer) {
  constexpr Member kMember = Member::peer_enable;
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  FLAGOS_HAL_TRY(checkDevice(kMember, peer));
  return returned(kMember, library_.peer.enable(device, peer));
}

flagos_hal_status Validator::peer_disable(int32_t device, int32_t peer) {
  constexpr Member kMember = Member::peer_disable;
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  FLAGOS_HAL_TRY(checkDevice(kMember, peer));
  return returned(kMember, library_.peer.disable(device, peer));
}

flagos_hal_status Validator::peer_copy_async(flagos_hal_stream* stream, int32_t destination_device,
                                             void* destination, int32_t source_device, const void* source,
                                             uint64_t size) {
  constexpr Member kMember = Member::peer_copy_async;
  std::shared_ptr<StreamState> state;
  FLAGOS_HAL_TRY(checkStream(kMember, stream, &state));
  FLAGOS_HAL_TRY(checkDevice(kMember, destination_device));
  FLAGOS_HAL_TRY(checkDevice(kMember, source_device));
  if (state->device != destination_device && state->device != source_device) {
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "HAL-PER-04",
                     "the stream is of device %d, the copy goes from device %d to device %d", state->device,
                     source_device, destination_device);
  }
  FLAGOS_HAL_TRY(checkDeviceMemory(kMember, "destination", destination_device, destination, size));
  FLAGOS_HAL_TRY(checkDeviceMemory(kMember, "source", source_device, source, size));
  Queueing queueing(*state, false);
  if (queueing.conflict()) return refuseConcurrent(kMember);
  return returned(kMember, library_.peer.copy_async(stream, destination_device, destination, source_device,
                                                    source, size));
}

flagos_hal_status Validator::ipc_export_memory(int32_t device, void* pointer,
                                               flagos_hal_ipc_handle* out_handle) {
  constexpr Member kMember = Member::ipc_export_memory;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_handle, "out_handle"));
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  bool known = false;
  {
    Lock lock(mutex_);
    const Range* range = ranges_[kDeviceBook].at(pointer);
    known = range && range->device == device;
  }
  if (!known) {
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_HANDLE, "HAL-IPC-01",
                     "%p is not the start of an allocation of device %d", pointer, device);
  }
  return returned(kMember, library_.ipc.export_memory(device, pointer, out_handle));
}

flagos_hal_status Validator::ipc_import_memory(int32_t device, const flagos_hal_ipc_handle* handle,
                                               void** out_pointer) {
  constexpr Member kMember = Member::ipc_import_memory;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_pointer, "out_pointer"));
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  FLAGOS_HAL_TRY(checkIpcHandle(kMember, handle));
  void* pointer = nullptr;
  FLAGOS_HAL_TRY(returned(kMember, library_.ipc.import_memory(device, handle, &pointer)));
  if (!pointer) return libraryFault(kMember, "HAL-IPC-02", "it answered OK and null");
  Range range = {reinterpret_cast<uintptr_t>(pointer), 0, device, Range::Origin::Imported};
  flagos_hal_pointer_info info = {};
  info.struct_size = sizeof(info);
  if (library_.memory.pointer_info(pointer, &info) == FLAGOS_HAL_STATUS_OK && info.base == pointer)
    range.size = info.size;
  FLAGOS_HAL_TRY(addRange(kMember, range));
  *out_pointer = pointer;
  return FLAGOS_HAL_STATUS_OK;
}

flagos_hal_status Validator::ipc_close_memory(int32_t device, void* pointer) {
  constexpr Member kMember = Member::ipc_close_memory;
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  Range range;
  FLAGOS_HAL_TRY(takeRange(kMember, kImportedBook, device, pointer, &range));
  const flagos_hal_status status = returned(kMember, library_.ipc.close_memory(device, pointer));
  if (status != FLAGOS_HAL_STATUS_OK) putBack(range);
  return status;
}

flagos_hal_status Validator::ipc_export_event(flagos_hal_event* event, flagos_hal_ipc_handle* out_handle) {
  constexpr Member kMember = Member::ipc_export_event;
  std::shared_ptr<EventState> state;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_handle, "out_handle"));
  FLAGOS_HAL_TRY(checkEvent(kMember, event, &state));
  if ((state->flags & FLAGOS_HAL_EVENT_INTERPROCESS) == 0) {
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_STATE, "HAL-IPC-04",
                     "the event was made without FLAGOS_HAL_EVENT_INTERPROCESS");
  }
  return returned(kMember, library_.ipc.export_event(event, out_handle));
}

flagos_hal_status Validator::ipc_import_event(int32_t device, const flagos_hal_ipc_handle* handle,
                                              flagos_hal_event** out_event) {
  constexpr Member kMember = Member::ipc_import_event;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_event, "out_event"));
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  FLAGOS_HAL_TRY(checkIpcHandle(kMember, handle));
  flagos_hal_event* event = nullptr;
  FLAGOS_HAL_TRY(returned(kMember, library_.ipc.import_event(device, handle, &event)));
  if (!event) return libraryFault(kMember, "HAL-IPC-05", "it answered OK and a null event");
  auto state = std::make_shared<EventState>();
  state->device = device;
  state->flags = FLAGOS_HAL_EVENT_INTERPROCESS;
  {
    Lock lock(mutex_);
    events_.add(event, std::move(state));
  }
  *out_event = event;
  return FLAGOS_HAL_STATUS_OK;
}

flagos_hal_status Validator::graph_begin_capture(flagos_hal_stream* stream, int32_t mode) {
  constexpr Member kMember = Member::graph_begin_capture;
  std::shared_ptr<StreamState> state;
  FLAGOS_HAL_TRY(checkStream(kMember, stream, &state));
  if (mode < FLAGOS_HAL_CAPTURE_GLOBAL || mode > FLAGOS_HAL_CAPTURE_RELAXED) {
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "GEN-10",
                     "%d is not a flagos_hal_capture_mode", mode);
  }
  if (state->is_default) {
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "HAL-GRF-01",
                     "the default stream cannot be captured");
  }
  if (state->capturing.load(std::memory_order_acquire)) {
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_STATE, "HAL-GRF-01",
                     "the stream is being captured already");
  }
  Queueing queueing(*state, false);
  if (queueing.conflict()) return refuseConcurrent(kMember);
  const flagos_hal_status status = returned(kMember, library_.graph.begin_capture(stream, mode));
  if (status != FLAGOS_HAL_STATUS_OK) return status;
  state->capturing.store(true, std::memory_order_release);
  captures_.fetch_add(1, std::memory_order_release);
  return status;
}

flagos_hal_status Validator::graph_end_capture(flagos_hal_stream* stream, flagos_hal_graph** out_graph) {
  constexpr Member kMember = Member::graph_end_capture;
  std::shared_ptr<StreamState> state;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_graph, "out_graph"));
  FLAGOS_HAL_TRY(checkStream(kMember, stream, &state));
  Queueing queueing(*state, false);
  if (queueing.conflict()) return refuseConcurrent(kMember);
  flagos_hal_graph* graph = nullptr;
  const flagos_hal_status status = returned(kMember, library_.graph.end_capture(stream, &graph));
  // After CAPTURE the stream is usable again; after any other failure the library knows better than this
  // layer.
  const bool ended = status == FLAGOS_HAL_STATUS_OK || status == FLAGOS_HAL_STATUS_CAPTURE;
  if (ended && state->capturing.exchange(false)) captures_.fetch_sub(1, std::memory_order_release);
  if (status != FLAGOS_HAL_STATUS_OK) return status;
  if (!graph) return libraryFault(kMember, "HAL-GRF-02", "it answered OK and a null graph");
  auto graph_state = std::make_shared<GraphState>();
  graph_state->device = state->device;
  {
    Lock lock(mutex_);
    graphs_.add(graph, std::move(graph_state));
  }
  *out_graph = graph;
  return status;
}

flagos_hal_status Validator::graph_is_capturing(flagos_hal_stream* stream, int32_t* out_yes) {
  constexpr Member kMember = Member::graph_is_capturing;
  std::shared_ptr<StreamState> state;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_yes, "out_yes"));
  FLAGOS_HAL_TRY(checkStream(kMember, stream, &state));
  return returned(kMember, library_.graph.is_capturing(stream, out_yes));
}

flagos_hal_status Validator::graph_launch(flagos_hal_graph* graph, flagos_hal_stream* stream) {
  constexpr Member kMember = Member::graph_launch;
  std::shared_ptr<GraphState> graph_state;
  std::shared_ptr<StreamState> state;
  FLAGOS_HAL_TRY(checkGraph(kMember, graph, &graph_state));
  FLAGOS_HAL_TRY(checkStream(kMember, stream, &state));
  if (graph_state->device != state->device) {
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "HAL-GRF-04",
                     "the graph was captured on device %d, the stream is of device %d", graph_state->device,
                     state->device);
  }
  Queueing queueing(*state, false);
  if (queueing.conflict()) return refuseConcurrent(kMember);
  return returned(kMember, library_.graph.launch(graph, stream));
}

flagos_hal_status Validator::graph_destroy(flagos_hal_graph* graph) {
  constexpr Member kMember = Member::graph_destroy;
  std::shared_ptr<GraphState> state;
  FLAGOS_HAL_TRY(checkGraph(kMember, graph, &state));
  {
    Lock lock(mutex_);
    graphs_.remove(graph);
  }
  const flagos_hal_status status = returned(kMember, library_.graph.destroy(graph));
  if (status != FLAGOS_HAL_STATUS_OK) {
    Lock lock(mutex_);
    graphs_.add(graph, std::move(state));
  }
  return status;
}

flagos_hal_status Validator::graph_exchange_thread_mode(int32_t* inout_mode) {
  constexpr Member kMember = Member::graph_exchange_thread_mode;
  FLAGOS_HAL_TRY(checkOutput(kMember, inout_mode, "inout_mode"));
  if (*inout_mode < FLAGOS_HAL_CAPTURE_GLOBAL || *inout_mode > FLAGOS_HAL_CAPTURE_RELAXED) {
    return violation(kMember, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "GEN-10",
                     "%d is not a flagos_hal_capture_mode", *inout_mode);
  }
  return returned(kMember, library_.graph.exchange_thread_mode(inout_mode));
}

flagos_hal_status Validator::trace_start(void (*sink)(void*, const flagos_hal_activity*), void* context) {
  constexpr Member kMember = Member::trace_start;
  if (!sink) return violation(kMember, FLAGOS_HAL_STATUS_INVALID_ARGUMENT, "HAL-TRC-01", "the sink is null");
  return returned(kMember, library_.trace.start(sink, context));
}

flagos_hal_status Validator::trace_stop() { return returned(Member::trace_stop, library_.trace.stop()); }

flagos_hal_status Validator::trace_now(int64_t* out_ns) {
  constexpr Member kMember = Member::trace_now;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_ns, "out_ns"));
  return returned(kMember, library_.trace.now(out_ns));
}

flagos_hal_status Validator::trace_exchange_correlation(uint64_t* inout_correlation) {
  constexpr Member kMember = Member::trace_exchange_correlation;
  FLAGOS_HAL_TRY(checkOutput(kMember, inout_correlation, "inout_correlation"));
  return returned(kMember, library_.trace.exchange_correlation(inout_correlation));
}

flagos_hal_status Validator::async_alloc_allocate_async(flagos_hal_stream* stream, uint64_t size,
                                                        void** out_pointer) {
  constexpr Member kMember = Member::async_alloc_allocate_async;
  std::shared_ptr<StreamState> state;
  FLAGOS_HAL_TRY(checkOutput(kMember, out_pointer, "out_pointer"));
  FLAGOS_HAL_TRY(checkStream(kMember, stream, &state));
  Queueing queueing(*state, false);
  if (queueing.conflict()) return refuseConcurrent(kMember);
  void* pointer = nullptr;
  FLAGOS_HAL_TRY(returned(kMember, library_.async_alloc.allocate_async(stream, size, &pointer)));
  if (size != 0) {
    if (!pointer)
      return libraryFault(kMember, "HAL-ASY-01", "it answered OK and null for %" PRIu64 " bytes", size);
    FLAGOS_HAL_TRY(addRange(
        kMember, {reinterpret_cast<uintptr_t>(pointer), size, state->device, Range::Origin::AllocatedAsync}));
  }
  *out_pointer = pointer;
  return FLAGOS_HAL_STATUS_OK;
}

flagos_hal_status Validator::async_alloc_release_async(flagos_hal_stream* stream, void* pointer) {
  constexpr Member kMember = Member::async_alloc_release_async;
  std::shared_ptr<StreamState> state;
  FLAGOS_HAL_TRY(checkStream(kMember, stream, &state));
  Queueing queueing(*state, false);
  if (queueing.conflict()) return refuseConcurrent(kMember);
  if (!pointer) return returned(kMember, library_.async_alloc.release_async(stream, nullptr));
  Range range;
  FLAGOS_HAL_TRY(takeRange(kMember, kDeviceBook, state->device, pointer, &range));
  const flagos_hal_status status = returned(kMember, library_.async_alloc.release_async(stream, pointer));
  if (status != FLAGOS_HAL_STATUS_OK) putBack(range);
  return status;
}

flagos_hal_status Validator::async_alloc_trim(int32_t device, uint64_t keep) {
  constexpr Member kMember = Member::async_alloc_trim;
  FLAGOS_HAL_TRY(checkDevice(kMember, device));
  return returned(kMember, library_.async_alloc.trim(device, keep));
}

}  // namespace flagos::hal
