/* The hardware abstraction layer (HAL) of torch-fl: the one border between torch-fl-core and a chip.
 *
 * A vendor ships one shared library that exports one function, flagos_hal_query. The function hands out
 * tables of function pointers, one table per group. Nothing of torch, Python or C++ crosses this border.
 *
 * How to read a function's text, always in this order: the requirement id (the conformance test of that name
 * checks it); what it does; units and null rules; Owns: who frees what; Threads; Blocks: whether the call
 * waits for the device or only queues; Errors, and the state after one; Required or Optional, and since which
 * minor.
 *
 * Rules for the whole interface
 * -----------------------------
 * GEN-01  Every function returns a flagos_hal_status. Output arguments are written only when it is OK, unless
 *         the text says otherwise. An output pointer that is null gives INVALID_ARGUMENT.
 * GEN-02  A status other than OK and NOT_READY leaves a detail behind that system.last_error returns on the
 *         same thread until the next failing call of that thread. NOT_READY is an answer, not a failure: it
 *         leaves no detail and nothing sticky in the vendor's runtime.
 * GEN-03  Before init, and after shutdown, every function but query, system.init, system.shutdown,
 *         system.last_error and system.info returns NOT_INITIALIZED. Calls that release something (release,
 *         destroy, free) are then no-ops that return OK, so that a late destructor is harmless.
 * GEN-04  In a child forked after init (also where shutdown came before the fork), every function but query,
 *         last_error and the releasing calls returns FORKED at once and does not touch the vendor's runtime:
 *         init, shutdown and info too. Releasing calls return OK and do nothing. A child forked before init
 *         may call init and use the library.
 * GEN-05  A device index is local to the library: 0 … count − 1. Any other value, −1 too, gives
 *         INVALID_DEVICE.
 * GEN-06  Every function may be called from any thread at any time, save where a text says that the caller
 *         orders calls. No function needs a current device: it acts on the device it names or on that of its
 *         stream, event or pointer, and leaves the thread's current device as it was. A thread that has never
 *         called set_current is on device 0.
 * GEN-07  Sizes are bytes. A size of 0 is valid everywhere: nothing is read, written or queued, and the
 *         pointers beside it may be null.
 * GEN-08  A handle (stream, event, graph) or pointer that this library did not give out, or that was
 *         released, gives INVALID_HANDLE where the library can tell; using one is the caller's fault. Null as
 *         a handle is always INVALID_HANDLE.
 * GEN-09  A library prints nothing, sets no environment variable, keeps no cache or pool of its own, and
 *         starts no thread that outlives shutdown.
 * GEN-10  Flags and kinds are the HAL's own. A bit that this header does not define gives INVALID_ARGUMENT.
 * GEN-11  After DEVICE_LOST every later call on that device returns DEVICE_LOST (or OK for releasing calls);
 *         other devices go on where the hardware allows it. device.health tells which.
 * GEN-12  A failed call changes nothing: no memory, handle or queued work stays behind from it.
 *
 * Growth: tables and sized structures grow at their end only. struct_size says how much of one its author
 * knew; the reader copies the smaller of both sizes and treats the rest as absent. See abi/CHANGELOG.md for
 * the versions.
 */
/* The tables and texts are laid out by hand, for reading. */
/* clang-format off */
#ifndef FLAGOS_HAL_H_
#define FLAGOS_HAL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FLAGOS_HAL_ABI_MAJOR 1u /* a member moved, or changed type or meaning: other majors are refused */
#define FLAGOS_HAL_ABI_MINOR 0u /* members were appended: libraries of an older minor still load */

#define FLAGOS_HAL_QUERY_SYMBOL "flagos_hal_query"

#if defined(_WIN32)
#define FLAGOS_HAL_EXPORT __declspec(dllexport)
#else
#define FLAGOS_HAL_EXPORT __attribute__((visibility("default")))
#endif

/* ------------------------------------------------------------------------------------------ statuses ---- */

/* Fixed width, so that the type is the same in C, C++ and ctypes. Values: FLAGOS_HAL_STATUS_<NAME>. */
typedef int32_t flagos_hal_status;

enum {
#define FLAGOS_HAL_STATUS(name, number, text) FLAGOS_HAL_STATUS_##name = number,
#include "flagos/hal_status.def"
#undef FLAGOS_HAL_STATUS
  FLAGOS_HAL_STATUS_COUNT_ /* number of classes; not a status */
};

/* What is known of the last failure on this thread. Strings are never null, belong to the library and stay
 * valid until the next failing call on the same thread. */
