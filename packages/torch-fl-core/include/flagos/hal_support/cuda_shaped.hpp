// A whole HAL for a runtime in the shape of CUDA's, of which there are many: the same functions under another
// prefix. A vendor writes a record of traits:
//
//   struct Traits {
//     static constexpr const char* kVendor = "acme";
//     static constexpr const char* kVersion = "0.1.0";
//     static constexpr const char* kPrefix = "acme";            // acmeMalloc, acmeStreamCreateWithFlags, …
//     static SdkSearch search();                                // where the runtime library may be
//     static flagos_hal_status toStatus(int code);              // usually return cudaShapedStatus(code);
//     static flagos_hal_status properties(const CudaShapedApi&, int32_t device,
//                                         flagos_hal_device_properties*);
//   };
//   FLAGOS_HAL_LIBRARY(CudaShaped<Traits>)
//
// Numbers of flags and kinds are CUDA's, which the others share. Where the runtime lacks the functions of an
// optional group, they answer UNSUPPORTED.
#pragma once

#include "flagos/hal_support/cuda_shaped_async.hpp"
#include "flagos/hal_support/cuda_shaped_graph.hpp"
#include "flagos/hal_support/hal.hpp"
#include "flagos/hal_support/sdk.hpp"

#include <cstdio>
#include <cstring>

namespace flagos {
namespace hal_support __attribute__((visibility("hidden"))) {

#define FLAGOS_SDK_STRUCT CudaShapedApi
#define FLAGOS_SDK_SYMBOLS "flagos/hal_support/cuda_shaped.def"
#include "flagos/hal_support/sdk_table.hpp"

  namespace cuda_shaped {
  constexpr int kNotReady = 600;
  constexpr int kNoDevice = 100;
  constexpr int kPeerAlreadyEnabled = 704;
  constexpr int kPeerNotEnabled = 705;
  constexpr unsigned kStreamNonBlocking = 1;
  constexpr unsigned kEventBlockingSync = 1;
  constexpr unsigned kEventDisableTiming = 2;
  constexpr unsigned kHostPortable = 1;
  // The first three fields of the structure of pointer attributes, the same in all versions.
  struct PointerAttributes {
    int type;
    int device;
    unsigned char rest[248];
  };
  }  // namespace cuda_shaped

  // The class of an error number; the five families agree on these (cuda, hip, musa, mc, tops: driver_types.h
  // and its like).
  inline flagos_hal_status cudaShapedStatus(int code) noexcept {
    switch (code) {
      case 0:
        return FLAGOS_HAL_STATUS_OK;
      case 1:
        return FLAGOS_HAL_STATUS_INVALID_ARGUMENT;
      case 2:
        return FLAGOS_HAL_STATUS_OUT_OF_MEMORY;
      case 3:
      case 4:
      case 201:
        return FLAGOS_HAL_STATUS_NOT_INITIALIZED;
      case 35:
        return FLAGOS_HAL_STATUS_UNAVAILABLE;
      case 46:
        return FLAGOS_HAL_STATUS_DEVICE_BUSY;
      case cuda_shaped::kNoDevice:
      case 101:
        return FLAGOS_HAL_STATUS_INVALID_DEVICE;
      case 217:
      case 801:
        return FLAGOS_HAL_STATUS_UNSUPPORTED;
      case 400:
        return FLAGOS_HAL_STATUS_INVALID_HANDLE;
      case cuda_shaped::kNotReady:
        return FLAGOS_HAL_STATUS_NOT_READY;
      case cuda_shaped::kPeerNotEnabled:
      case 401:
      case 712:
      case 713:
        return FLAGOS_HAL_STATUS_INVALID_STATE;
      default:
        break;
    }
    // Faults after which the context is dead: illegal address, time-out, assert, hardware, launch failure.
    if (code == 700 || code == 702 || code == 709 || (code >= 710 && code <= 719))
      return FLAGOS_HAL_STATUS_DEVICE_LOST;
    if (code >= 900 && code <= 909) return FLAGOS_HAL_STATUS_CAPTURE;
    return FLAGOS_HAL_STATUS_UNKNOWN;
  }

  template <typename T>
  struct CudaShaped {
    static constexpr const char* kVendor = T::kVendor;
    static constexpr const char* kVersion = T::kVersion;
    using Stream = void*;
    using Event = void*;

