/* Core's loader and its validating and tracing layers as a plain C library, libflagos_hal_layers.so, for
 * callers without torch: the conformance kit and other tools that reach a HAL library through ctypes. Built
 * of the same sources that core uses.
 *
 *   api = flagos_layers_open("acme", "/…/libflagos_hal_acme.so", FLAGOS_LAYERS_VALIDATE, NULL);
 *   if (!api) puts(flagos_layers_error());
 *
 * The tables behave as those of a library: call system.init first. Optional groups that the library lacks are
 * null, and every member of the others can be called (a missing one answers UNSUPPORTED). */
#ifndef FLAGOS_LAYERS_API_H_
#define FLAGOS_LAYERS_API_H_

#include "flagos/hal.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  FLAGOS_LAYERS_VALIDATE = 1u << 0, /* check arguments, handles, lifetimes and threads around every call */
  FLAGOS_LAYERS_TRACE = 1u << 1,    /* write one line per call */
  FLAGOS_LAYERS_PRIVATE_COPY = 1u
      << 2, /* a second, independent instance of a library that may be loaded already */
  FLAGOS_LAYERS_QUIET = 1u
      << 3 /* the validating layer writes nothing to standard error; statuses and last_error only */
};

/* Why an open failed: the values of hal::LoadError::Kind. */
enum {
  FLAGOS_LAYERS_NOT_FOUND = 0,
  FLAGOS_LAYERS_NOT_A_LIBRARY = 1,
  FLAGOS_LAYERS_NO_ENTRY_POINT = 2,
  FLAGOS_LAYERS_ABI_REFUSED = 3,
  FLAGOS_LAYERS_BAD_TABLE = 4,
  FLAGOS_LAYERS_INIT_FAILED = 5
};

/* Opens the library at `path` under the backend name `name` and negotiates the ABI; calls nothing but query.
 * `trace_path` is the file the trace is appended to; null or "": standard error. Returns tables that live as
 * long as the process, or null: flagos_layers_error and flagos_layers_error_kind then say why. The same
 * arguments give the same tables again, save that each private copy is a new library. */
FLAGOS_HAL_EXPORT const flagos_hal_api* flagos_layers_open(const char* name, const char* path, uint32_t flags,
                                                           const char* trace_path);

/* The reason of this thread's last failed open, one or more sentences; "" if none failed. Valid until the
 * next one. */
FLAGOS_HAL_EXPORT const char* flagos_layers_error(void);

/* Its kind, FLAGOS_LAYERS_…; -1 if none failed. */
FLAGOS_HAL_EXPORT int32_t flagos_layers_error_kind(void);

/* Violations that the validating layer has found in this process in calls to `api` (tables from
 * flagos_layers_open); leaks at shutdown count one per object. 0 for tables without that layer. */
FLAGOS_HAL_EXPORT uint64_t flagos_layers_violations(const flagos_hal_api* api);

#ifdef __cplusplus
}
#endif

#endif /* FLAGOS_LAYERS_API_H_ */