typedef struct flagos_hal_error {
  size_t struct_size;        /* in: sizeof(*this) as the caller was compiled */
  flagos_hal_status status;  /* its class */
  int32_t reserved;          /* 0 */
  int64_t vendor_code;       /* the vendor's own number; 0 where the failure did not come from the vendor */
  const char* vendor_name;   /* the vendor's name of that number ("cudaErrorMemoryAllocation"); "" if none */
  const char* message;       /* one sentence: what failed, with which values; UTF-8, no newline */
  const char* function;      /* the HAL function, "memory.allocate"; "" if none failed yet */
} flagos_hal_error;

/* ------------------------------------------------------------------------------------------- handles ---- */

/* All of them are owned by the library. */
typedef struct flagos_hal_stream flagos_hal_stream; /* an ordered queue of work on one device */
typedef struct flagos_hal_event flagos_hal_event;   /* a mark in a stream */
typedef struct flagos_hal_graph flagos_hal_graph;   /* a captured sequence of work, ready to launch */

/* -------------------------------------------------------------------------------------- group system ---- */

typedef struct flagos_hal_info {
  size_t struct_size;          /* in: as the caller was compiled */
  const char* vendor;          /* lower case, the backend's name: "reference" */
  const char* library_version; /* version of this HAL library */
  const char* sdk_version;     /* the vendor runtime's version, as the vendor spells it; "" before init */
  const char* driver_version;  /* likewise */
  const char* sdk_path;        /* file that the vendor's runtime was loaded from; "" if none or not yet */
} flagos_hal_info;

/* What core may ask of a library. All answers are int64 and constant from init to shutdown. */
typedef enum flagos_hal_capability {
  FLAGOS_HAL_CAP_HOST_ACCESS = 0,  /* one of FLAGOS_HAL_HOST_ACCESS_… */
  FLAGOS_HAL_CAP_ALIGNMENT = 1,    /* pointers from allocate are multiples of this; a power of two, ≥ 64 */
  FLAGOS_HAL_CAP_ASYNC_STREAMS = 2,/* 1: queued calls return before the work is done; 0: all is synchronous */
  FLAGOS_HAL_CAP_EVENT_TIMING = 3, /* 1: event.elapsed measures device time; 0: UNSUPPORTED */
  FLAGOS_HAL_CAP_MAX_STREAMS = 4,  /* streams per device that can exist at once; 0: no known limit */
  FLAGOS_HAL_CAP_POINTER_INFO = 5, /* 1: pointer_info knows host pointers too; 0: this library's own only */
  FLAGOS_HAL_CAP_COUNT_            /* number of capabilities; not one */
} flagos_hal_capability;

enum {
  FLAGOS_HAL_HOST_ACCESS_NONE = 0,     /* the host must not touch device memory */
  FLAGOS_HAL_HOST_ACCESS_COHERENT = 1, /* the host may, by the same pointer, while no queued work uses it */
  FLAGOS_HAL_HOST_ACCESS_MANAGED = 2   /* likewise, between host.begin_access and host.end_access */
};

typedef struct flagos_hal_system_api {
  size_t struct_size; /* sizeof(*this) as the library was compiled */

  /* HAL-SYS-01. Opens the vendor's runtime and makes the library usable. A second call is OK and does
   * nothing; after a failure it may be called again. Owns: nothing. Threads: any; concurrent calls wait for
   * each other. Blocks: yes. Errors: UNAVAILABLE (the message lists every path tried), FORKED, UNKNOWN. Zero
   * devices are no error. Required since 1.0. */
  flagos_hal_status (*init)(void);

  /* HAL-SYS-02. Waits for queued work, releases what the library holds and stops its threads. Handles and
   * pointers given out are dead from here on. A second call, or one before init, is OK and does nothing. init
   * may follow. Threads: the caller sees to it that no other call is in progress. Blocks: yes. Errors: none
   * that stop it; a device that is lost is skipped. Required since 1.0. */
  flagos_hal_status (*shutdown)(void);

  /* HAL-SYS-03. Describes the library and the vendor's runtime. Strings live as long as the process. Works
   * before init, with "" for what is unknown. Blocks: no. Errors: INVALID_ARGUMENT. Required since 1.0. */
  flagos_hal_status (*info)(flagos_hal_info* out_info);

  /* HAL-SYS-04. Copies the detail of this thread's last failing call to `out_error`; with none yet the status
   * in it is OK. Reading does not clear it. Blocks: no. Errors: INVALID_ARGUMENT (which leaves the detail as
   * it was). Required since 1.0. */
  flagos_hal_status (*last_error)(flagos_hal_error* out_error);

  /* HAL-SYS-05. Answers one capability. Blocks: no. Errors: INVALID_ARGUMENT for a number that this library
   * does not know; core then takes 0. Required since 1.0. */
  flagos_hal_status (*capability)(int32_t capability, int64_t* out_value);
} flagos_hal_system_api;

/* -------------------------------------------------------------------------------------- group device ---- */

#define FLAGOS_HAL_UNKNOWN (-1) /* a property that the vendor does not tell; never a guess */

