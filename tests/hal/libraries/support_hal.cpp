// A library made with flagos/hal_support/hal.hpp of nothing but what a vendor must write: memory of the host
// played as two devices. It is what "at most 250 lines to the first tensor" is measured on, and the
// conformance kit runs over it.
#include <cstdlib>
#include <cstring>

#include "flagos/hal_support/hal.hpp"

namespace {

using flagos::hal_support::fail;

struct Example {
  static constexpr const char* kVendor = "example";
  static constexpr const char* kVersion = "0.1.0";
  static constexpr uint64_t kCapacity = uint64_t{256} << 20;
  static inline std::atomic<uint64_t> used[2] = {};

  // The size of a block lies before it: a vendor's runtime knows that itself.
  struct Header {
    uint64_t size;
  };
  static constexpr size_t kAlignment = 256;

  static flagos_hal_status open() { return FLAGOS_HAL_STATUS_OK; }
  static void close() {}
  static flagos_hal_status count(int32_t* out) {
    *out = 2;
    return FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status properties(int32_t device, flagos_hal_device_properties* out) {
    std::snprintf(out->name, sizeof(out->name), "Example %d", device);
    out->total_memory = kCapacity;
    return FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status memoryInfo(int32_t device, uint64_t* out_free, uint64_t* out_total) {
    *out_total = kCapacity;
    *out_free = kCapacity - used[device].load();
    return FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status capability(int32_t which, int64_t* out) {
    if (which != FLAGOS_HAL_CAP_HOST_ACCESS) return FLAGOS_HAL_STATUS_UNSUPPORTED;
    *out = FLAGOS_HAL_HOST_ACCESS_COHERENT;
    return FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status allocate(int32_t device, uint64_t size, void** out) {
    if (size > kCapacity || used[device].fetch_add(size) + size > kCapacity) {
      if (size <= kCapacity) used[device].fetch_sub(size);
      return fail(FLAGOS_HAL_STATUS_OUT_OF_MEMORY, "device %d has no %llu bytes left", device,
                  static_cast<unsigned long long>(size));
    }
    const uint64_t whole = (size + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
    char* block = static_cast<char*>(std::aligned_alloc(kAlignment, whole));
    if (!block) {
      used[device].fetch_sub(size);
      return fail(FLAGOS_HAL_STATUS_OUT_OF_MEMORY, "the host has no %llu bytes left",
                  static_cast<unsigned long long>(whole));
    }
    new (block) Header{size};
    *out = block + kAlignment;
    return FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status release(int32_t device, void* pointer) {
    char* block = static_cast<char*>(pointer) - kAlignment;
    used[device].fetch_sub(reinterpret_cast<Header*>(block)->size);
    std::free(block);
    return FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status copy(int32_t, void* destination, const void* source, uint64_t size, int32_t) {
    std::memcpy(destination, source, size);
    return FLAGOS_HAL_STATUS_OK;
  }
  static flagos_hal_status fill(int32_t, void* destination, int32_t value, uint64_t size) {
    std::memset(destination, value, size);
    return FLAGOS_HAL_STATUS_OK;
  }
};

}  // namespace

FLAGOS_HAL_LIBRARY(Example)
