/* A small conforming library over host memory, one device, synchronous, that makes one mistake at a time: the
 * test sets the exported variable `faulty_mode`. It is what the validating layer's eye on the library is
 * tested with. */
#define _POSIX_C_SOURCE 200112L
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "flagos/hal.h"

enum {
  CORRECT,
  ALLOCATE_NULL,
  ALLOCATE_MISALIGNED,
  ALLOCATE_OVERLAPS,
  ALLOCATE_NOT_READY,
  ALLOCATE_ODD_STATUS,
  FAIL_WITHOUT_DETAIL,
  FAIL_WITH_DETAIL,
  STREAM_NULL,
  DEFAULT_STREAM_MOVES,
  COUNT_CHANGES,
  FREE_ABOVE_TOTAL,
  RECORD_SLOWLY,
  COPY_SLOWLY
};

FLAGOS_HAL_EXPORT int faulty_mode = CORRECT;
FLAGOS_HAL_EXPORT int faulty_calls = 0; /* of copies, fills, records and releases: what reached the library */

static int mode(int wanted) { return faulty_mode == wanted; }
static flagos_hal_status last_status = FLAGOS_HAL_STATUS_OK;
static char memory_block[4096];
static size_t block_used = 0;
static char* last_given = NULL;

static void nap(void) {
  const struct timespec time = {0, 200 * 1000 * 1000};
  nanosleep(&time, NULL);
}