/* Data types a device computes on, as bits of flagos_hal_device_properties.dtypes. */
enum {
  FLAGOS_HAL_DTYPE_UINT8 = 0, FLAGOS_HAL_DTYPE_INT8 = 1, FLAGOS_HAL_DTYPE_INT16 = 2,
  FLAGOS_HAL_DTYPE_INT32 = 3, FLAGOS_HAL_DTYPE_INT64 = 4, FLAGOS_HAL_DTYPE_FLOAT16 = 5,
  FLAGOS_HAL_DTYPE_FLOAT32 = 6, FLAGOS_HAL_DTYPE_FLOAT64 = 7, FLAGOS_HAL_DTYPE_COMPLEX32 = 8,
  FLAGOS_HAL_DTYPE_COMPLEX64 = 9, FLAGOS_HAL_DTYPE_COMPLEX128 = 10, FLAGOS_HAL_DTYPE_BOOL = 11,
  FLAGOS_HAL_DTYPE_BFLOAT16 = 12, FLAGOS_HAL_DTYPE_FLOAT8_E4M3FN = 13, FLAGOS_HAL_DTYPE_FLOAT8_E5M2 = 14,
  FLAGOS_HAL_DTYPE_UINT16 = 15, FLAGOS_HAL_DTYPE_UINT32 = 16, FLAGOS_HAL_DTYPE_UINT64 = 17,
  FLAGOS_HAL_DTYPE_FLOAT8_E4M3FNUZ = 18, FLAGOS_HAL_DTYPE_FLOAT8_E5M2FNUZ = 19,
  FLAGOS_HAL_DTYPE_FLOAT8_E8M0FNU = 20,
  FLAGOS_HAL_DTYPE_FLOAT4_E2M1FN = 21
};

typedef struct flagos_hal_device_properties {
  size_t struct_size;                  /* in: as the caller was compiled */
  char name[256];                      /* marketing name, null-terminated */
  char arch[64];                       /* the compiler's name of the architecture ("gfx936"); "" if none */
  char pci_bus_id[32];                 /* "0000:3b:00.0"; "" if none */
  uint8_t uuid[16];                    /* all zero if none */
  int64_t total_memory;                /* bytes */
  uint64_t dtypes;                     /* bit i set: data type i is computed on; 0: not told */
  int32_t capability_major;            /* and the rest: FLAGOS_HAL_UNKNOWN where the vendor does not tell */
  int32_t capability_minor;
  int32_t multiprocessor_count;
  int32_t warp_size;
  int32_t max_threads_per_block;
  int32_t max_threads_per_multiprocessor;
  int32_t registers_per_multiprocessor;
  int32_t clock_rate_khz;
  int64_t shared_memory_per_block;     /* bytes */
  int64_t shared_memory_per_block_optin; /* bytes */
  int64_t shared_memory_per_multiprocessor; /* bytes */
  int64_t l2_cache_size;               /* bytes */
  int32_t is_integrated;               /* 1 yes, 0 no */
  int32_t reserved;
} flagos_hal_device_properties;

typedef struct flagos_hal_device_api {
  size_t struct_size;

  /* HAL-DEV-01. Number of devices visible to this process; may be 0. Constant from init to shutdown.
   * Blocks: no. Errors: UNKNOWN. Required since 1.0. */
  flagos_hal_status (*count)(int32_t* out_count);

  /* HAL-DEV-02. Makes `device` current on the calling thread, for the vendor's own libraries; no HAL function
   * reads it. Setting the device that is current already costs no call into the vendor's runtime where the
   * library can know. Blocks: no, save for a context made at the first use. Errors: INVALID_DEVICE,
   * DEVICE_LOST, DEVICE_BUSY; the current device then stays. Required since 1.0. */
  flagos_hal_status (*set_current)(int32_t device);

  /* HAL-DEV-03. The calling thread's current device; 0 where none was set. Blocks: no. Required since 1.0. */
  flagos_hal_status (*get_current)(int32_t* out_device);

  /* HAL-DEV-04. Describes a device. Blocks: no. Errors: INVALID_DEVICE. Required since 1.0. */
  flagos_hal_status (*properties)(int32_t device, flagos_hal_device_properties* out_properties);

  /* HAL-DEV-05. Free and total memory of a device in bytes, as the vendor counts them (all processes).
   * free ≤ total. Blocks: no. Errors: INVALID_DEVICE, DEVICE_LOST. Required since 1.0. */
  flagos_hal_status (*memory_info)(int32_t device, uint64_t* out_free, uint64_t* out_total);

  /* HAL-DEV-06. Waits until all work queued so far on all streams of `device` has finished. Blocks: yes.
   * Errors: INVALID_DEVICE, DEVICE_LOST, or the error of work that failed asynchronously. Required since
   * 1.0. */
  flagos_hal_status (*synchronize)(int32_t device);

  /* HAL-DEV-07. OK while the device can be used, DEVICE_LOST once it cannot; clears nothing, waits for
   * nothing. Blocks: no. Errors: INVALID_DEVICE. Required since 1.0. */
  flagos_hal_status (*health)(int32_t device);
} flagos_hal_device_api;

