/* The reference HAL with one mistake, for the optional groups that minimal_hal.c does not have: loads the
 * library named by -DWRAPPED, hands out its tables and puts a wrong function in one place of them, chosen by
 * BREAK_<NAME>. The conformance kit must find each (test_kit_finds_mistakes.py). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "flagos/hal.h"

#define OK FLAGOS_HAL_STATUS_OK

static const flagos_hal_api* real;
static flagos_hal_api api;
static flagos_hal_memory_api memory;
static flagos_hal_stream_api stream;
static flagos_hal_host_api host;
static flagos_hal_peer_api peer;
static flagos_hal_ipc_api ipc;
static flagos_hal_graph_api graph;
static flagos_hal_trace_api trace;
static flagos_hal_async_alloc_api async_alloc;

/* Each mistake is a function and the place it is put in. */
#if defined(BREAK_HOST_ZERO)
static flagos_hal_status wrong(uint64_t size, void** out) {
  return real->host->allocate(size ? size : 1, out);
}
#define PUT host.allocate = wrong
#elif defined(BREAK_HOST_NOT_PINNED)
static flagos_hal_status wrong(const void* pointer, flagos_hal_pointer_info* out) {
  const flagos_hal_status status = real->memory->pointer_info(pointer, out);
  if (status == OK && out->kind == FLAGOS_HAL_MEMORY_PINNED) out->kind = FLAGOS_HAL_MEMORY_UNKNOWN;
  return status;
}
#define PUT memory.pointer_info = wrong
#elif defined(BREAK_HOST_NO_LIMIT)
static flagos_hal_status wrong(uint64_t size, void** out) {
  return real->host->allocate(size > (uint64_t)1 << 60 ? 4096 : size, out);
}
#define PUT host.allocate = wrong
#elif defined(BREAK_HOST_RELEASE_ANYTHING)
static flagos_hal_status wrong(void* pointer) {
  real->host->release(pointer);
  return OK;
}
#define PUT host.release = wrong
#elif defined(BREAK_HOST_RELEASE_NULL)
static flagos_hal_status wrong(void* pointer) {
  return pointer ? real->host->release(pointer) : FLAGOS_HAL_STATUS_INVALID_HANDLE;
}
#define PUT host.release = wrong
#elif defined(BREAK_REGISTER_OVERLAP)
static flagos_hal_status wrong(void* pointer, uint64_t size) {
  const flagos_hal_status status = real->host->register_range(pointer, size);
  return status == FLAGOS_HAL_STATUS_INVALID_STATE ? OK : status;
}
#define PUT host.register_range = wrong
#elif defined(BREAK_REGISTER_NOTHING)
static flagos_hal_status wrong(void* pointer, uint64_t size) {
  return size ? real->host->register_range(pointer, size) : OK;
}
#define PUT host.register_range = wrong
#elif defined(BREAK_UNREGISTER_KEEPS)
static flagos_hal_status wrong(void* pointer) {
  (void)pointer;
  return OK;
}
#define PUT host.unregister_range = wrong
#elif defined(BREAK_PEER_ITSELF)
static flagos_hal_status wrong(int32_t device, int32_t other, int32_t* out) {
  const flagos_hal_status status = real->peer->can_access(device, other, out);
  if (status == OK && device == other) *out = 1;
  return status;
}
#define PUT peer.can_access = wrong
#elif defined(BREAK_PEER_ENABLE_ITSELF)
static flagos_hal_status wrong(int32_t device, int32_t other) {
  return device == other ? OK : real->peer->enable(device, other);
}
#define PUT peer.enable = wrong
#elif defined(BREAK_PEER_DISABLE_STRICT)
static flagos_hal_status wrong(int32_t device, int32_t other) {
  static int enabled;
  const flagos_hal_status status = real->peer->disable(device, other);
  return status == OK && !enabled++ ? FLAGOS_HAL_STATUS_INVALID_STATE : status;
}
#define PUT peer.disable = wrong
#elif defined(BREAK_PEER_COPY_SHORT)
static flagos_hal_status wrong(flagos_hal_stream* on, int32_t to, void* target, int32_t from,
                               const void* source, uint64_t size) {
  return real->peer->copy_async(on, to, target, from, source, size & ~(uint64_t)1);
}
#define PUT peer.copy_async = wrong
#elif defined(BREAK_PEER_COPY_WAITS)
static flagos_hal_status wrong(flagos_hal_stream* on, int32_t to, void* target, int32_t from,
                               const void* source, uint64_t size) {
  const flagos_hal_status status = real->peer->copy_async(on, to, target, from, source, size);
  return status == OK ? real->stream->synchronize(on) : status;
}
#define PUT peer.copy_async = wrong
#elif defined(BREAK_PEER_COPY_UNORDERED)
static flagos_hal_status wrong(flagos_hal_stream* on, int32_t to, void* target, int32_t from,
                               const void* source, uint64_t size) {
  flagos_hal_stream* other;
  (void)on;
  if (real->stream->default_stream(to, &other) != OK) return FLAGOS_HAL_STATUS_UNKNOWN;
  return real->peer->copy_async(other, to, target, from, source, size);
}
#define PUT peer.copy_async = wrong
#elif defined(BREAK_EXPORT_INTERIOR)
static flagos_hal_status wrong(int32_t device, void* pointer, flagos_hal_ipc_handle* out) {
  return real->ipc->export_memory(device, (void*)((uintptr_t)pointer & ~(uintptr_t)255), out);
}
#define PUT ipc.export_memory = wrong
#elif defined(BREAK_IMPORT_COPIES)
static flagos_hal_status wrong(int32_t device, const flagos_hal_ipc_handle* handle, void** out) {
  void* mapped;
  const flagos_hal_status status = real->ipc->import_memory(device, handle, &mapped);
  if (status != OK) return status;
  real->memory->allocate(device, 4096, out);
  real->memory->copy(device, *out, mapped, 4096, FLAGOS_HAL_COPY_DEVICE_TO_DEVICE);
  return real->ipc->close_memory(device, mapped);
}
#define PUT ipc.import_memory = wrong
#elif defined(BREAK_CLOSE_ANYTHING)
static flagos_hal_status wrong(int32_t device, void* pointer) {
  const flagos_hal_status status = real->ipc->close_memory(device, pointer);
  return status == FLAGOS_HAL_STATUS_INVALID_HANDLE ? OK : status;
}
#define PUT ipc.close_memory = wrong
#elif defined(BREAK_CAPTURE_RUNS)
static flagos_hal_status wrong(flagos_hal_stream* on, void* target, int32_t value, uint64_t size) {
  flagos_hal_stream* other;
  int32_t device, capturing = 0;
  real->graph->is_capturing(on, &capturing);
  if (capturing && real->stream->device(on, &device) == OK &&
      real->stream->default_stream(device, &other) == OK) {
    real->memory->fill_async(other, target, value, size);
    real->stream->synchronize(other);
  }
  return real->memory->fill_async(on, target, value, size);
}
#define PUT memory.fill_async = wrong
#elif defined(BREAK_CAPTURE_ANY_MODE)
static flagos_hal_status wrong(flagos_hal_stream* on, int32_t mode) {
  return real->graph->begin_capture(on, mode < 0 || mode > 2 ? FLAGOS_HAL_CAPTURE_RELAXED : mode);
}
#define PUT graph.begin_capture = wrong
#elif defined(BREAK_CAPTURE_TWICE)
static flagos_hal_status wrong(flagos_hal_stream* on, int32_t mode) {
  const flagos_hal_status status = real->graph->begin_capture(on, mode);
  return status == FLAGOS_HAL_STATUS_INVALID_STATE ? OK : status;
}
#define PUT graph.begin_capture = wrong
#elif defined(BREAK_END_WITHOUT_CAPTURE)
static flagos_hal_status wrong(flagos_hal_stream* on, flagos_hal_graph** out) {
  const flagos_hal_status status = real->graph->end_capture(on, out);
  return status == FLAGOS_HAL_STATUS_INVALID_STATE ? OK : status;
}
#define PUT graph.end_capture = wrong
#elif defined(BREAK_CAPTURE_SURVIVES)
static flagos_hal_status wrong(flagos_hal_stream* on) {
  int32_t capturing = 0;
  real->graph->is_capturing(on, &capturing);
  return capturing ? OK : real->stream->synchronize(on);
}
#define PUT stream.synchronize = wrong
#elif defined(BREAK_NEVER_CAPTURING)
static flagos_hal_status wrong(flagos_hal_stream* on, int32_t* out) {
  const flagos_hal_status status = real->graph->is_capturing(on, out);
  if (status == OK) *out = 0;
  return status;
}
#define PUT graph.is_capturing = wrong
#elif defined(BREAK_LAUNCH_ONCE)
static flagos_hal_status wrong(flagos_hal_graph* what, flagos_hal_stream* on) {
  static flagos_hal_graph* before;
  if (what && what == before) return OK;
  before = what;
  return real->graph->launch(what, on);
}
#define PUT graph.launch = wrong
#elif defined(BREAK_LAUNCH_WAITS)
static flagos_hal_status wrong(flagos_hal_graph* what, flagos_hal_stream* on) {
  const flagos_hal_status status = real->graph->launch(what, on);
  return status == OK ? real->stream->synchronize(on) : status;
}
#define PUT graph.launch = wrong
#elif defined(BREAK_GRAPH_DESTROY_WAITS)
static flagos_hal_status wrong(flagos_hal_graph* what) {
  if (what) real->device->synchronize(0);
  return real->graph->destroy(what);
}
#define PUT graph.destroy = wrong
#elif defined(BREAK_EXCHANGE_FORGETS)
static flagos_hal_status wrong(int32_t* mode) {
  int32_t wanted = mode ? *mode : 0;
  return real->graph->exchange_thread_mode(mode ? &wanted : NULL);
}
#define PUT graph.exchange_thread_mode = wrong
#elif defined(BREAK_TRACE_TWICE)
static flagos_hal_status wrong(void (*sink)(void*, const flagos_hal_activity*), void* context) {
  const flagos_hal_status status = real->trace->start(sink, context);
  return status == FLAGOS_HAL_STATUS_INVALID_STATE ? OK : status;
}
#define PUT trace.start = wrong
#elif defined(BREAK_TRACE_CONTEXT)
static flagos_hal_status wrong(void (*sink)(void*, const flagos_hal_activity*), void* context) {
  (void)context;
  return real->trace->start(sink, NULL);
}
#define PUT trace.start = wrong
#elif defined(BREAK_TRACE_GOES_ON)
static flagos_hal_status wrong(void) { return OK; }
#define PUT trace.stop = wrong
#elif defined(BREAK_TRACE_CLOCK)
static flagos_hal_status wrong(int64_t* out) {
  const flagos_hal_status status = real->trace->now(out);
  if (status == OK) *out /= 1000;
  return status;
}
#define PUT trace.now = wrong
#elif defined(BREAK_NO_CORRELATION)
static flagos_hal_status wrong(uint64_t* inout) {
  static __thread uint64_t kept;
  const uint64_t before = kept;
  if (!inout) return real->trace->exchange_correlation(inout);
  kept = *inout;
  *inout = before;
  return OK;
}
#define PUT trace.exchange_correlation = wrong
#elif defined(BREAK_CORRELATION_SHARED)
static flagos_hal_status wrong(uint64_t* inout) {
  static uint64_t kept;
  uint64_t before;
  if (!inout) return real->trace->exchange_correlation(inout);
  before = kept;
  kept = *inout;
  real->trace->exchange_correlation(inout);
  *inout = before;
  return OK;
}
#define PUT trace.exchange_correlation = wrong
#elif defined(BREAK_ASYNC_ZERO)
static flagos_hal_status wrong(flagos_hal_stream* on, uint64_t size, void** out) {
  return real->async_alloc->allocate_async(on, size ? size : 1, out);
}
#define PUT async_alloc.allocate_async = wrong
#elif defined(BREAK_ASYNC_NO_LIMIT)
static flagos_hal_status wrong(flagos_hal_stream* on, uint64_t size, void** out) {
  return real->async_alloc->allocate_async(on, size > (uint64_t)1 << 31 ? 4096 : size, out);
}
#define PUT async_alloc.allocate_async = wrong
#elif defined(BREAK_RELEASE_ASYNC_WAITS)
static flagos_hal_status wrong(flagos_hal_stream* on, void* pointer) {
  const flagos_hal_status status = real->async_alloc->release_async(on, pointer);
  return status == OK ? real->stream->synchronize(on) : status;
}
#define PUT async_alloc.release_async = wrong
#elif defined(BREAK_RELEASE_ASYNC_LEAKS)
static flagos_hal_status wrong(flagos_hal_stream* on, void* pointer) {
  return pointer ? real->stream->query(on) == FLAGOS_HAL_STATUS_INVALID_HANDLE
                       ? FLAGOS_HAL_STATUS_INVALID_HANDLE
                       : OK
                 : real->async_alloc->release_async(on, pointer);
}
#define PUT async_alloc.release_async = wrong
#else
#define PUT (void)0
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;
static flagos_hal_status answer;