static flagos_hal_status ok(void) { return FLAGOS_HAL_STATUS_OK; }
static flagos_hal_status info(flagos_hal_info* out) {
  out->vendor = "faulty";
  out->library_version = out->sdk_version = out->driver_version = out->sdk_path = "";
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status last_error(flagos_hal_error* out) {
  out->status = last_status;
  out->reserved = 0;
  out->vendor_code = last_status == FLAGOS_HAL_STATUS_OK ? 0 : 42;
  out->vendor_name = last_status == FLAGOS_HAL_STATUS_OK ? "" : "faultyError";
  out->message = last_status == FLAGOS_HAL_STATUS_OK ? "" : "as asked";
  out->function = "";
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status capability(int32_t which, int64_t* out) {
  *out = which == FLAGOS_HAL_CAP_ALIGNMENT ? 64 : 0;
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status count(int32_t* out) {
  *out = mode(COUNT_CHANGES) ? 7 : 1;
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status device_ok(int32_t device) {
  (void)device;
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status get_current(int32_t* out) {
  *out = 0;
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status properties(int32_t device, flagos_hal_device_properties* out) {
  (void)device;
  (void)out;
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status memory_info(int32_t device, uint64_t* out_free, uint64_t* out_total) {
  (void)device;
  *out_total = 100;
  *out_free = mode(FREE_ABOVE_TOTAL) ? 101 : 50;
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status allocate(int32_t device, uint64_t size, void** out) {
  char* base = memory_block + (64 - (size_t)memory_block % 64) % 64;
  (void)device;
  if (mode(ALLOCATE_NOT_READY)) return FLAGOS_HAL_STATUS_NOT_READY;
  if (mode(ALLOCATE_ODD_STATUS)) return 4711;
  if (mode(FAIL_WITHOUT_DETAIL)) return FLAGOS_HAL_STATUS_OUT_OF_MEMORY;
  if (mode(FAIL_WITH_DETAIL)) return last_status = FLAGOS_HAL_STATUS_OUT_OF_MEMORY;
  if (mode(ALLOCATE_NULL) || size == 0) {
    *out = NULL;
  } else if (mode(ALLOCATE_OVERLAPS)) {
    *out = last_given;
  } else {
    *out = last_given = base + block_used + (mode(ALLOCATE_MISALIGNED) ? 8 : 0);
    block_used = (block_used + size + 63) / 64 * 64;
    if (block_used > 3072) block_used = 0;
  }
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status release(int32_t device, void* pointer) {
  (void)device;
  (void)pointer;
  ++faulty_calls;
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status copy(int32_t device, void* to, const void* from, uint64_t size, int32_t kind) {
  (void)device;
  (void)kind;
  ++faulty_calls;
  if (size) memcpy(to, from, (size_t)size);
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status copy_async(flagos_hal_stream* stream, void* to, const void* from, uint64_t size,
                                    int32_t kind) {
  (void)stream;
  if (mode(COPY_SLOWLY)) nap();
  return copy(0, to, from, size, kind);
}
static flagos_hal_status fill(int32_t device, void* to, int32_t value, uint64_t size) {
  (void)device;
  ++faulty_calls;
  if (size) memset(to, value, (size_t)size);
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status fill_async(flagos_hal_stream* stream, void* to, int32_t value, uint64_t size) {
  (void)stream;
  return fill(0, to, value, size);
}
static flagos_hal_status pointer_info(const void* pointer, flagos_hal_pointer_info* out) {
  (void)pointer;
  out->kind = FLAGOS_HAL_MEMORY_UNKNOWN;
  out->device = -1;
  out->base = NULL;
  out->size = 0;
  return FLAGOS_HAL_STATUS_OK;
}

static char default_streams[2];
static flagos_hal_status create_stream(int32_t device, const flagos_hal_stream_options* options,
                                       flagos_hal_stream** out) {
  (void)device;
  (void)options;
  *out = mode(STREAM_NULL) ? NULL : (flagos_hal_stream*)malloc(8);
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status destroy_stream(flagos_hal_stream* stream) {
  free(stream);
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status default_stream(int32_t device, flagos_hal_stream** out) {
  (void)device;
  *out = (flagos_hal_stream*)&default_streams[mode(DEFAULT_STREAM_MOVES)];
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status priority_range(int32_t device, int32_t* least, int32_t* greatest) {
  (void)device;
  *least = *greatest = 0;
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status stream_ok(flagos_hal_stream* stream) {
  (void)stream;
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status wait_event(flagos_hal_stream* stream, flagos_hal_event* event) {
  (void)stream;
  (void)event;
  ++faulty_calls;
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status native_handle(flagos_hal_stream* stream, void** out) {
  *out = stream;
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status stream_device(flagos_hal_stream* stream, int32_t* out) {
  (void)stream;
  *out = 0;
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status host_callback(flagos_hal_stream* stream, void (*function)(void*), void* argument) {
  (void)stream;
  function(argument);
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status create_event(int32_t device, uint32_t flags, flagos_hal_event** out) {
  (void)device;
  (void)flags;
  *out = (flagos_hal_event*)malloc(8);
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status destroy_event(flagos_hal_event* event) {
  free(event);
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status record(flagos_hal_event* event, flagos_hal_stream* stream) {
  (void)event;
  (void)stream;
  ++faulty_calls;
  if (mode(RECORD_SLOWLY)) nap();
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status event_ok(flagos_hal_event* event) {
  (void)event;
  return FLAGOS_HAL_STATUS_OK;
}
static flagos_hal_status elapsed(flagos_hal_event* start, flagos_hal_event* end, double* out) {
  (void)start;
  (void)end;
  *out = 0;
  return FLAGOS_HAL_STATUS_OK;
}

static const flagos_hal_system_api system_api = {
    sizeof(flagos_hal_system_api), ok, ok, info, last_error, capability};
static const flagos_hal_device_api device_api = {sizeof(flagos_hal_device_api),
                                                 count,
                                                 device_ok,
                                                 get_current,
                                                 properties,
                                                 memory_info,
                                                 device_ok,
                                                 device_ok};
static const flagos_hal_memory_api memory_api = {
    sizeof(flagos_hal_memory_api), allocate, release, copy, copy_async, fill, fill_async, pointer_info};
static const flagos_hal_stream_api stream_api = {sizeof(flagos_hal_stream_api),
                                                 create_stream,
                                                 destroy_stream,
                                                 default_stream,
                                                 priority_range,
                                                 stream_ok,
                                                 stream_ok,
                                                 wait_event,
                                                 native_handle,
                                                 stream_device,
                                                 host_callback};
static const flagos_hal_event_api event_api = {
    sizeof(flagos_hal_event_api), create_event, destroy_event, record, event_ok, event_ok, elapsed};
static const flagos_hal_api api = {sizeof(flagos_hal_api),
                                   FLAGOS_HAL_ABI_MAJOR,
                                   FLAGOS_HAL_ABI_MINOR,
                                   &system_api,
                                   &device_api,
                                   &memory_api,
                                   &stream_api,
                                   &event_api,
                                   NULL,
                                   NULL,
                                   NULL,
                                   NULL,
                                   NULL,
                                   NULL};

FLAGOS_HAL_EXPORT flagos_hal_status flagos_hal_query(uint32_t core_major, uint32_t core_minor,
                                                     const flagos_hal_api** out_api) {
  (void)core_minor;
  *out_api = &api;
  return core_major == FLAGOS_HAL_ABI_MAJOR ? FLAGOS_HAL_STATUS_OK : FLAGOS_HAL_STATUS_ABI_MISMATCH;
}