/* -------------------------------------------------------------------------------------- group memory ---- */

typedef enum flagos_hal_copy_kind {
  FLAGOS_HAL_COPY_HOST_TO_HOST = 0,
  FLAGOS_HAL_COPY_HOST_TO_DEVICE = 1,
  FLAGOS_HAL_COPY_DEVICE_TO_HOST = 2,
  FLAGOS_HAL_COPY_DEVICE_TO_DEVICE = 3 /* within one device; between two: group peer */
} flagos_hal_copy_kind;

typedef enum flagos_hal_memory_kind {
  FLAGOS_HAL_MEMORY_UNKNOWN = 0, /* not memory that the library knows: pageable memory, or nothing at all */
  FLAGOS_HAL_MEMORY_DEVICE = 1,
  FLAGOS_HAL_MEMORY_PINNED = 2   /* from host.allocate, or registered by host.register_range */
} flagos_hal_memory_kind;

typedef struct flagos_hal_pointer_info {
  size_t struct_size;  /* in: as the caller was compiled */
  int32_t kind;        /* flagos_hal_memory_kind */
  int32_t device;      /* the owner; −1 for pinned and unknown memory */
  void* base;          /* start of the allocation; null where the library cannot tell */
  uint64_t size;       /* bytes of the allocation from `base`; 0 where the library cannot tell */
} flagos_hal_pointer_info;

typedef struct flagos_hal_memory_api {
  size_t struct_size;

  /* HAL-MEM-01. Allocates `size` bytes on `device`. Contents are undefined. Size 0 gives OK and a null
   * pointer. Owns: the caller, until release. Alignment: FLAGOS_HAL_CAP_ALIGNMENT. Blocks: may. Errors:
   * OUT_OF_MEMORY (the device stays usable and nothing was taken), INVALID_DEVICE, DEVICE_LOST. Required
   * since 1.0. */
  flagos_hal_status (*allocate)(int32_t device, uint64_t size, void** out_pointer);

  /* HAL-MEM-02. Gives back what allocate gave. The caller knows that no queued work uses it; a library that
   * can tell that some does may answer INVALID_STATE and keep it. Null is OK and does nothing; a pointer that
   * allocate did not give on `device`, or that was released, is INVALID_HANDLE. Blocks: may. Required since
   * 1.0. */
  flagos_hal_status (*release)(int32_t device, void* pointer);

  /* HAL-MEM-03. Copies `size` bytes and returns when they are there. Not ordered with any stream: the caller
   * has waited for what must be done before. The ranges do not overlap. `device` owns the device side; for
   * HOST_TO_HOST it is any valid one. Blocks: yes. Errors: INVALID_ARGUMENT (kind; null with size > 0),
   * INVALID_DEVICE, DEVICE_LOST. Required since 1.0. */
  flagos_hal_status (*copy)(int32_t device, void* destination, const void* source, uint64_t size,
                            int32_t kind);

  /* HAL-MEM-04. Queues the same copy on `stream`. Host memory stays valid and untouched until the stream has
   * passed this point, also if it is pageable; with pageable memory the call may block. Blocks: no, if the
   * host side is pinned and streams are asynchronous. Errors: as copy, and INVALID_HANDLE. Required since
   * 1.0. */
  flagos_hal_status (*copy_async)(flagos_hal_stream* stream, void* destination, const void* source,
                                  uint64_t size, int32_t kind);

  /* HAL-MEM-05. Sets `size` bytes of device memory to `value` (0 … 255; else INVALID_ARGUMENT); returns when
   * done. Not ordered with any stream. Blocks: yes. Errors: as copy. Required since 1.0. */
  flagos_hal_status (*fill)(int32_t device, void* destination, int32_t value, uint64_t size);

  /* HAL-MEM-06. Queues the same fill on `stream`. Blocks: no. Errors: as fill, and INVALID_HANDLE. Required
   * since 1.0. */
  flagos_hal_status (*fill_async)(flagos_hal_stream* stream, void* destination, int32_t value, uint64_t size);

  /* HAL-MEM-07. Says what a pointer is; any address is allowed, also inside an allocation, null, or of
   * another library. What is not known is OK with FLAGOS_HAL_MEMORY_UNKNOWN. Blocks: no. Required since
   * 1.0. */
  flagos_hal_status (*pointer_info)(const void* pointer, flagos_hal_pointer_info* out_info);
} flagos_hal_memory_api;

/* -------------------------------------------------------------------------------------- group stream ---- */

