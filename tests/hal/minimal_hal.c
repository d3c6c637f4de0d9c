/* The smallest library that conforms to hal.h: the required groups over host memory, nothing optional. It
 * shows that the conformance kit is not shaped around the reference backend, and it is what the kit is tested
 * with: every BREAK_<NAME> makes one mistake that the kit must find (test_kit_catches_mistakes.py lists them
 * with the requirement that each violates).
 *
 * Default: synchronous streams. -DASYNC: a worker thread per stream, and stream.host_callback. -DMANAGED: the
 * host sees device memory between host.begin_access and host.end_access only, as on a chip with caches of its
 * own. -DNO_RUNTIME: init finds no runtime. -DCRASHES, -DHANGS: device.synchronize does. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "flagos/hal.h"

#define DEVICES 2
#define CAPACITY ((uint64_t)256 << 20)
#define ALIGNMENT 256
#define CHECK(call)                                      \
  do {                                                   \
    const flagos_hal_status status_ = (call);            \
    if (status_ != FLAGOS_HAL_STATUS_OK) return status_; \
  } while (0)

typedef struct Mark { /* one recording of an event; waiters keep it alive */
  int references, reached;
  double ms;
} Mark;

typedef struct Work {
  enum { COPY, FILL, RECORD, WAIT, CALL } kind;
  void* destination;
  const void* source;
  uint64_t size;
  int value;
  Mark* mark;
  void (*function)(void*);
  void* argument;
  struct Work* next;
} Work;

struct flagos_hal_stream {
  int32_t device;
  struct flagos_hal_stream* next;
  Work *first, *last;
  uint64_t queued, done;
  int stop;
  pthread_t worker;
};

struct flagos_hal_event {
  int32_t device;
  uint32_t flags;
  Mark* mark;
  struct flagos_hal_event* next;
};

typedef struct Block {
  int32_t device;
  char* pointer;
  char* shadow; /* MANAGED: what the device sees; `pointer` is then the host's view */
  uint64_t size;
  struct Block* next;
} Block;

/* Guarded by `lock`, save `ready` and `owner`, which a forked child reads while another thread's lock may be
 * held for ever. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static int ready;
static pid_t owner;
static Block* blocks;
static uint64_t used[DEVICES];
static flagos_hal_stream* streams;
static flagos_hal_stream defaults[DEVICES];
static flagos_hal_event* events;

#ifdef BREAK_SHARED_ERROR
#define PER_THREAD static
#else
#define PER_THREAD static __thread
#endif
PER_THREAD struct {
  flagos_hal_status status;
  const char* function;
  char message[200];
} last;
#ifdef BREAK_SHARED_CURRENT
static int32_t current;
#else
static __thread int32_t current;
#endif

static flagos_hal_status fail(const char* function, flagos_hal_status status, const char* format, ...) {
  va_list values;
  last.status = status;
  last.function = function;
#ifdef BREAK_WRONG_FUNCTION
  last.function = "system.init";
#endif
  va_start(values, format);
#ifndef BREAK_NO_MESSAGE
  vsnprintf(last.message, sizeof(last.message), format, values);
#endif
  va_end(values);
  return status;
}

#define FAIL(status, ...) fail(name, FLAGOS_HAL_STATUS_##status, __VA_ARGS__)
#define NEED(pointer) \
  if (!(pointer)) return FAIL(INVALID_ARGUMENT, "%s is null", #pointer)

static flagos_hal_status forked(const char* name) {
#ifndef BREAK_NO_FORK_CHECK
  if (owner != 0 && owner != getpid())
    return FAIL(FORKED, "process %d is a fork of %d, which had initialised the library", (int)getpid(),
                (int)owner);
#endif
  (void)name;
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status usable(const char* name) {
  CHECK(forked(name));
  if (!__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) return FAIL(NOT_INITIALIZED, "init has not succeeded");
  return FLAGOS_HAL_STATUS_OK;
}

static int dead(void) { /* releasing calls are then no-ops */
  return !__atomic_load_n(&ready, __ATOMIC_ACQUIRE) || (owner != 0 && owner != getpid());
}