static void wrap(void) {
  void* library = dlopen(WRAPPED, RTLD_NOW | RTLD_LOCAL);
  flagos_hal_query_fn query;
  void* symbol = library ? dlsym(library, FLAGOS_HAL_QUERY_SYMBOL) : NULL;
  if (!symbol) abort();
  memcpy(&query, &symbol, sizeof(query));
  answer = query(FLAGOS_HAL_ABI_MAJOR, FLAGOS_HAL_ABI_MINOR, &real);
  if (answer != OK) return;
  api = *real;
#define GROUP(name)     \
  if (real->name) {     \
    name = *real->name; \
    api.name = &name;   \
  }
  GROUP(memory)
  GROUP(stream)
  GROUP(host)
  GROUP(peer)
  GROUP(ipc)
  GROUP(graph)
  GROUP(trace)
  GROUP(async_alloc)
  PUT;
}

FLAGOS_HAL_EXPORT flagos_hal_status flagos_hal_query(uint32_t core_major, uint32_t core_minor,
                                                     const flagos_hal_api** out_api) {
  (void)core_minor;
  if (!out_api) return FLAGOS_HAL_STATUS_INVALID_ARGUMENT;
  pthread_once(&once, wrap);
  *out_api = answer == OK ? &api : NULL;
  return core_major == FLAGOS_HAL_ABI_MAJOR ? answer : FLAGOS_HAL_STATUS_ABI_MISMATCH;
}