typedef struct flagos_hal_stream_options {
  size_t struct_size; /* in: as the caller was compiled */
  int32_t priority;   /* lower number = more urgent; within priority_range, else it is clamped */
  uint32_t flags;     /* 0 in 1.0 */
} flagos_hal_stream_options;

typedef struct flagos_hal_stream_api {
  size_t struct_size;

  /* HAL-STR-01. Makes a stream that runs independently of all others, the default one too. `options` null:
   * priority 0. Owns: the caller, until destroy. Blocks: may. Errors: INVALID_DEVICE, OUT_OF_MEMORY (no more
   * streams), DEVICE_LOST. Required since 1.0. */
  flagos_hal_status (*create)(int32_t device, const flagos_hal_stream_options* options,
                              flagos_hal_stream** out_stream);

  /* HAL-STR-02. Waits for the stream's work and frees it. The default stream gives INVALID_HANDLE. Blocks:
   * yes. Required since 1.0. */
  flagos_hal_status (*destroy)(flagos_hal_stream* stream);

  /* HAL-STR-03. The stream on which the vendor's libraries work when told nothing; one per device, the same
   * handle at every call and on every thread, never null. Owns: the library. Errors: INVALID_DEVICE,
   * DEVICE_LOST. Required since 1.0. */
  flagos_hal_status (*default_stream)(int32_t device, flagos_hal_stream** out_stream);

  /* HAL-STR-04. Range of priorities: `out_least` ≥ 0 ≥ `out_greatest`; both 0 where there are none.
   * Errors: INVALID_DEVICE. Required since 1.0. */
  flagos_hal_status (*priority_range)(int32_t device, int32_t* out_least, int32_t* out_greatest);

  /* HAL-STR-05. OK if all work queued so far has finished, NOT_READY if not. Blocks: no. Errors:
   * INVALID_HANDLE, DEVICE_LOST, or the error of work that failed asynchronously (once). Required since
   * 1.0. */
  flagos_hal_status (*query)(flagos_hal_stream* stream);

  /* HAL-STR-06. Waits until all work queued so far has finished. Blocks: yes. Errors: as query. Required
   * since 1.0. */
  flagos_hal_status (*synchronize)(flagos_hal_stream* stream);

  /* HAL-STR-07. Work queued on `stream` after this call starts only when `event`, as last recorded before
   * this call, is reached. An event never recorded holds nothing up. Stream and event may belong to different
   * devices. Threads: calls on one stream are ordered by the caller. Blocks: no. Errors: INVALID_HANDLE,
   * DEVICE_LOST. Required since 1.0. */
  flagos_hal_status (*wait_event)(flagos_hal_stream* stream, flagos_hal_event* event);

  /* HAL-STR-08. The vendor's own handle of the stream, for the vendor's libraries; may be null (CUDA's
   * default stream). Owns: the library. Blocks: no. Required since 1.0. */
  flagos_hal_status (*native_handle)(flagos_hal_stream* stream, void** out_handle);

  /* HAL-STR-09. The device that the stream belongs to. Blocks: no. Required since 1.0. */
  flagos_hal_status (*device)(flagos_hal_stream* stream, int32_t* out_device);

  /* HAL-STR-10. Calls `function(argument)` on a thread of the library's choice when the stream reaches this
   * point; work queued later waits until it returns. The function calls no HAL function and no interpreter.
   * It runs also if earlier work failed. Blocks: no. Errors: INVALID_HANDLE, INVALID_ARGUMENT. Optional since
   * 1.0: without it core answers UNSUPPORTED. */
  flagos_hal_status (*host_callback)(flagos_hal_stream* stream, void (*function)(void* argument),
                                     void* argument);
} flagos_hal_stream_api;

/* --------------------------------------------------------------------------------------- group event ---- */

enum {
  FLAGOS_HAL_EVENT_TIMING = 1u << 0,       /* elapsed can be asked of it */
  FLAGOS_HAL_EVENT_BLOCKING = 1u << 1,     /* synchronize sleeps rather than spins, where there is a choice */
  FLAGOS_HAL_EVENT_INTERPROCESS = 1u << 2  /* ipc.export_event can be asked of it; excludes TIMING */
};