static flagos_hal_status on_device(const char* name, int32_t device) {
  CHECK(usable(name));
#ifdef BREAK_MINUS_ONE
  if (device == -1) return FLAGOS_HAL_STATUS_OK;
#endif
#ifdef BREAK_DEVICE_BOUND
  if (device == DEVICES) return FLAGOS_HAL_STATUS_OK;
#endif
  if (device < 0 || device >= DEVICES) return FAIL(INVALID_DEVICE, "device %d of %d", device, DEVICES);
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status on_stream(const char* name, const flagos_hal_stream* stream) {
  const flagos_hal_stream* known;
  int found = stream >= defaults && stream < defaults + DEVICES;
  CHECK(usable(name));
#ifdef BREAK_NULL_STREAM
  if (!stream) return FAIL(INVALID_ARGUMENT, "the stream is null");
#endif
  pthread_mutex_lock(&lock);
  for (known = streams; known; known = known->next) found |= known == stream;
  pthread_mutex_unlock(&lock);
  if (!found) return FAIL(INVALID_HANDLE, "no stream %p", (const void*)stream);
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status on_event(const char* name, const flagos_hal_event* event) {
  const flagos_hal_event* known;
  int found = 0;
  CHECK(usable(name));
  pthread_mutex_lock(&lock);
  for (known = events; known; known = known->next) found |= known == event;
  pthread_mutex_unlock(&lock);
#ifdef BREAK_NULL_EVENT
  if (!event) return FLAGOS_HAL_STATUS_OK;
#endif
  if (!found) return FAIL(INVALID_HANDLE, "no event %p", (const void*)event);
  return FLAGOS_HAL_STATUS_OK;
}

/* ------------------------------------------------------------------------------------------------- queued
 * work ---- */

static double now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void drop(Mark* mark) { /* under the lock */
  if (mark && --mark->references == 0) free(mark);
}

/* Where the device keeps what `pointer` names: elsewhere under MANAGED, if it is device memory. */
static void* device_side(const void* pointer) {
#ifdef MANAGED
  const Block* block;
  pthread_mutex_lock(&lock);
  for (block = blocks; block; block = block->next) {
    if ((const char*)pointer >= block->pointer && (const char*)pointer < block->pointer + block->size) {
      pointer = block->shadow + ((const char*)pointer - block->pointer);
      break;
    }
  }
  pthread_mutex_unlock(&lock);
#endif
  return (void*)(uintptr_t)pointer;
}

static void perform(Work* work) {
  switch (work->kind) {
    case COPY:
      memmove(device_side(work->destination), device_side(work->source), work->size);
      break;
    case FILL:
      memset(device_side(work->destination), work->value, work->size);
      break;
    case RECORD:
      pthread_mutex_lock(&lock);
      work->mark->ms = now_ms();
      work->mark->reached = 1;
      drop(work->mark);
      pthread_cond_broadcast(&progress);
      pthread_mutex_unlock(&lock);
      break;
    case WAIT:
      pthread_mutex_lock(&lock);
#ifndef BREAK_WAIT_IGNORED
      while (!work->mark->reached) pthread_cond_wait(&progress, &lock);
#endif
      drop(work->mark);
      pthread_mutex_unlock(&lock);
      break;
    case CALL:
      work->function(work->argument);
      break;
  }
}

#ifdef ASYNC
static void* work_off(void* argument) {
  flagos_hal_stream* stream = argument;
  pthread_mutex_lock(&lock);
  for (;;) {
    Work* work = stream->first;
    if (!work) {
      if (stream->stop) break;
      pthread_cond_wait(&progress, &lock);
      continue;
    }
    stream->first = work->next;
    if (!stream->first) stream->last = NULL;
    pthread_mutex_unlock(&lock);
    perform(work);
    free(work);
    pthread_mutex_lock(&lock);
    stream->done++;
    pthread_cond_broadcast(&progress);
  }
  pthread_mutex_unlock(&lock);
  return NULL;
}
#endif

static void start(flagos_hal_stream* stream) {
#ifdef ASYNC
  pthread_create(&stream->worker, NULL, work_off, stream);
#else
  (void)stream;
#endif
}

static void drain(flagos_hal_stream* stream) { /* under the lock */
  const uint64_t until = stream->queued;
  while (stream->done < until) pthread_cond_wait(&progress, &lock);
}

static void finish(flagos_hal_stream* stream) { /* waits, stops the worker */
#ifdef ASYNC
  pthread_mutex_lock(&lock);
#ifdef BREAK_DESTROY_DROPS
  while (stream->first) {
    Work* dropped = stream->first;
    stream->first = dropped->next;
    free(dropped);
    stream->done++;
  }
  stream->last = NULL;
#endif
  stream->stop = 1;
  pthread_cond_broadcast(&progress);
  pthread_mutex_unlock(&lock);
  pthread_join(stream->worker, NULL);
#else
  (void)stream;
#endif
}

static void queue(flagos_hal_stream* stream, Work work) {
#ifdef ASYNC
  Work* kept = malloc(sizeof(*kept));
#ifdef BREAK_ONE_QUEUE
  stream = &defaults[stream->device];
#endif
  *kept = work;
  kept->next = NULL;
  pthread_mutex_lock(&lock);
#ifdef BREAK_LAST_COMES_FIRST
  if (work.kind == FILL && stream->first) {
    kept->next = stream->first;
    stream->first = kept;
  } else
#endif
      if (stream->last) {
    stream->last->next = kept;
    stream->last = kept;
  } else {
    stream->first = stream->last = kept;
  }
  stream->queued++;
  pthread_cond_broadcast(&progress);
#ifdef BREAK_COPY_BLOCKS
  if (work.kind == COPY) drain(stream);
#endif
#ifdef BREAK_RECORD_BLOCKS
  if (work.kind == RECORD) drain(stream);
#endif
  pthread_mutex_unlock(&lock);
#else
  perform(&work);
  (void)stream;
#endif
}

/* ------------------------------------------------------------------------------------------------ group
 * system ---- */

static flagos_hal_status init(void) {
  static const char* const name = "system.init";
  int index;
  CHECK(forked(name));
#ifdef NO_RUNTIME
  return FAIL(UNAVAILABLE, "no libminimal.so; tried /opt/minimal/lib");
#endif
  pthread_mutex_lock(&lock);
#ifdef BREAK_INIT_TWICE
  if (ready) {
    pthread_mutex_unlock(&lock);
    return FAIL(INVALID_STATE, "already initialised");
  }
#endif
#ifdef BREAK_INIT_ONCE
  static int before;
  if (before && !ready) {
    pthread_mutex_unlock(&lock);
    return FAIL(UNAVAILABLE, "the runtime cannot start a second time");
  }
  before = 1;
#endif
  if (!ready) {
#ifdef BREAK_PRINTS
    fprintf(stderr, "minimal: initialised\n");
#endif
#ifdef BREAK_SETS_ENVIRONMENT
    setenv("MINIMAL_HAL_LOADED", "1", 1);
#endif
#ifdef BREAK_SLOW_INIT
    usleep(50000);
    pthread_mutex_unlock(&lock);
    usleep(50000);
    pthread_mutex_lock(&lock);
    blocks = NULL;
#endif
    for (index = 0; index < DEVICES; ++index) {
      memset(&defaults[index], 0, sizeof(defaults[index]));
      defaults[index].device = index;
      start(&defaults[index]);
    }
    owner = getpid();
    __atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status shutdown_library(void) {
  static const char* const name = "system.shutdown";
  int index;
  CHECK(forked(name));
#ifdef BREAK_SHUTDOWN_TWICE
  if (!ready) return FAIL(NOT_INITIALIZED, "not initialised");
#endif
  if (!ready) return FLAGOS_HAL_STATUS_OK;
#ifndef BREAK_THREADS_STAY
  for (index = 0; index < DEVICES; ++index) finish(&defaults[index]);
#endif
  while (streams) {
    flagos_hal_stream* stream = streams;
    streams = stream->next;
    finish(stream);
    free(stream);
  }
  pthread_mutex_lock(&lock);
  __atomic_store_n(&ready, 0, __ATOMIC_RELEASE);

  while (events) {
    flagos_hal_event* event = events;
    events = event->next;
    drop(event->mark);
    free(event);
  }
  while (blocks) {
    Block* block = blocks;
    blocks = block->next;
    free(block->pointer);
    free(block->shadow);
    free(block);
  }
  for (index = 0; index < DEVICES; ++index) used[index] = 0;
  pthread_mutex_unlock(&lock);
  return FLAGOS_HAL_STATUS_OK;
}

static void give(void* to, const void* from, size_t own) {
  size_t asked = *(const size_t*)to;
  const size_t size = asked < own ? asked : own;
#ifdef BREAK_OVERRUN
  memcpy((char*)to + sizeof(size_t), (const char*)from + sizeof(size_t), own - sizeof(size_t));
  (void)size;
#else
  if (size > sizeof(size_t))
    memcpy((char*)to + sizeof(size_t), (const char*)from + sizeof(size_t), size - sizeof(size_t));
#endif
}

static flagos_hal_status info(flagos_hal_info* out_info) {
  static const char* const name = "system.info";
  CHECK(forked(name));
  NEED(out_info);
#ifdef BREAK_INFO_NULL
  flagos_hal_info own = {0, "minimal", "1.0", NULL, "", ""};
#else
  flagos_hal_info own = {0, "minimal", "1.0", "", "", ""};
#endif
  give(out_info, &own, sizeof(own));
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status last_error(flagos_hal_error* out_error) {
  static const char* const name = "system.last_error";
  (void)name;
#ifdef BREAK_LAST_ERROR_NULL
  NEED(out_error);
#endif
  if (!out_error) return FLAGOS_HAL_STATUS_INVALID_ARGUMENT;
  flagos_hal_error own = {0, last.status, 0, 0, "", last.message, last.function ? last.function : ""};
#ifdef BREAK_VENDOR_NAME_NULL
  own.vendor_name = NULL;
#endif
  give(out_error, &own, sizeof(own));
#ifdef BREAK_READING_CLEARS
  memset(&last, 0, sizeof(last));
#endif
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status capability(int32_t asked, int64_t* out_value) {
  static const char* const name = "system.capability";
  int64_t value;
  CHECK(usable(name));
  NEED(out_value);
  switch (asked) {
    case FLAGOS_HAL_CAP_HOST_ACCESS:
#ifdef MANAGED
      value = FLAGOS_HAL_HOST_ACCESS_MANAGED;
#else
      value = FLAGOS_HAL_HOST_ACCESS_COHERENT;
#endif
      break;
    case FLAGOS_HAL_CAP_ALIGNMENT:
      value = ALIGNMENT;
      break;
    case FLAGOS_HAL_CAP_ASYNC_STREAMS:
#if defined(ASYNC) || defined(BREAK_CLAIMS_ASYNC)
      value = 1;
#else
      value = 0;
#endif
      break;
    case FLAGOS_HAL_CAP_EVENT_TIMING:
      value = 1;
      break;
    case FLAGOS_HAL_CAP_MAX_STREAMS:
    case FLAGOS_HAL_CAP_POINTER_INFO:
      value = 0;
      break;
    default:
#ifdef BREAK_ANY_CAPABILITY
      value = 0;
      break;
#endif
      return FAIL(INVALID_ARGUMENT, "no capability %d", asked);
  }
  *out_value = value;
  return FLAGOS_HAL_STATUS_OK;
}

/* ------------------------------------------------------------------------------------------------ group
 * device ---- */

static flagos_hal_status count(int32_t* out_count) {
  static const char* const name = "device.count";
  CHECK(usable(name));
#ifdef BREAK_NULL_OUTPUT
  if (!out_count) return FLAGOS_HAL_STATUS_OK;
#endif
  NEED(out_count);
  *out_count = DEVICES;
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status set_current(int32_t device) {
  static const char* const name = "device.set_current";
#ifdef BREAK_SET_FIRST
  current = device;
#endif
  CHECK(on_device(name, device));
  current = device;
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status get_current(int32_t* out_device) {
  static const char* const name = "device.get_current";
  CHECK(usable(name));
  NEED(out_device);
  *out_device = current;
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status properties(int32_t device, flagos_hal_device_properties* out_properties) {
  static const char* const name = "device.properties";
  flagos_hal_device_properties own;
  CHECK(on_device(name, device));
  NEED(out_properties);
  memset(&own, 0, sizeof(own));
  snprintf(own.name, sizeof(own.name), "Minimal %d", device);
#ifdef BREAK_NAME_UNTERMINATED
  memset(own.name, 'x', sizeof(own.name));
#endif
  own.total_memory = (int64_t)CAPACITY;
  own.capability_major = own.capability_minor = own.multiprocessor_count = own.warp_size = FLAGOS_HAL_UNKNOWN;
  own.max_threads_per_block = own.max_threads_per_multiprocessor = FLAGOS_HAL_UNKNOWN;
  own.registers_per_multiprocessor = own.clock_rate_khz = FLAGOS_HAL_UNKNOWN;
  own.shared_memory_per_block = own.shared_memory_per_block_optin = FLAGOS_HAL_UNKNOWN;
  own.shared_memory_per_multiprocessor = own.l2_cache_size = FLAGOS_HAL_UNKNOWN;
#ifdef BREAK_GUESSED_PROPERTY
  own.warp_size = -5;
#endif
  own.is_integrated = 1;
  give(out_properties, &own, sizeof(own));
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status memory_info(int32_t device, uint64_t* out_free, uint64_t* out_total) {
  static const char* const name = "device.memory_info";
#ifdef BREAK_BEFORE_INIT
  if (!ready) return FLAGOS_HAL_STATUS_OK;
#endif
  CHECK(on_device(name, device));
#ifdef BREAK_PARTIAL_OUTPUT
  if (out_free) *out_free = 0;
#endif
  NEED(out_free);
  NEED(out_total);
  pthread_mutex_lock(&lock);
  *out_free = CAPACITY - used[device];
  *out_total = CAPACITY;
#ifdef BREAK_FREE_CONSTANT
  *out_free = CAPACITY;
#endif
  pthread_mutex_unlock(&lock);
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status synchronize_device(int32_t device) {
  static const char* const name = "device.synchronize";
  flagos_hal_stream* stream;
  CHECK(on_device(name, device));
#ifdef CRASHES
  *(volatile int*)8 = 0;
#endif
#ifdef HANGS
  pause();
#endif
  pthread_mutex_lock(&lock);
#ifndef BREAK_SYNCHRONIZE_FORGETS_DEFAULT
  drain(&defaults[device]);
#endif
#ifndef BREAK_SYNCHRONIZE_FORGETS_STREAMS
  for (stream = streams; stream; stream = stream->next)
    if (stream->device == device) drain(stream);
#endif
  (void)stream;
  pthread_mutex_unlock(&lock);
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status health(int32_t device) {
  static const char* const name = "device.health";
#ifdef BREAK_HEALTH_WAITS
  CHECK(synchronize_device(device));
#endif
  return on_device(name, device);
}

/* ------------------------------------------------------------------------------------------------ group
 * memory ---- */

static flagos_hal_status allocate(int32_t device, uint64_t size, void** out_pointer) {
  static const char* const name = "memory.allocate";
  uint64_t rounded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  Block* block;
  void* pointer = NULL;
  CHECK(on_device(name, device));
#ifdef BREAK_CURRENT_MOVES
  current = device;
#endif
  NEED(out_pointer);
#ifdef BREAK_OUTPUT_ON_FAILURE
  *out_pointer = NULL;
#endif
#ifdef BREAK_ZERO_SIZE
  if (size == 0) rounded = ALIGNMENT;
#else
  if (size == 0) {
    *out_pointer = NULL;
    return FLAGOS_HAL_STATUS_OK;
  }
#endif
  pthread_mutex_lock(&lock);
#ifdef BREAK_OVERFLOW
  if (rounded > CAPACITY - used[device]) {
#else
  if (size > CAPACITY || rounded > CAPACITY - used[device]) {
#endif
#ifdef BREAK_OOM_LEAKS
    used[device] += ALIGNMENT;
#endif
    pthread_mutex_unlock(&lock);
    return FAIL(OUT_OF_MEMORY, "%llu bytes on device %d", (unsigned long long)size, device);
  }
#ifdef BREAK_UNALIGNED
  if (posix_memalign(&pointer, 64, rounded + 64) == 0) pointer = (char*)pointer + 32;
#else
  if (posix_memalign(&pointer, ALIGNMENT, rounded ? rounded : ALIGNMENT) != 0) pointer = NULL;
#endif
  block = malloc(sizeof(*block));
  if (!pointer || !block) {
    pthread_mutex_unlock(&lock);
    return FAIL(OUT_OF_MEMORY, "%llu bytes of host memory", (unsigned long long)size);
  }
  block->device = device;
  block->pointer = pointer;
  block->shadow = NULL;
#ifdef MANAGED
  block->shadow = malloc(size);
#endif
  block->size = size;
#ifdef BREAK_RACE
  pthread_mutex_unlock(&lock);
  block->next = blocks;
  sched_yield();
  blocks = block;
  pthread_mutex_lock(&lock);
#else
  block->next = blocks;
  blocks = block;
#endif
  used[device] += rounded;
  pthread_mutex_unlock(&lock);
  *out_pointer = pointer;
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status release(int32_t device, void* pointer) {
  static const char* const name = "memory.release";
  Block **link, *block;
#ifdef BREAK_RELEASE_BEFORE_INIT
  CHECK(usable(name));
#endif
  if (dead()) return FLAGOS_HAL_STATUS_OK;
  CHECK(on_device(name, device));
#ifdef BREAK_RELEASE_NULL
  if (!pointer) return FAIL(INVALID_HANDLE, "null");
#endif
  if (!pointer) return FLAGOS_HAL_STATUS_OK;
  pthread_mutex_lock(&lock);
#ifdef BREAK_INTERIOR_RELEASE
  for (link = &blocks;
       *link && !((char*)pointer >= (*link)->pointer && (char*)pointer < (*link)->pointer + (*link)->size);)
    link = &(*link)->next;
#elif defined(BREAK_WRONG_DEVICE_RELEASE)
  for (link = &blocks; *link && (*link)->pointer != pointer;) link = &(*link)->next;
#else
  for (link = &blocks; *link && ((*link)->pointer != pointer || (*link)->device != device);)
    link = &(*link)->next;
#endif
  block = *link;
  if (!block) {
    pthread_mutex_unlock(&lock);
#ifdef BREAK_RELEASE_ANYTHING
    return FLAGOS_HAL_STATUS_OK;
#endif
    return FAIL(INVALID_HANDLE, "%p is no allocation of device %d", pointer, device);
  }
  *link = block->next;
#ifndef BREAK_RELEASE_KEEPS
  used[block->device] -= (block->size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
#endif
  pthread_mutex_unlock(&lock);
#ifndef BREAK_UNALIGNED
  free(block->pointer);
#endif
  free(block->shadow);
  free(block);
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status check_copy(const char* name, const void* destination, const void* source,
                                    uint64_t size, int32_t kind) {
#ifndef BREAK_ANY_KIND
  if (kind < FLAGOS_HAL_COPY_HOST_TO_HOST || kind > FLAGOS_HAL_COPY_DEVICE_TO_DEVICE)
    return FAIL(INVALID_ARGUMENT, "no copy kind %d", kind);
#endif
#ifdef BREAK_ZERO_COPY
  if (!destination || !source) return FAIL(INVALID_ARGUMENT, "null");
#endif
  if (size > 0 && (!destination || !source))
    return FAIL(INVALID_ARGUMENT, "null, with %llu bytes", (unsigned long long)size);
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status copy(int32_t device, void* destination, const void* source, uint64_t size,
                              int32_t kind) {
  static const char* const name = "memory.copy";
  CHECK(on_device(name, device));
  CHECK(check_copy(name, destination, source, size, kind));
#ifdef BREAK_COPY_SHORT
  if (size > 1) size -= size % 2;
#endif
#ifdef BREAK_COPY_LONG
  if (size % 4) size += 4 - size % 4;
#endif
  if (size) memcpy(device_side(destination), device_side(source), size);
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status copy_async(flagos_hal_stream* stream, void* destination, const void* source,
                                    uint64_t size, int32_t kind) {
  static const char* const name = "memory.copy_async";
  Work work = {.kind = COPY, .destination = destination, .source = source, .size = size};
  CHECK(on_stream(name, stream));
  CHECK(check_copy(name, destination, source, size, kind));
#ifdef BREAK_COPY_AT_ONCE
  if (size) memcpy(destination, source, size);
  return FLAGOS_HAL_STATUS_OK;
#endif
  if (size) queue(stream, work);
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status check_fill(const char* name, const void* destination, int32_t value, uint64_t size) {
#ifndef BREAK_ANY_VALUE
  if (value < 0 || value > 255) return FAIL(INVALID_ARGUMENT, "value %d", value);
#endif
  if (size > 0 && !destination)
    return FAIL(INVALID_ARGUMENT, "null, with %llu bytes", (unsigned long long)size);
  (void)value;
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status fill(int32_t device, void* destination, int32_t value, uint64_t size) {
  static const char* const name = "memory.fill";
  CHECK(on_device(name, device));
  CHECK(check_fill(name, destination, value, size));
#ifdef BREAK_FILL_WORDS
  size -= size % 4;
#endif
  if (size) memset(device_side(destination), value, size);
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status fill_async(flagos_hal_stream* stream, void* destination, int32_t value,
                                    uint64_t size) {
  static const char* const name = "memory.fill_async";
  Work work = {.kind = FILL, .destination = destination, .value = value, .size = size};
  CHECK(on_stream(name, stream));
  CHECK(check_fill(name, destination, value, size));
  if (size) queue(stream, work);
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status pointer_info(const void* pointer, flagos_hal_pointer_info* out_info) {
  static const char* const name = "memory.pointer_info";
  flagos_hal_pointer_info own = {0, FLAGOS_HAL_MEMORY_UNKNOWN, -1, NULL, 0};
  const Block* block;
  CHECK(usable(name));
  NEED(out_info);
  pthread_mutex_lock(&lock);
  for (block = blocks; block; block = block->next) {
#ifdef BREAK_BASE_ONLY
    const int inside = (const char*)pointer == block->pointer;
#elif defined(BREAK_ONE_PAST_END)
    const int inside =
        (const char*)pointer >= block->pointer && (const char*)pointer <= block->pointer + block->size;
#else
    const int inside =
        (const char*)pointer >= block->pointer && (const char*)pointer < block->pointer + block->size;
#endif
    if (!inside) continue;
    own.kind = FLAGOS_HAL_MEMORY_DEVICE;
    own.device = block->device;
    own.base = block->pointer;
    own.size = block->size;
  }
  pthread_mutex_unlock(&lock);
#ifdef BREAK_UNKNOWN_POINTER
  if (!own.kind) return FAIL(INVALID_HANDLE, "%p", pointer);
#endif
  give(out_info, &own, sizeof(own));
  return FLAGOS_HAL_STATUS_OK;
}

/* ------------------------------------------------------------------------------------------------ group
 * stream ---- */

static flagos_hal_status create_stream(int32_t device, const flagos_hal_stream_options* options,
                                       flagos_hal_stream** out_stream) {
  static const char* const name = "stream.create";
  flagos_hal_stream* stream;
  CHECK(on_device(name, device));
  NEED(out_stream);
#ifndef BREAK_STREAM_FLAGS
  if (options && options->struct_size >= sizeof(*options) && options->flags)
    return FAIL(INVALID_ARGUMENT, "unknown flags 0x%x", options->flags);
#endif
#ifdef BREAK_PRIORITY_REFUSED
  if (options && options->priority) return FAIL(INVALID_ARGUMENT, "priority %d", options->priority);
#endif
  stream = calloc(1, sizeof(*stream));
  if (!stream) return FAIL(OUT_OF_MEMORY, "no memory for a stream");
  stream->device = device;
#ifdef BREAK_STREAM_DEVICE
  stream->device = 0;
#endif
  start(stream);
  pthread_mutex_lock(&lock);
  stream->next = streams;
  streams = stream;
  pthread_mutex_unlock(&lock);
  *out_stream = stream;
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status destroy_stream(flagos_hal_stream* stream) {
  static const char* const name = "stream.destroy";
  flagos_hal_stream** link;
  if (dead()) return FLAGOS_HAL_STATUS_OK;
  CHECK(on_stream(name, stream));
#ifdef BREAK_DESTROY_DEFAULT
  if (stream >= defaults && stream < defaults + DEVICES) return FLAGOS_HAL_STATUS_OK;
#endif
  if (stream >= defaults && stream < defaults + DEVICES)
    return FAIL(INVALID_HANDLE, "a default stream is not destroyed");
  pthread_mutex_lock(&lock);
  for (link = &streams; *link != stream;) link = &(*link)->next;
  *link = stream->next;
  pthread_mutex_unlock(&lock);
  finish(stream);
#ifndef BREAK_DESTROY_DROPS
  free(stream);
#endif
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status default_stream(int32_t device, flagos_hal_stream** out_stream) {
  static const char* const name = "stream.default_stream";
  CHECK(on_device(name, device));
  NEED(out_stream);
#ifdef BREAK_DEFAULT_PER_CALL
  return create_stream(device, NULL, out_stream);
#endif
#ifdef BREAK_ONE_DEFAULT
  device = 0;
#endif
  *out_stream = &defaults[device];
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status priority_range(int32_t device, int32_t* out_least, int32_t* out_greatest) {
  static const char* const name = "stream.priority_range";
  CHECK(on_device(name, device));
  NEED(out_least);
  NEED(out_greatest);
  *out_least = 0;
  *out_greatest = 0;
#ifdef BREAK_PRIORITY_RANGE
  *out_least = -1;
#endif
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status query_stream(flagos_hal_stream* stream) {
  static const char* const name = "stream.query";
  int pending;
  CHECK(on_stream(name, stream));
#ifdef BREAK_QUERY_BLOCKS
  pthread_mutex_lock(&lock);
  drain(stream);
  pthread_mutex_unlock(&lock);
#endif
  pthread_mutex_lock(&lock);
  pending = stream->done < stream->queued;
  pthread_mutex_unlock(&lock);
#ifdef BREAK_NOT_READY_IS_ERROR
  if (pending) return FAIL(NOT_READY, "not ready");
#endif
#ifdef BREAK_QUERY_OPTIMISTIC
  pending = 0;
#endif
  return pending ? FLAGOS_HAL_STATUS_NOT_READY : FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status synchronize_stream(flagos_hal_stream* stream) {
  static const char* const name = "stream.synchronize";
  CHECK(on_stream(name, stream));
#ifndef BREAK_SYNCHRONIZE_RETURNS
  pthread_mutex_lock(&lock);
  drain(stream);
  pthread_mutex_unlock(&lock);
#endif
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status wait_event(flagos_hal_stream* stream, flagos_hal_event* event) {
  static const char* const name = "stream.wait_event";
  Work work = {.kind = WAIT};
  CHECK(on_stream(name, stream));
  CHECK(on_event(name, event));
#ifdef BREAK_WAIT_ONE_DEVICE
  if (stream->device != event->device) return FAIL(INVALID_ARGUMENT, "two devices");
#endif
  pthread_mutex_lock(&lock);
  work.mark = event->mark;
  if (work.mark) work.mark->references++;
  pthread_mutex_unlock(&lock);
#ifdef BREAK_WAIT_BLOCKS
  pthread_mutex_lock(&lock);
  while (work.mark && !work.mark->reached) pthread_cond_wait(&progress, &lock);
  pthread_mutex_unlock(&lock);
#endif
  if (work.mark) queue(stream, work);
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status native_handle(flagos_hal_stream* stream, void** out_handle) {
  static const char* const name = "stream.native_handle";
  CHECK(on_stream(name, stream));
  NEED(out_handle);
  *out_handle = stream;
#ifdef BREAK_NATIVE_HANDLE
  *out_handle = &out_handle;
#endif
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status stream_device(flagos_hal_stream* stream, int32_t* out_device) {
  static const char* const name = "stream.device";
  CHECK(on_stream(name, stream));
  NEED(out_device);
  *out_device = stream->device;
  return FLAGOS_HAL_STATUS_OK;
}

#ifdef ASYNC
static flagos_hal_status host_callback(flagos_hal_stream* stream, void (*function)(void* argument),
                                       void* argument) {
  static const char* const name = "stream.host_callback";
  Work work = {.kind = CALL, .function = function, .argument = argument};
  CHECK(on_stream(name, stream));
  NEED(function);
#ifdef BREAK_CALLBACK_TWICE
  queue(stream, work);
#endif
#ifdef BREAK_CALLBACK_DETACHED
  pthread_t thread;
  pthread_create(&thread, NULL, (void* (*)(void*))(void (*)(void))function, argument);
  pthread_detach(thread);
  return FLAGOS_HAL_STATUS_OK;
#endif
  queue(stream, work);
  return FLAGOS_HAL_STATUS_OK;
}
#endif

/* ------------------------------------------------------------------------------------------------- group
 * event ---- */

static flagos_hal_status create_event(int32_t device, uint32_t flags, flagos_hal_event** out_event) {
  static const char* const name = "event.create";
  flagos_hal_event* event;
  CHECK(on_device(name, device));
  NEED(out_event);
#ifndef BREAK_EVENT_FLAGS
  if (flags &
      ~(uint32_t)(FLAGOS_HAL_EVENT_TIMING | FLAGOS_HAL_EVENT_BLOCKING | FLAGOS_HAL_EVENT_INTERPROCESS))
    return FAIL(INVALID_ARGUMENT, "unknown flags 0x%x", flags);
#endif
#ifndef BREAK_INTERPROCESS
  if ((flags & FLAGOS_HAL_EVENT_INTERPROCESS) && (flags & FLAGOS_HAL_EVENT_TIMING))
    return FAIL(INVALID_ARGUMENT, "INTERPROCESS excludes TIMING");
  if (flags & FLAGOS_HAL_EVENT_INTERPROCESS) return FAIL(UNSUPPORTED, "events stay in one process");
#endif
  event = calloc(1, sizeof(*event));
  if (!event) return FAIL(OUT_OF_MEMORY, "no memory for an event");
  event->device = device;
  event->flags = flags;
  pthread_mutex_lock(&lock);
  event->next = events;
  events = event;
  pthread_mutex_unlock(&lock);
  *out_event = event;
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status destroy_event(flagos_hal_event* event) {
  static const char* const name = "event.destroy";
  flagos_hal_event** link;
  if (dead()) return FLAGOS_HAL_STATUS_OK;
  CHECK(on_event(name, event));
  pthread_mutex_lock(&lock);
#ifdef BREAK_DESTROY_FREES_WAITERS
  if (event->mark) event->mark->reached = 1;
  pthread_cond_broadcast(&progress);
#endif
  for (link = &events; *link && *link != event;) link = &(*link)->next;
  if (*link) {
    *link = event->next;
    drop(event->mark);
    free(event);
  }
  pthread_mutex_unlock(&lock);
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status record(flagos_hal_event* event, flagos_hal_stream* stream) {
  static const char* const name = "event.record";
  Work work = {.kind = RECORD};
  CHECK(on_event(name, event));
  CHECK(on_stream(name, stream));
#ifndef BREAK_RECORD_ELSEWHERE
  if (event->device != stream->device)
    return FAIL(INVALID_ARGUMENT, "the event is of device %d, the stream of device %d", event->device,
                stream->device);
#endif
  work.mark = calloc(1, sizeof(*work.mark));
  if (!work.mark) return FAIL(OUT_OF_MEMORY, "no memory for a mark");
  work.mark->references = 2;
  pthread_mutex_lock(&lock);
#ifdef BREAK_RECORD_ONCE
  if (event->mark) {
    free(work.mark);
    pthread_mutex_unlock(&lock);
    return FLAGOS_HAL_STATUS_OK;
  }
#endif
#ifdef BREAK_RECORD_REACHED
  work.mark->reached = 1;
  work.mark->ms = now_ms();
#endif
  drop(event->mark);
  event->mark = work.mark;
  pthread_mutex_unlock(&lock);
  queue(stream, work);
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status query_event(flagos_hal_event* event) {
  static const char* const name = "event.query";
  int pending;
  CHECK(on_event(name, event));
  pthread_mutex_lock(&lock);
  pending = event->mark && !event->mark->reached;
#ifdef BREAK_UNRECORDED_PENDING
  pending = !event->mark || !event->mark->reached;
#endif
  pthread_mutex_unlock(&lock);
  return pending ? FLAGOS_HAL_STATUS_NOT_READY : FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status synchronize_event(flagos_hal_event* event) {
  static const char* const name = "event.synchronize";
  Mark* mark;
  CHECK(on_event(name, event));
  pthread_mutex_lock(&lock);
  mark = event->mark;
  if (mark) {
    mark->references++;
#ifndef BREAK_EVENT_SYNCHRONIZE_RETURNS
    while (!mark->reached) pthread_cond_wait(&progress, &lock);
#endif
    drop(mark);
  }
  pthread_mutex_unlock(&lock);
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status elapsed(flagos_hal_event* start_event, flagos_hal_event* end_event, double* out_ms) {
  static const char* const name = "event.elapsed";
  double ms = 0;
  int pending, recorded;
  CHECK(on_event(name, start_event));
  CHECK(on_event(name, end_event));
  NEED(out_ms);
#ifndef BREAK_ELAPSED_UNTIMED
  if (!(start_event->flags & end_event->flags & FLAGOS_HAL_EVENT_TIMING))
    return FAIL(INVALID_STATE, "an event has no TIMING");
#endif
  if (start_event->device != end_event->device)
    return FAIL(INVALID_ARGUMENT, "the events are of two devices");
  pthread_mutex_lock(&lock);
  recorded = start_event->mark && end_event->mark;
  pending = recorded && !(start_event->mark->reached && end_event->mark->reached);
  if (recorded) ms = end_event->mark->ms - start_event->mark->ms;
  pthread_mutex_unlock(&lock);
#ifdef BREAK_ELAPSED_UNRECORDED
  if (!recorded) recorded = 1;
#endif
  if (!recorded) return FAIL(INVALID_STATE, "an event was never recorded");
#ifndef BREAK_ELAPSED_PENDING
  if (pending) return FLAGOS_HAL_STATUS_NOT_READY;
#endif
  (void)pending;
#ifdef BREAK_ELAPSED_UNSIGNED
  if (ms < 0) ms = -ms;
#endif
#ifdef BREAK_ELAPSED_SECONDS
  ms /= 1e3;
#endif
  *out_ms = ms;
  return FLAGOS_HAL_STATUS_OK;
}

/* -------------------------------------------------------------------------------------------------- group
 * host ---- */

#ifdef MANAGED
static flagos_hal_status move_view(const char* name, int32_t device, void* pointer, uint64_t size,
                                   uint32_t access, int begin) {
  Block* block;
  CHECK(on_device(name, device));
#ifndef BREAK_ACCESS_BITS
  if (access & ~(uint32_t)(FLAGOS_HAL_ACCESS_READ | FLAGOS_HAL_ACCESS_WRITE))
    return FAIL(INVALID_ARGUMENT, "access 0x%x", access);
#endif
  if (size == 0) return FLAGOS_HAL_STATUS_OK;
  pthread_mutex_lock(&lock);
  for (block = blocks; block; block = block->next) {
    const char* const start_of = pointer;
    if (block->device == device && start_of >= block->pointer &&
        start_of + size <= block->pointer + block->size)
      break;
  }
  if (block) {
    const size_t offset = (size_t)((char*)pointer - block->pointer);
#ifndef BREAK_ACCESS_STALE
    if (begin) memcpy(pointer, block->shadow + offset, size);
#endif
#ifndef BREAK_ACCESS_LOST
    if (!begin && (access & FLAGOS_HAL_ACCESS_WRITE)) memcpy(block->shadow + offset, pointer, size);
#endif
  }
  pthread_mutex_unlock(&lock);
#ifdef BREAK_ACCESS_ANYWHERE
  return FLAGOS_HAL_STATUS_OK;
#endif
  return block ? FLAGOS_HAL_STATUS_OK : FAIL(INVALID_HANDLE, "%p is no memory of device %d", pointer, device);
}

static flagos_hal_status begin_access(int32_t device, void* pointer, uint64_t size, uint32_t access) {
  return move_view("host.begin_access", device, pointer, size, access, 1);
}

static flagos_hal_status end_access(int32_t device, void* pointer, uint64_t size, uint32_t access) {
  return move_view("host.end_access", device, pointer, size, access, 0);
}

static const flagos_hal_host_api host_api = {sizeof(host_api), NULL,      NULL, NULL, NULL,
                                             begin_access,     end_access};
#define HOST &host_api
#else
#define HOST NULL
#endif

/* -------------------------------------------------------------------------------------------------- the
 * tables ---- */

static const flagos_hal_system_api system_api = {sizeof(system_api), init,      shutdown_library, info,
                                                 last_error,         capability};
static const flagos_hal_device_api device_api = {
    sizeof(device_api), count, set_current, get_current, properties, memory_info, synchronize_device, health};
static const flagos_hal_memory_api memory_api = {sizeof(memory_api), allocate, release,    copy,
                                                 copy_async,         fill,     fill_async, pointer_info};
static const flagos_hal_stream_api stream_api = {
    sizeof(stream_api), create_stream,      destroy_stream, default_stream, priority_range,
    query_stream,       synchronize_stream, wait_event,     native_handle,  stream_device,
#ifdef ASYNC
    host_callback
#else
    NULL
#endif
};
static const flagos_hal_event_api event_api = {sizeof(event_api), create_event,      destroy_event, record,
                                               query_event,       synchronize_event, elapsed};
static const flagos_hal_api api = {sizeof(api),
                                   FLAGOS_HAL_ABI_MAJOR,
                                   FLAGOS_HAL_ABI_MINOR,
                                   &system_api,
                                   &device_api,
                                   &memory_api,
                                   &stream_api,
                                   &event_api,
                                   HOST,
                                   NULL,
                                   NULL,
                                   NULL,
                                   NULL,
                                   NULL};

FLAGOS_HAL_EXPORT flagos_hal_status flagos_hal_query(uint32_t core_major, uint32_t core_minor,
                                                     const flagos_hal_api** out_api) {
  (void)core_minor;
#ifdef BREAK_QUERY_NULL
  if (!out_api) return FLAGOS_HAL_STATUS_OK;
#endif
  if (!out_api) return FLAGOS_HAL_STATUS_INVALID_ARGUMENT;
  *out_api = &api;
#ifdef BREAK_ANY_MAJOR
  core_major = FLAGOS_HAL_ABI_MAJOR;
#endif
#ifdef BREAK_MINOR_REFUSED
  if (core_minor > FLAGOS_HAL_ABI_MINOR) return FLAGOS_HAL_STATUS_ABI_MISMATCH;
#endif
  return core_major == FLAGOS_HAL_ABI_MAJOR ? FLAGOS_HAL_STATUS_OK : FLAGOS_HAL_STATUS_ABI_MISMATCH;
}

#ifdef BREAK_EXTRA_EXPORT
FLAGOS_HAL_EXPORT int minimal_helper(void) { return 1; }
#endif
