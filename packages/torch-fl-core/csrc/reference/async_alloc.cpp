// Group async_alloc: memory is taken at the call and given back when the stream gets there. There is no pool.
#include "csrc/reference/capture.h"
#include "csrc/reference/device.h"
#include "csrc/reference/memory.h"
#include "csrc/reference/queue.h"
#include "csrc/reference/stream.h"
#include "csrc/reference/tables.h"

namespace flagos::reference {

namespace {

flagos_hal_status allocateAsync(flagos_hal_stream* handle, uint64_t size, void** out_pointer) {
  return invokeOnStream(Function::async_alloc_allocate_async, handle, [&](Stream& stream) {
    FLAGOS_HAL_REQUIRE(out_pointer, INVALID_ARGUMENT, "out_pointer is null");
    FLAGOS_HAL_TRY(refuseCapturing(stream, "async_alloc.allocate_async"));
    return allocateOnDevice(stream.device, size, out_pointer);
  });
}

flagos_hal_status releaseAsync(flagos_hal_stream* handle, void* pointer) {
  return hal_support::releaseCall(
      functionName(Function::async_alloc_release_async), [&]() -> flagos_hal_status {
        Stream* stream = streams().find(handle);
        FLAGOS_HAL_TRY(inject(Function::async_alloc_release_async, stream ? stream->device : -1));
        if (!stream) return unknownStream(handle);
        if (!pointer) return kOk;
        FLAGOS_HAL_TRY(refuseCapturing(*stream, "async_alloc.release_async"));
        Task task = makeTask(ReleaseWork{pointer}, WorkKind::Other, Function::async_alloc_release_async);
        FLAGOS_HAL_TRY(beginRelease(stream->device, pointer));
        flagos_hal_status status;
        try {
          status = enqueue(*stream, &task, 1);
        } catch (...) {
          cancelRelease(pointer);
          throw;
        }
        if (status != kOk) cancelRelease(pointer);
        return status;
      });
}

flagos_hal_status trim(int32_t device, uint64_t keep) {
  (void)keep;  // nothing is held back that could be given
  return invoke(Function::async_alloc_trim, device, [&] { return checkDevice(device); });
}

}  // namespace

const flagos_hal_async_alloc_api kAsyncAllocApi = {sizeof(kAsyncAllocApi), allocateAsync, releaseAsync, trim};

}  // namespace flagos::reference