typedef struct flagos_hal_event_api {
  size_t struct_size;

  /* HAL-EVT-01. Makes an event of `device` from FLAGOS_HAL_EVENT_… bits. Owns: the caller, until destroy.
   * Blocks: no. Errors: INVALID_DEVICE, INVALID_ARGUMENT (unknown bit, or INTERPROCESS with TIMING),
   * UNSUPPORTED (INTERPROCESS without the group ipc), OUT_OF_MEMORY. Required since 1.0. */
  flagos_hal_status (*create)(int32_t device, uint32_t flags, flagos_hal_event** out_event);

  /* HAL-EVT-02. Frees the event; work that waits for it still does. Blocks: no. Required since 1.0. */
  flagos_hal_status (*destroy)(flagos_hal_event* event);

  /* HAL-EVT-03. Records the event at the present tail of `stream`; an earlier record is forgotten. Both
   * belong to one device, else INVALID_ARGUMENT. Threads: calls on one stream are ordered by the caller.
   * Blocks: no. Errors: INVALID_HANDLE, DEVICE_LOST; on error the event keeps its state. Required since
   * 1.0. */
  flagos_hal_status (*record)(flagos_hal_event* event, flagos_hal_stream* stream);

  /* HAL-EVT-04. OK if the event, as last recorded, was reached or it was never recorded; NOT_READY if not.
   * Blocks: no. Errors: INVALID_HANDLE, DEVICE_LOST. Required since 1.0. */
  flagos_hal_status (*query)(flagos_hal_event* event);

  /* HAL-EVT-05. Waits until query would say OK. Blocks: yes. Errors: as query. Required since 1.0. */
  flagos_hal_status (*synchronize)(flagos_hal_event* event);

  /* HAL-EVT-06. Time on the device from `start` to `end` in milliseconds, written to `out_ms`; negative if
   * `end` came first. Blocks: no. Errors: NOT_READY while either is pending, INVALID_STATE if one was never
   * recorded or has no TIMING, INVALID_ARGUMENT if the devices differ, UNSUPPORTED without
   * FLAGOS_HAL_CAP_EVENT_TIMING. Required since 1.0. */
  flagos_hal_status (*elapsed)(flagos_hal_event* start, flagos_hal_event* end, double* out_ms);
} flagos_hal_event_api;

/* ------------------------------------------------------------------------ group host (optional, 1.0) ---- */

enum {
  FLAGOS_HAL_ACCESS_READ = 1u << 0,
  FLAGOS_HAL_ACCESS_WRITE = 1u << 1
};

typedef struct flagos_hal_host_api {
  size_t struct_size;

  /* HAL-HST-01. Allocates `size` bytes of host memory that all devices of this library copy from and to
   * without blocking the host. Size 0: OK and null. Owns: the caller, until release. Blocks: may. Errors:
   * OUT_OF_MEMORY. */
  flagos_hal_status (*allocate)(uint64_t size, void** out_pointer);

  /* HAL-HST-02. Gives back what allocate gave; null is OK; anything else is INVALID_HANDLE. Queued work as in
   * memory.release. Blocks: may. */
  flagos_hal_status (*release)(void* pointer);

  /* HAL-HST-03. Pins existing host memory until unregister_range. Overlap with a registered range:
   * INVALID_STATE. Size 0 or null: INVALID_ARGUMENT. Blocks: may. Optional member. */
  flagos_hal_status (*register_range)(void* pointer, uint64_t size);

  /* HAL-HST-04. Undoes register_range; `pointer` is the one given there, else INVALID_HANDLE. Blocks: may.
   * Optional member. */
  flagos_hal_status (*unregister_range)(void* pointer);

  /* HAL-HST-05. For FLAGOS_HAL_HOST_ACCESS_MANAGED: makes `size` bytes at `pointer` (within one device
   * allocation) readable or writable by the host, by FLAGOS_HAL_ACCESS_… bits; caches are made coherent.
   * Queued work that touches the range has finished. Blocks: may. Errors: INVALID_HANDLE, INVALID_ARGUMENT.
   * Optional member; required with MANAGED. */
  flagos_hal_status (*begin_access)(int32_t device, void* pointer, uint64_t size, uint32_t access);

  /* HAL-HST-06. Ends what begin_access with the same arguments began. Optional member; required with
   * MANAGED. */
  flagos_hal_status (*end_access)(int32_t device, void* pointer, uint64_t size, uint32_t access);
} flagos_hal_host_api;

/* ------------------------------------------------------------------------ group peer (optional, 1.0) ---- */

typedef struct flagos_hal_peer_api {
  size_t struct_size;

  /* HAL-PER-01. 1 if kernels of `device` can address memory of `peer`, else 0; 0 for device == peer. Blocks:
   * no. */
  flagos_hal_status (*can_access)(int32_t device, int32_t peer, int32_t* out_yes);

  /* HAL-PER-02. Lets `device` address memory of `peer`. Enabled already: OK. Errors: UNSUPPORTED where
   * can_access says 0. */
  flagos_hal_status (*enable)(int32_t device, int32_t peer);

  /* HAL-PER-03. Undoes enable; not enabled: OK. */
  flagos_hal_status (*disable)(int32_t device, int32_t peer);

  /* HAL-PER-04. Queues a copy between two devices on `stream`, which belongs to either; needs no enable.
   * Blocks: no. Errors: INVALID_HANDLE, INVALID_DEVICE, INVALID_ARGUMENT (null with size > 0, or a stream of
   * a third device), DEVICE_LOST. */
  flagos_hal_status (*copy_async)(flagos_hal_stream* stream, int32_t destination_device, void* destination,
                                  int32_t source_device, const void* source, uint64_t size);
} flagos_hal_peer_api;