    static SdkLibrary& library() {
      static SdkLibrary& opened = *new SdkLibrary;
      return opened;
    }
    static CudaShapedApi& api() {
      static CudaShapedApi& table = *new CudaShapedApi;
      return table;
    }

    // Turns the result of a call into a status and keeps the vendor's number and name. The runtime keeps a
    // failure for the thread's next GetLastError, where somebody else would find it: it is taken back.
    static flagos_hal_status check(int code, const char* call) noexcept {
      if (code == 0) return FLAGOS_HAL_STATUS_OK;
      const flagos_hal_status status = T::toStatus(code);
      api().GetLastError();
      if (status == FLAGOS_HAL_STATUS_NOT_READY) return status;  // an answer, which leaves no detail
      const char* name = api().GetErrorName ? api().GetErrorName(code) : "";
      const char* text = api().GetErrorString(code);
      return failVendor(status, code, name ? name : "", "%s%s failed: %s", T::kPrefix, call,
                        text ? text : "");
    }
#define FLAGOS_CUDA_SHAPED(function, ...) check(api().function(__VA_ARGS__), #function)

    static flagos_hal_status open() {
      FLAGOS_HAL_TRY(library().open(T::search()));
      return api().load(library(), T::kPrefix);
    }
    // The runtime stays loaded: it has threads and exit handlers of its own.
    static void close() { CudaShapedGraphs<CudaShaped>::close(); }

    static const flagos_hal_graph_api* graph() { return CudaShapedGraphs<CudaShaped>::api(); }
    static const flagos_hal_async_alloc_api* asyncAlloc() { return CudaShapedAsyncAlloc<CudaShaped>::api(); }

    static flagos_hal_status info(flagos_hal_info* out) {
      static char runtime[32];
      static char driver[32];
      out->sdk_path = library().path();
      out->sdk_version = versionText(api().RuntimeGetVersion, runtime);
      out->driver_version = versionText(api().DriverGetVersion, driver);
      return FLAGOS_HAL_STATUS_OK;
    }

    static flagos_hal_status count(int32_t* out) {
      const int code = api().GetDeviceCount(out);
      if (code != cuda_shaped::kNoDevice) return check(code, "GetDeviceCount");
      api().GetLastError();
      *out = 0;
      return FLAGOS_HAL_STATUS_OK;
    }
    static flagos_hal_status setCurrent(int32_t device) { return FLAGOS_CUDA_SHAPED(SetDevice, device); }
    static flagos_hal_status getCurrent(int32_t* out) { return FLAGOS_CUDA_SHAPED(GetDevice, out); }
    static flagos_hal_status synchronize(int32_t) {
      return check(api().DeviceSynchronize(), "DeviceSynchronize");
    }
    // A dead context answers every query with the error that killed it.
    static flagos_hal_status health(int32_t) {
      const flagos_hal_status status = FLAGOS_CUDA_SHAPED(StreamQuery, nullptr);
      return status == FLAGOS_HAL_STATUS_DEVICE_LOST ? status : FLAGOS_HAL_STATUS_OK;
    }
    static flagos_hal_status properties(int32_t device, flagos_hal_device_properties* out) {
      FLAGOS_HAL_TRY(T::properties(api(), device, out));
      if (out->total_memory == 0) {
        size_t free = 0;
        size_t total = 0;
        FLAGOS_HAL_TRY(FLAGOS_CUDA_SHAPED(MemGetInfo, &free, &total));
        out->total_memory = static_cast<int64_t>(total);
      }
      if (api().DeviceGetPCIBusId &&
          api().DeviceGetPCIBusId(out->pci_bus_id, sizeof(out->pci_bus_id), device) != 0) {
        api().GetLastError();
        out->pci_bus_id[0] = '\0';
      }
      return FLAGOS_HAL_STATUS_OK;
    }
    static flagos_hal_status memoryInfo(int32_t, uint64_t* out_free, uint64_t* out_total) {
      size_t free = 0;
      size_t total = 0;
      FLAGOS_HAL_TRY(FLAGOS_CUDA_SHAPED(MemGetInfo, &free, &total));
      *out_free = free;
      *out_total = total;
      return FLAGOS_HAL_STATUS_OK;
    }
    static flagos_hal_status capability(int32_t which, int64_t* out) {
      if (which == FLAGOS_HAL_CAP_POINTER_INFO) {
        *out = api().PointerGetAttributes != nullptr;
        return FLAGOS_HAL_STATUS_OK;
      }
      return FLAGOS_HAL_STATUS_INVALID_ARGUMENT;
    }

