/* A library whose tables a test arranges: -DARRANGE='MEMORY.copy = 0;' runs these statements before query
 * hands the tables out. Every function answers OK; the few that core calls while it opens and initialises a
 * library are real. */
#include <stdlib.h>
#include <string.h>

#include "flagos/hal.h"

#ifndef ARRANGE
#define ARRANGE
#endif
#ifndef ANSWER
#define ANSWER FLAGOS_HAL_STATUS_OK
#endif
#ifndef TABLES
#define TABLES &API
#endif

typedef void (*later_function)(void);

/* What a library of a later minor has: the tables of today with more behind them. */
#define LATER(group)              \
  static struct {                 \
    flagos_hal_##group##_api now; \
    later_function later[3];      \
  } group##_table;
LATER(system)
LATER(device)
LATER(memory)
LATER(stream)
LATER(event)
LATER(host)
LATER(peer)
static struct {
  flagos_hal_api now;
  const void* later[2];
} api_table;

#define SYSTEM system_table.now
#define DEVICE device_table.now
#define MEMORY memory_table.now
#define STREAM stream_table.now
#define EVENT event_table.now
#define HOST host_table.now
#define PEER peer_table.now
#define API api_table.now

static flagos_hal_status answer(void) { return FLAGOS_HAL_STATUS_OK; }

static flagos_hal_status none_failed(flagos_hal_error* out_error) {
  flagos_hal_error none = {0};
  none.struct_size = out_error->struct_size;
  none.vendor_name = none.message = none.function = "";
  memcpy(out_error, &none, out_error->struct_size < sizeof(none) ? out_error->struct_size : sizeof(none));
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status one(int32_t* out_count) {
  *out_count = 1;
  return FLAGOS_HAL_STATUS_OK;
}

static flagos_hal_status allocate(int32_t index, uint64_t size, void** out_pointer) {
  (void)index;
  *out_pointer = size ? malloc(size) : 0;
  return FLAGOS_HAL_STATUS_OK;
}

/* Puts `answer` into every member behind struct_size. */
static void fill_table(void* table, size_t size) {
  size_t at;
  const later_function function = (later_function)answer;
  *(size_t*)table = size;
  for (at = sizeof(size_t); at < size; at += sizeof(function))
    memcpy((char*)table + at, &function, sizeof(function));
}

FLAGOS_HAL_EXPORT flagos_hal_status flagos_hal_query(uint32_t core_major, uint32_t core_minor,
                                                     const flagos_hal_api** out_api) {
  (void)core_major;
  (void)core_minor;
  fill_table(&SYSTEM, sizeof(SYSTEM));
  fill_table(&DEVICE, sizeof(DEVICE));
  fill_table(&MEMORY, sizeof(MEMORY));
  fill_table(&STREAM, sizeof(STREAM));
  fill_table(&EVENT, sizeof(EVENT));
  fill_table(&HOST, sizeof(HOST));
  fill_table(&PEER, sizeof(PEER));
  SYSTEM.last_error = none_failed;
  DEVICE.count = one;
  MEMORY.allocate = allocate;
  API.struct_size = sizeof(API);
  API.abi_major = FLAGOS_HAL_ABI_MAJOR;
  API.abi_minor = FLAGOS_HAL_ABI_MINOR;
  API.system = &SYSTEM;
  API.device = &DEVICE;
  API.memory = &MEMORY;
  API.stream = &STREAM;
  API.event = &EVENT;
  ARRANGE
  *out_api = TABLES;
  return ANSWER;
}
