// The group async_alloc of a runtime in CUDA's shape: memory in stream order. Included by cuda_shaped.hpp.
#pragma once

#include <memory>

#include "flagos/hal_support/hal.hpp"

namespace flagos {
namespace hal_support __attribute__((visibility("hidden"))) {

  // `V` is CudaShaped<Traits>.
  template <typename V>
  class CudaShapedAsyncAlloc {
    using Q = Queues<V>;

   public:
    static const flagos_hal_async_alloc_api* api() {
      static const flagos_hal_async_alloc_api table = {sizeof(flagos_hal_async_alloc_api), allocate, release,
                                                       trim};
      return &table;
    }

   private:
    static flagos_hal_status allocate(flagos_hal_stream* handle, uint64_t size, void** out_pointer) noexcept {
      return Q::onStream(
          "async_alloc.allocate_async", handle, [&](typename Q::Stream& stream) -> flagos_hal_status {
            FLAGOS_HAL_TRY(checkOutput(out_pointer, "out_pointer"));
            FLAGOS_HAL_REQUIRE(V::api().MallocAsync, UNSUPPORTED,
                               "the runtime has no memory in stream order");
            void* pointer = nullptr;
            if (size != 0) {
              FLAGOS_HAL_TRY(V::check(V::api().MallocAsync(&pointer, size, stream.native), "MallocAsync"));
              allocations().add(pointer, {size, stream.device});
            }
            *out_pointer = pointer;
            return FLAGOS_HAL_STATUS_OK;
          });
    }

    static flagos_hal_status release(flagos_hal_stream* handle, void* pointer) noexcept {
      return releaseCall("async_alloc.release_async", [&]() -> flagos_hal_status {
        const std::shared_ptr<typename Q::Stream> stream = Q::streams().find(handle);
        if (!stream) return Q::streams().unknown(handle);
        if (!pointer) return FLAGOS_HAL_STATUS_OK;
        FLAGOS_HAL_REQUIRE(V::api().FreeAsync, UNSUPPORTED, "the runtime has no memory in stream order");
        Allocations::Entry entry;
        FLAGOS_HAL_REQUIRE(allocations().take(pointer, stream->device, &entry), INVALID_HANDLE,
                           "%p is not the start of a live allocation of device %d", pointer, stream->device);
        const flagos_hal_status status = Devices<V>::onReleasing(stream->device, [&] {
          return V::check(V::api().FreeAsync(pointer, stream->native), "FreeAsync");
        });
        if (status != FLAGOS_HAL_STATUS_OK) allocations().add(pointer, entry);
        return status;
      });
    }

    static flagos_hal_status trim(int32_t device, uint64_t keep) noexcept {
      return call("async_alloc.trim", [&]() -> flagos_hal_status {
        return Devices<V>::on(device, [&]() -> flagos_hal_status {
          FLAGOS_HAL_REQUIRE(V::api().DeviceGetDefaultMemPool && V::api().MemPoolTrimTo, UNSUPPORTED,
                             "the runtime has no pool to trim");
          void* pool = nullptr;
          FLAGOS_HAL_TRY(
              V::check(V::api().DeviceGetDefaultMemPool(&pool, device), "DeviceGetDefaultMemPool"));
          return V::check(V::api().MemPoolTrimTo(pool, keep), "MemPoolTrimTo");
        });
      });
    }
  };

}  // namespace hal_support
}  // namespace flagos