    static flagos_hal_status allocate(int32_t, uint64_t size, void** out) {
      return FLAGOS_CUDA_SHAPED(Malloc, out, size);
    }
    static flagos_hal_status release(int32_t, void* pointer) { return FLAGOS_CUDA_SHAPED(Free, pointer); }
    // Of the blocking copies only the one to the host is over when it returns: a copy within the device, and
    // one from pageable memory, still run (CUDA: "API synchronization behavior"). So is a fill.
    static flagos_hal_status copy(int32_t, void* destination, const void* source, uint64_t size,
                                  int32_t kind) {
      FLAGOS_HAL_TRY(FLAGOS_CUDA_SHAPED(Memcpy, destination, source, size, kind));
      if (kind == FLAGOS_HAL_COPY_DEVICE_TO_HOST || kind == FLAGOS_HAL_COPY_HOST_TO_HOST)
        return FLAGOS_HAL_STATUS_OK;
      return FLAGOS_CUDA_SHAPED(StreamSynchronize, nullptr);
    }
    static flagos_hal_status fill(int32_t, void* destination, int32_t value, uint64_t size) {
      FLAGOS_HAL_TRY(FLAGOS_CUDA_SHAPED(Memset, destination, value, size));
      return FLAGOS_CUDA_SHAPED(StreamSynchronize, nullptr);
    }
    static flagos_hal_status pointerInfo(const void* pointer, flagos_hal_pointer_info* out) {
      if (!api().PointerGetAttributes) return FLAGOS_HAL_STATUS_OK;
      cuda_shaped::PointerAttributes attributes = {};
      if (api().PointerGetAttributes(&attributes, pointer) != 0) {  // some say so of memory they do not know
        api().GetLastError();
        return FLAGOS_HAL_STATUS_OK;
      }
      if (attributes.type == 1) out->kind = FLAGOS_HAL_MEMORY_PINNED;
      if (attributes.type == 2 || attributes.type == 3) {
        out->kind = FLAGOS_HAL_MEMORY_DEVICE;
        out->device = attributes.device;
      }
      return FLAGOS_HAL_STATUS_OK;
    }

    static flagos_hal_status hostAllocate(uint64_t size, void** out) {
      return FLAGOS_CUDA_SHAPED(HostAlloc, out, size, cuda_shaped::kHostPortable);
    }
    static flagos_hal_status hostRelease(void* pointer) { return FLAGOS_CUDA_SHAPED(FreeHost, pointer); }
    static flagos_hal_status hostRegister(void* pointer, uint64_t size) {
      return FLAGOS_CUDA_SHAPED(HostRegister, pointer, size, cuda_shaped::kHostPortable);
    }
    static flagos_hal_status hostUnregister(void* pointer) {
      return FLAGOS_CUDA_SHAPED(HostUnregister, pointer);
    }

    static flagos_hal_status peerCanAccess(int32_t device, int32_t peer, int32_t* out) {
      return FLAGOS_CUDA_SHAPED(DeviceCanAccessPeer, out, device, peer);
    }
    static flagos_hal_status peerEnable(int32_t, int32_t peer) {
      return unless(cuda_shaped::kPeerAlreadyEnabled, api().DeviceEnablePeerAccess(peer, 0),
                    "DeviceEnablePeerAccess");
    }
    static flagos_hal_status peerDisable(int32_t, int32_t peer) {
      return unless(cuda_shaped::kPeerNotEnabled, api().DeviceDisablePeerAccess(peer),
                    "DeviceDisablePeerAccess");
    }
    static flagos_hal_status peerCopyAsync(Stream stream, int32_t destination_device, void* destination,
                                           int32_t source_device, const void* source, uint64_t size) {
      return FLAGOS_CUDA_SHAPED(MemcpyPeerAsync, destination, destination_device, source, source_device, size,
                                stream);
    }

