/* The runtime of an imaginary chip, over host memory: what a newcomer's SDK would bring. It is strict: sizes,
 * devices and pointers are checked as a driver would, so that a HAL that calls it wrongly fails here. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kOk = 0, kInvalidValue = 1, kOutOfMemory = 2, kInvalidDevice = 101 };
enum { kDevices = 2, kMost = 4096 };
static const size_t kCapacity = (size_t)1 << 30;

static __thread int current;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  void* base;
  size_t size;
  int device;
} blocks[kMost];
static size_t used[kDevices];

const char* acmeGetErrorName(int code) {
  switch (code) {
    case kOk:
      return "acmeSuccess";
    case kInvalidValue:
      return "acmeErrorInvalidValue";
    case kOutOfMemory:
      return "acmeErrorMemoryAllocation";
    case kInvalidDevice:
      return "acmeErrorInvalidDevice";
    default:
      return "acmeErrorUnknown";
  }
}
int acmeGetDeviceCount(int* count) {
  *count = kDevices;
  return kOk;
}
int acmeSetDevice(int device) {
  if (device < 0 || device >= kDevices) return kInvalidDevice;
  current = device;
  return kOk;
}
int acmeGetDevice(int* device) {
  *device = current;
  return kOk;
}
int acmeGetDeviceName(char* name, int size, int device) {
  if (device < 0 || device >= kDevices) return kInvalidDevice;
  snprintf(name, (size_t)size, "Acme A%d", device + 1);
  return kOk;
}
int acmeMemGetInfo(size_t* free_bytes, size_t* total) {
  pthread_mutex_lock(&lock);
  *total = kCapacity;
  *free_bytes = kCapacity - used[current];
  pthread_mutex_unlock(&lock);
  return kOk;
}
int acmeMalloc(void** pointer, size_t size) {
  int code = kOutOfMemory;
  if (!pointer || size == 0) return kInvalidValue;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < kMost && size <= kCapacity - used[current]; ++i) {
    if (blocks[i].base) continue;
    if (posix_memalign(&blocks[i].base, 256, size) != 0) break;
    blocks[i].size = size;
    blocks[i].device = current;
    used[current] += size;
    *pointer = blocks[i].base;
    code = kOk;
    break;
  }
  pthread_mutex_unlock(&lock);
  return code;
}
int acmeFree(void* pointer) {
  int code = kInvalidValue;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < kMost; ++i) {
    if (!pointer || blocks[i].base != pointer || blocks[i].device != current) continue;
    used[current] -= blocks[i].size;
    free(pointer);
    blocks[i].base = NULL;
    code = kOk;
    break;
  }
  pthread_mutex_unlock(&lock);
  return code;
}
/* Whether [pointer, pointer + size) lies in one block of the current device. */
static int inside(const void* pointer, size_t size) {
  int found = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < kMost && !found; ++i) {
    const uintptr_t base = (uintptr_t)blocks[i].base, at = (uintptr_t)pointer;
    found = base && blocks[i].device == current && at >= base && size <= blocks[i].size &&
            at - base <= blocks[i].size - size;
  }
  pthread_mutex_unlock(&lock);
  return found;
}
int acmeMemcpy(void* destination, const void* source, size_t size, int kind) {
  if (kind < 0 || kind > 3 || size == 0) return kInvalidValue;
  if ((kind & 1) && !inside(destination, size)) return kInvalidValue; /* 1, 3: to the device */
  if ((kind & 2) && !inside(source, size)) return kInvalidValue;      /* 2, 3: from the device */
  memcpy(destination, source, size);
  return kOk;
}
int acmeMemset(void* destination, int value, size_t size) {
  if (!inside(destination, size)) return kInvalidValue;
  memset(destination, value, size);
  return kOk;
}