/* ------------------------------------------------------------------------- group ipc (optional, 1.0) ---- */

#define FLAGOS_HAL_IPC_HANDLE_SIZE 128

typedef struct flagos_hal_ipc_handle {
  uint32_t size;                                /* bytes of `data` in use */
  uint32_t reserved;                            /* 0 */
  uint8_t data[FLAGOS_HAL_IPC_HANDLE_SIZE];     /* opaque; serves other processes of the same machine */
} flagos_hal_ipc_handle;

typedef struct flagos_hal_ipc_api {
  size_t struct_size;

  /* HAL-IPC-01. Names an allocation for other processes. `pointer` is the start of the allocation, else
   * INVALID_HANDLE. */
  flagos_hal_status (*export_memory)(int32_t device, void* pointer, flagos_hal_ipc_handle* out_handle);

  /* HAL-IPC-02. Maps another process' allocation; the pointer serves like one of allocate, but is closed by
   * close_memory. Errors: INVALID_ARGUMENT (not a handle), UNSUPPORTED (a handle of this very process, where
   * the vendor refuses it). */
  flagos_hal_status (*import_memory)(int32_t device, const flagos_hal_ipc_handle* handle, void** out_pointer);

  /* HAL-IPC-03. Unmaps what import_memory mapped; anything else is INVALID_HANDLE. */
  flagos_hal_status (*close_memory)(int32_t device, void* pointer);

  /* HAL-IPC-04. Names an event made with FLAGOS_HAL_EVENT_INTERPROCESS for other processes; else
   * INVALID_STATE. */
  flagos_hal_status (*export_event)(flagos_hal_event* event, flagos_hal_ipc_handle* out_handle);

  /* HAL-IPC-05. Opens another process' event; destroyed by event.destroy. */
  flagos_hal_status (*import_event)(int32_t device, const flagos_hal_ipc_handle* handle,
                                    flagos_hal_event** out_event);
} flagos_hal_ipc_api;

/* ----------------------------------------------------------------------- group graph (optional, 1.0) ---- */

/* While a capture runs, calls that wait for the device or change memory are unsafe: memory.allocate, release,
 * copy and fill, host.allocate and release, device.synchronize; and, of the streams and events that take
 * part, query and synchronize. An unsafe call that the mode of the capture and of the thread forbids gives
 * CAPTURE and invalidates the capture. */
typedef enum flagos_hal_capture_mode {
  FLAGOS_HAL_CAPTURE_GLOBAL = 0,       /* unsafe calls of any thread end the capture with an error */
  FLAGOS_HAL_CAPTURE_THREAD_LOCAL = 1, /* those of the capturing thread only */
  FLAGOS_HAL_CAPTURE_RELAXED = 2       /* none */
} flagos_hal_capture_mode;

typedef struct flagos_hal_graph_api {
  size_t struct_size;

  /* HAL-GRF-01. From here on work queued on `stream` is recorded, not run. Not the default stream
   * (INVALID_ARGUMENT); not while it is capturing (INVALID_STATE). An event that is recorded on it stands for
   * that point of the capture until it is recorded elsewhere: a stream that waits for it takes part in the
   * capture, and query, synchronize and elapsed give CAPTURE. */
  flagos_hal_status (*begin_capture)(flagos_hal_stream* stream, int32_t mode);

  /* HAL-GRF-02. Ends the capture and gives an executable graph; a capture that was invalidated, or in which a
   * stream that takes part has work that `stream` did not wait for, gives CAPTURE and no graph. All streams
   * are usable again. `stream` is the one of begin_capture, else INVALID_STATE. Owns: the caller, until
   * destroy. */
  flagos_hal_status (*end_capture)(flagos_hal_stream* stream, flagos_hal_graph** out_graph);

  /* HAL-GRF-03. 1 while the stream is being captured, else 0. Blocks: no. */
  flagos_hal_status (*is_capturing)(flagos_hal_stream* stream, int32_t* out_yes);

  /* HAL-GRF-04. Queues the whole graph on `stream`, of the device it was captured on. Blocks: no. */
  flagos_hal_status (*launch)(flagos_hal_graph* graph, flagos_hal_stream* stream);

  /* HAL-GRF-05. Frees the graph; launches in flight still finish. */
  flagos_hal_status (*destroy)(flagos_hal_graph* graph);

  /* HAL-GRF-06. Exchanges the calling thread's capture mode, so that an allocator can call the runtime during
   * a capture. */
  flagos_hal_status (*exchange_thread_mode)(int32_t* inout_mode);
} flagos_hal_graph_api;