    static flagos_hal_status priorityRange(int32_t, int32_t* least, int32_t* greatest) {
      if (!api().DeviceGetStreamPriorityRange || !api().StreamCreateWithPriority) return FLAGOS_HAL_STATUS_OK;
      return FLAGOS_CUDA_SHAPED(DeviceGetStreamPriorityRange, least, greatest);
    }
    // Not blocking: a stream does not wait for the default one, nor that one for it.
    static flagos_hal_status createStream(int32_t, int32_t priority, Stream* out) {
      constexpr unsigned kFlags = cuda_shaped::kStreamNonBlocking;
      if (!api().StreamCreateWithPriority) return FLAGOS_CUDA_SHAPED(StreamCreateWithFlags, out, kFlags);
      return FLAGOS_CUDA_SHAPED(StreamCreateWithPriority, out, kFlags, priority);
    }
    static flagos_hal_status destroyStream(Stream stream) {
      return FLAGOS_CUDA_SHAPED(StreamDestroy, stream);
    }
    static flagos_hal_status defaultStream(int32_t, Stream* out) {
      *out = nullptr;
      return FLAGOS_HAL_STATUS_OK;
    }
    static flagos_hal_status queryStream(Stream stream) { return FLAGOS_CUDA_SHAPED(StreamQuery, stream); }
    static flagos_hal_status synchronizeStream(Stream stream) {
      return FLAGOS_CUDA_SHAPED(StreamSynchronize, stream);
    }
    static flagos_hal_status waitEvent(Stream stream, Event event) {
      return FLAGOS_CUDA_SHAPED(StreamWaitEvent, stream, event, 0u);
    }
    static void* nativeHandle(Stream stream) { return stream; }
    static flagos_hal_status copyAsync(Stream stream, void* destination, const void* source, uint64_t size,
                                       int32_t kind) {
      return FLAGOS_CUDA_SHAPED(MemcpyAsync, destination, source, size, kind, stream);
    }
    static flagos_hal_status fillAsync(Stream stream, void* destination, int32_t value, uint64_t size) {
      return FLAGOS_CUDA_SHAPED(MemsetAsync, destination, value, size, stream);
    }
    static flagos_hal_status hostCallback(Stream stream, void (*function)(void*), void* argument) {
      return FLAGOS_CUDA_SHAPED(LaunchHostFunc, stream, function, argument);
    }

    static flagos_hal_status createEvent(int32_t, uint32_t flags, Event* out) {
      unsigned native = flags & FLAGOS_HAL_EVENT_TIMING ? 0u : cuda_shaped::kEventDisableTiming;
      if (flags & FLAGOS_HAL_EVENT_BLOCKING) native |= cuda_shaped::kEventBlockingSync;
      return FLAGOS_CUDA_SHAPED(EventCreateWithFlags, out, native);
    }
    static flagos_hal_status destroyEvent(Event event) { return FLAGOS_CUDA_SHAPED(EventDestroy, event); }
    static flagos_hal_status recordEvent(Event event, Stream stream) {
      return FLAGOS_CUDA_SHAPED(EventRecord, event, stream);
    }
    static flagos_hal_status queryEvent(Event event) { return FLAGOS_CUDA_SHAPED(EventQuery, event); }
    static flagos_hal_status synchronizeEvent(Event event) {
      return FLAGOS_CUDA_SHAPED(EventSynchronize, event);
    }
    static flagos_hal_status elapsed(Event start, Event end, double* out) {
      float milliseconds = 0;
      FLAGOS_HAL_TRY(FLAGOS_CUDA_SHAPED(EventElapsedTime, &milliseconds, start, end));
      *out = milliseconds;
      return FLAGOS_HAL_STATUS_OK;
    }

   private:
    // For calls that say with an error that there was nothing to do.
    static flagos_hal_status unless(int nothing_to_do, int code, const char* call) {
      if (code != nothing_to_do) return check(code, call);
      api().GetLastError();
      return FLAGOS_HAL_STATUS_OK;
    }
    // "13.0" of 13000; "" where the runtime does not tell.
    static const char* versionText(int (*get)(int*), char (&text)[32]) {
      int version = 0;
      if (get == nullptr || get(&version) != 0) return "";
      std::snprintf(text, sizeof(text), "%d.%d", version / 1000, version % 1000 / 10);
      return text;
    }
#undef FLAGOS_CUDA_SHAPED
  };

}  // namespace hal_support
}  // namespace flagos
