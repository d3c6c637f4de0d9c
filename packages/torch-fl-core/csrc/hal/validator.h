// The validating layer (FLAGOS_HAL_VALIDATE): one function around each of the library's, which checks what
// hal.h asks of the caller, and what it asks of the library as far as one call shows it.
//
// A violation is not passed on: it is answered with the status that hal.h names, with a last error that
// starts with the id of the rule
// ("HAL-MEM-02: …"), counted, and written to standard error unless switched off.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "csrc/hal/fork_watch.h"
#include "csrc/hal/instance.h"
#include "csrc/hal/members.h"
#include "csrc/hal/validator_state.h"

namespace flagos::hal {

class Validator {
 public:
  Validator(Instance& instance, bool log);
  ~Validator();

  uint64_t violations() const noexcept { return violations_.load(std::memory_order_relaxed); }

  // What every function does first. True: go on and check. False: `*answer` is the answer.
  bool enter(Member member, flagos_hal_status* answer) noexcept;
  void leave() noexcept { in_progress_.fetch_sub(1, std::memory_order_relaxed); }
  // In a forked child after init the library is asked directly (GEN-04): what this layer knows may be half
  // written.
  bool inForkedChild() const noexcept;

  // One per member of the tables, named <group>_<member>; parameters as there.
  flagos_hal_status system_init();
  flagos_hal_status system_shutdown();
  flagos_hal_status system_info(flagos_hal_info* out_info);
  flagos_hal_status system_last_error(flagos_hal_error* out_error);
  flagos_hal_status system_capability(int32_t capability, int64_t* out_value);
  flagos_hal_status device_count(int32_t* out_count);
  flagos_hal_status device_set_current(int32_t device);
  flagos_hal_status device_get_current(int32_t* out_device);
  flagos_hal_status device_properties(int32_t device, flagos_hal_device_properties* out_properties);
  flagos_hal_status device_memory_info(int32_t device, uint64_t* out_free, uint64_t* out_total);
  flagos_hal_status device_synchronize(int32_t device);
  flagos_hal_status device_health(int32_t device);
  flagos_hal_status memory_allocate(int32_t device, uint64_t size, void** out_pointer);
  flagos_hal_status memory_release(int32_t device, void* pointer);
  flagos_hal_status memory_copy(int32_t device, void* destination, const void* source, uint64_t size,
                                int32_t kind);
  flagos_hal_status memory_copy_async(flagos_hal_stream* stream, void* destination, const void* source,
                                      uint64_t size, int32_t kind);
  flagos_hal_status memory_fill(int32_t device, void* destination, int32_t value, uint64_t size);
  flagos_hal_status memory_fill_async(flagos_hal_stream* stream, void* destination, int32_t value,
                                      uint64_t size);
  flagos_hal_status memory_pointer_info(const void* pointer, flagos_hal_pointer_info* out_info);
  flagos_hal_status stream_create(int32_t device, const flagos_hal_stream_options* options,
                                  flagos_hal_stream** out_stream);
  flagos_hal_status stream_destroy(flagos_hal_stream* stream);
  flagos_hal_status stream_default_stream(int32_t device, flagos_hal_stream** out_stream);
  flagos_hal_status stream_priority_range(int32_t device, int32_t* out_least, int32_t* out_greatest);
  flagos_hal_status stream_query(flagos_hal_stream* stream);
  flagos_hal_status stream_synchronize(flagos_hal_stream* stream);
  flagos_hal_status stream_wait_event(flagos_hal_stream* stream, flagos_hal_event* event);
  flagos_hal_status stream_native_handle(flagos_hal_stream* stream, void** out_handle);
  flagos_hal_status stream_device(flagos_hal_stream* stream, int32_t* out_device);
  flagos_hal_status stream_host_callback(flagos_hal_stream* stream, void (*function)(void*), void* argument);
  flagos_hal_status event_create(int32_t device, uint32_t flags, flagos_hal_event** out_event);
  flagos_hal_status event_destroy(flagos_hal_event* event);
  flagos_hal_status event_record(flagos_hal_event* event, flagos_hal_stream* stream);
  flagos_hal_status event_query(flagos_hal_event* event);
  flagos_hal_status event_synchronize(flagos_hal_event* event);
  flagos_hal_status event_elapsed(flagos_hal_event* start, flagos_hal_event* end, double* out_ms);
  flagos_hal_status host_allocate(uint64_t size, void** out_pointer);
  flagos_hal_status host_release(void* pointer);
  flagos_hal_status host_register_range(void* pointer, uint64_t size);
  flagos_hal_status host_unregister_range(void* pointer);
  flagos_hal_status host_begin_access(int32_t device, void* pointer, uint64_t size, uint32_t access);
  flagos_hal_status host_end_access(int32_t device, void* pointer, uint64_t size, uint32_t access);
  flagos_hal_status peer_can_access(int32_t device, int32_t peer, int32_t* out_yes);
  flagos_hal_status peer_enable(int32_t device, int32_t peer);
  flagos_hal_status peer_disable(int32_t device, int32_t peer);
  flagos_hal_status peer_copy_async(flagos_hal_stream* stream, int32_t destination_device, void* destination,
                                    int32_t source_device, const void* source, uint64_t size);
  flagos_hal_status ipc_export_memory(int32_t device, void* pointer, flagos_hal_ipc_handle* out_handle);
  flagos_hal_status ipc_import_memory(int32_t device, const flagos_hal_ipc_handle* handle,
                                      void** out_pointer);
  flagos_hal_status ipc_close_memory(int32_t device, void* pointer);
  flagos_hal_status ipc_export_event(flagos_hal_event* event, flagos_hal_ipc_handle* out_handle);
  flagos_hal_status ipc_import_event(int32_t device, const flagos_hal_ipc_handle* handle,
                                     flagos_hal_event** out_event);
  flagos_hal_status graph_begin_capture(flagos_hal_stream* stream, int32_t mode);
  flagos_hal_status graph_end_capture(flagos_hal_stream* stream, flagos_hal_graph** out_graph);
  flagos_hal_status graph_is_capturing(flagos_hal_stream* stream, int32_t* out_yes);
  flagos_hal_status graph_launch(flagos_hal_graph* graph, flagos_hal_stream* stream);
  flagos_hal_status graph_destroy(flagos_hal_graph* graph);
  flagos_hal_status graph_exchange_thread_mode(int32_t* inout_mode);
  flagos_hal_status trace_start(void (*sink)(void*, const flagos_hal_activity*), void* context);
  flagos_hal_status trace_stop();
  flagos_hal_status trace_now(int64_t* out_ns);
  flagos_hal_status trace_exchange_correlation(uint64_t* inout_correlation);
  flagos_hal_status async_alloc_allocate_async(flagos_hal_stream* stream, uint64_t size, void** out_pointer);
  flagos_hal_status async_alloc_release_async(flagos_hal_stream* stream, void* pointer);
  flagos_hal_status async_alloc_trim(int32_t device, uint64_t keep);