/* ----------------------------------------------------------------------- group trace (optional, 1.0) ---- */

typedef enum flagos_hal_activity_kind {
  FLAGOS_HAL_ACTIVITY_KERNEL = 0,
  FLAGOS_HAL_ACTIVITY_COPY = 1,
  FLAGOS_HAL_ACTIVITY_FILL = 2,
  FLAGOS_HAL_ACTIVITY_CALLBACK = 3,
  FLAGOS_HAL_ACTIVITY_RUNTIME = 4 /* a call of the vendor's runtime on the host */
} flagos_hal_activity_kind;

typedef struct flagos_hal_activity {
  size_t struct_size;
  int32_t kind;            /* flagos_hal_activity_kind */
  int32_t device;          /* −1 for RUNTIME */
  uint64_t stream;         /* a number that identifies the stream in this trace; the thread for RUNTIME */
  uint64_t correlation;    /* the id pushed when the work was queued; 0 if none */
  int64_t start_ns;        /* on the clock of trace.now */
  int64_t end_ns;
  uint64_t bytes;          /* copies and fills; else 0 */
  const char* name;        /* valid during the callback only */
} flagos_hal_activity;

typedef struct flagos_hal_trace_api {
  size_t struct_size;

  /* HAL-TRC-01. Starts recording; INVALID_STATE if it runs already. `sink(context, activity)` is called from
   * any thread, also late, but not after stop has returned. */
  flagos_hal_status (*start)(void (*sink)(void* context, const flagos_hal_activity* activity), void* context);

  /* HAL-TRC-02. Stops recording; all activities of finished work have been delivered when it returns. Not
   * running: OK. */
  flagos_hal_status (*stop)(void);

  /* HAL-TRC-03. The trace clock now, in nanoseconds since the Unix epoch. Blocks: no. */
  flagos_hal_status (*now)(int64_t* out_ns);

  /* HAL-TRC-04. Work queued by this thread from here on carries `correlation`; 0 ends it. Returns the one
   * before. Blocks: no. */
  flagos_hal_status (*exchange_correlation)(uint64_t* inout_correlation);
} flagos_hal_trace_api;

/* ----------------------------------------------------------------- group async_alloc (optional, 1.0) ---- */

typedef struct flagos_hal_async_alloc_api {
  size_t struct_size;

  /* HAL-ASY-01. Allocates in stream order: the memory may be used by work queued on `stream` after the call.
   * Released by release_async or memory.release. Blocks: no. Errors: as memory.allocate. */
  flagos_hal_status (*allocate_async)(flagos_hal_stream* stream, uint64_t size, void** out_pointer);

  /* HAL-ASY-02. Releases when `stream` reaches this point. Blocks: no. */
  flagos_hal_status (*release_async)(flagos_hal_stream* stream, void* pointer);

  /* HAL-ASY-03. Gives memory held by the runtime's pool back, down to `keep` bytes. Blocks: may. */
  flagos_hal_status (*trim)(int32_t device, uint64_t keep);
} flagos_hal_async_alloc_api;

/* ---------------------------------------------------------------------------------------- the tables ---- */

typedef struct flagos_hal_api {
  size_t struct_size;   /* sizeof(*this) as the library was compiled */
  uint32_t abi_major;   /* FLAGOS_HAL_ABI_MAJOR as the library was compiled */
  uint32_t abi_minor;   /* FLAGOS_HAL_ABI_MINOR as the library was compiled */

  const flagos_hal_system_api* system; /* required, as the next four */
  const flagos_hal_device_api* device;
  const flagos_hal_memory_api* memory;
  const flagos_hal_stream_api* stream;
  const flagos_hal_event_api* event;

  const flagos_hal_host_api* host; /* null: the library has no such group, as the rest */
  const flagos_hal_peer_api* peer;
  const flagos_hal_ipc_api* ipc;
  const flagos_hal_graph_api* graph;
  const flagos_hal_trace_api* trace;
  const flagos_hal_async_alloc_api* async_alloc;
} flagos_hal_api;

/* HAL-QRY-01. The one export. Core states its own ABI; the library answers with tables that live as long as
 * the process, also after shutdown. A library that cannot serve `core_major` returns ABI_MISMATCH and still
 * writes `out_api` (null, or a table of which only struct_size and the version are read). Opens nothing.
 * Threads: any. Blocks: no. Errors: INVALID_ARGUMENT for a null output. */
FLAGOS_HAL_EXPORT flagos_hal_status flagos_hal_query(uint32_t core_major, uint32_t core_minor,
                                                     const flagos_hal_api** out_api);

typedef flagos_hal_status (*flagos_hal_query_fn)(uint32_t core_major, uint32_t core_minor,
                                                 const flagos_hal_api** out_api);

#ifdef __cplusplus
}
#endif

#endif /* FLAGOS_HAL_H_ */