 private:
  enum class Phase { Fresh, Ready, Stopped };
  class Queueing;
  class Lock;
  struct CallbackCall;

  // Reports what the caller did wrong; returns `status`.
  __attribute__((format(printf, 5, 6))) flagos_hal_status violation(Member member, flagos_hal_status status,
                                                                    const char* rule, const char* format,
                                                                    ...) noexcept;
  // Reports what the library did wrong; returns UNKNOWN.
  __attribute__((format(printf, 4, 5))) flagos_hal_status libraryFault(Member member, const char* rule,
                                                                       const char* format, ...) noexcept;
  void log(const char* text) noexcept;
  // Looks at a status that the library has just returned, and passes it on.
  flagos_hal_status returned(Member member, flagos_hal_status status) noexcept;

  // The checks. Each returns OK, or has reported.
  flagos_hal_status checkOutput(Member member, const void* out, const char* name) noexcept;
  template <typename Struct>
  flagos_hal_status checkSizedOutput(Member member, const Struct* out, const char* name) noexcept;
  flagos_hal_status checkDevice(Member member, int32_t device) noexcept;
  flagos_hal_status checkStream(Member member, const flagos_hal_stream* stream,
                                std::shared_ptr<StreamState>* out);
  flagos_hal_status checkEvent(Member member, const flagos_hal_event* event,
                               std::shared_ptr<EventState>* out);
  flagos_hal_status checkGraph(Member member, const flagos_hal_graph* graph,
                               std::shared_ptr<GraphState>* out);
  flagos_hal_status checkFlags(Member member, const char* name, uint32_t flags, uint32_t known) noexcept;
  flagos_hal_status checkDeviceMemory(Member member, const char* name, int32_t device, const void* pointer,
                                      uint64_t size);
  flagos_hal_status checkHostMemory(Member member, const char* name, const void* pointer, uint64_t size);
  flagos_hal_status checkCopy(Member member, int32_t device, const void* destination, const void* source,
                              uint64_t size, int32_t kind);
  flagos_hal_status checkFill(Member member, int32_t device, const void* destination, int32_t value,
                              uint64_t size);
  flagos_hal_status checkIpcHandle(Member member, const flagos_hal_ipc_handle* handle) noexcept;
  // The live range of `book` that starts at `pointer` (and is `device`'s; −1: any), removed from the book.
  flagos_hal_status takeRange(Member member, Book book, int32_t device, const void* pointer, Range* out);
  void putBack(const Range& range);
  // A live range of device memory around `pointer`. The mutex is held.
  const Range* deviceRangeAround(const void* pointer) const;
  flagos_hal_status addRange(Member member, const Range& range);
  flagos_hal_status refuseUnknownPointer(Member member, const char* name, const void* pointer,
                                         const char* what);
  flagos_hal_status refuseConcurrent(Member member) noexcept;
  void reportLeaks();

  Instance& instance_;
  const Tables& library_;
  const bool log_;
  std::atomic<uint64_t> violations_{0};
  std::atomic<Phase> phase_{Phase::Fresh};
  std::atomic<int64_t> in_progress_{0};
  std::atomic<uint32_t> init_generation_{0};  // forkGeneration at the first init; 0: none yet
  std::atomic<int32_t> device_count_{-1};     // −1: not known
  std::atomic<int64_t> host_access_{FLAGOS_HAL_HOST_ACCESS_NONE};
  std::atomic<int64_t> alignment_{1};
  std::atomic<int64_t> captures_{0};  // begun and not ended

  ForkSafeMutex mutex_;  // guards what follows; never held across a call of the library
  RangeMap ranges_[kBookCount];
  ReleasedRanges released_;
  HandleMap<flagos_hal_stream, StreamState> streams_;
  HandleMap<flagos_hal_event, EventState> events_;
  HandleMap<flagos_hal_graph, GraphState> graphs_;
  std::map<int32_t, const flagos_hal_stream*> default_streams_;
  std::vector<std::shared_ptr<CallbackCall>> captured_callbacks_;     // graphs may run them until shutdown
  std::multimap<uintptr_t, std::pair<uint64_t, uint32_t>> accesses_;  // host.begin_access without its end
};

}  // namespace flagos::hal
