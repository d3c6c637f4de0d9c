// The groups system, device, memory, host and peer of hal.hpp, and the table of tables. A vendor adds, if it
// can,
//
// the group host, both:
//   static flagos_hal_status hostAllocate(uint64_t size, void** out);
//   static flagos_hal_status hostRelease(void* pointer);
// and for ranges of its own, both:
//   static flagos_hal_status hostRegister(void* pointer, uint64_t size);
//   static flagos_hal_status hostUnregister(void* pointer);
// the group peer, all four:
//   static flagos_hal_status peerCanAccess(int32_t device, int32_t peer, int32_t* out_yes);
//   static flagos_hal_status peerEnable(int32_t device, int32_t peer);   // enabled already: OK
//   static flagos_hal_status peerDisable(int32_t device, int32_t peer);
//   static flagos_hal_status peerCopyAsync(Stream, int32_t destination_device, void* destination,
//                                          int32_t source_device, const void* source, uint64_t size);
//
// Included by hal.hpp.
#pragma once

#include "flagos/hal_support/queues.hpp"

namespace flagos {
namespace hal_support __attribute__((visibility("hidden"))) {

  FLAGOS_HAL_DETECT(HasHostAllocate, hostAllocate)
  FLAGOS_HAL_DETECT(HasHostRegister, hostRegister)
  FLAGOS_HAL_DETECT(HasPeerCopy, peerCopyAsync)

  template <typename V>
  class Groups {
    using D = Devices<V>;
    using Q = Queues<V>;

   public:
    static const flagos_hal_system_api* systemApi() {
      static const flagos_hal_system_api api = {
          sizeof(flagos_hal_system_api), init, shutdown, info, lastErrorOf, capability};
      return &api;
    }
    static const flagos_hal_device_api* deviceApi() {
      static const flagos_hal_device_api api = {sizeof(flagos_hal_device_api),
                                                count,
                                                setCurrent,
                                                getCurrent,
                                                properties,
                                                memoryInfo,
                                                synchronize,
                                                health};
      return &api;
    }
    static const flagos_hal_memory_api* memoryApi() {
      static const flagos_hal_memory_api api = {sizeof(flagos_hal_memory_api),
                                                allocate,
                                                release,
                                                copy,
                                                Q::copyAsync,
                                                fill,
                                                Q::fillAsync,
                                                pointerInfo};
      return &api;
    }
    static const flagos_hal_host_api* hostApi() {
      if constexpr (HasHostAllocate<V>::value) {
        static const flagos_hal_host_api api = {
            sizeof(flagos_hal_host_api), hostAllocate, hostRelease, registerRange(),
            unregisterRange(),           nullptr,      nullptr};
        return &api;
      } else {
        return nullptr;
      }
    }
    static const flagos_hal_peer_api* peerApi() {
      if constexpr (HasPeerCopy<V>::value) {
        static const flagos_hal_peer_api api = {sizeof(flagos_hal_peer_api), canAccess, enable, disable,
                                                peerCopyAsync};
        return &api;
      } else {
        return nullptr;
      }
    }

   private:
    static flagos_hal_status init() noexcept {
      return state().init([] { return D::open(); });
    }

    static flagos_hal_status shutdown() noexcept {
      return state().shutdown([] {
        Q::close();
        for (const auto& [base, entry] : allocations().takeAll()) {
          void* pointer = reinterpret_cast<void*>(base);
          if (entry.device != Allocations::kHost) {
            static_cast<void>(D::onReleasing(
                entry.device, [&, device = entry.device] { return V::release(device, pointer); }));
          } else if constexpr (HasHostAllocate<V>::value) {
            static_cast<void>(V::hostRelease(pointer));
          }
        }
        V::close();
      });
    }

    static flagos_hal_status info(flagos_hal_info* out_info) noexcept {
      return callAnytime("system.info", [&]() -> flagos_hal_status {
        flagos_hal_info full = {};
        full.vendor = V::kVendor;
        full.library_version = V::kVersion;
        full.sdk_version = full.driver_version = full.sdk_path = "";
        if constexpr (HasInfo<V>::value) {
          if (state().ready()) FLAGOS_HAL_TRY(V::info(&full));
        }
        return writeSized(out_info, full);
      });
    }

    static flagos_hal_status lastErrorOf(flagos_hal_error* out_error) noexcept {
      return lastError(out_error);
    }

    static flagos_hal_status capability(int32_t which, int64_t* out_value) noexcept {
      return call("system.capability", [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(out_value, "out_value"));
        int64_t value = 0;
        switch (which) {
          case FLAGOS_HAL_CAP_HOST_ACCESS:
            value = FLAGOS_HAL_HOST_ACCESS_NONE;
            break;
          case FLAGOS_HAL_CAP_ALIGNMENT:
            value = 256;
            break;
          case FLAGOS_HAL_CAP_ASYNC_STREAMS:
            value = HasQueues<V>::value;
            break;
          case FLAGOS_HAL_CAP_EVENT_TIMING:
            value = 1;
            break;
          case FLAGOS_HAL_CAP_MAX_STREAMS:
            value = 0;
            break;
          case FLAGOS_HAL_CAP_POINTER_INFO:
            value = HasPointerInfo<V>::value;
            break;
          default:
            return fail(FLAGOS_HAL_STATUS_INVALID_ARGUMENT,
                        "%d is not a flagos_hal_capability of HAL ABI 1.0", which);
        }
        if constexpr (HasCapability<V>::value) {
          int64_t own = 0;
          if (V::capability(which, &own) == FLAGOS_HAL_STATUS_OK) value = own;
        }
        *out_value = value;
        return FLAGOS_HAL_STATUS_OK;
      });
    }

    static flagos_hal_status count(int32_t* out_count) noexcept {
      return call("device.count", [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(out_count, "out_count"));
        *out_count = D::count();
        return FLAGOS_HAL_STATUS_OK;
      });
    }
    static flagos_hal_status setCurrent(int32_t device) noexcept {
      return call("device.set_current", [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(D::check(device));
        return D::setCurrent(device);
      });
    }
    static flagos_hal_status getCurrent(int32_t* out_device) noexcept {
      return call("device.get_current", [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(out_device, "out_device"));
        return D::getCurrent(out_device);
      });
    }
    static flagos_hal_status properties(int32_t device, flagos_hal_device_properties* out) noexcept {
      return call("device.properties", [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(out, "out_properties"));
        flagos_hal_device_properties full = {};
        full.capability_major = full.capability_minor = full.multiprocessor_count = full.warp_size =
            FLAGOS_HAL_UNKNOWN;
        full.max_threads_per_block = full.max_threads_per_multiprocessor = FLAGOS_HAL_UNKNOWN;
        full.registers_per_multiprocessor = full.clock_rate_khz = full.is_integrated = FLAGOS_HAL_UNKNOWN;
        full.shared_memory_per_block = full.shared_memory_per_block_optin = FLAGOS_HAL_UNKNOWN;
        full.shared_memory_per_multiprocessor = full.l2_cache_size = FLAGOS_HAL_UNKNOWN;
        FLAGOS_HAL_TRY(D::on(device, [&] { return V::properties(device, &full); }));
        return writeSized(out, full);
      });
    }
    static flagos_hal_status memoryInfo(int32_t device, uint64_t* out_free, uint64_t* out_total) noexcept {
      return call("device.memory_info", [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(out_free, "out_free"));
        FLAGOS_HAL_TRY(checkOutput(out_total, "out_total"));
        uint64_t free_bytes = 0;
        uint64_t total = 0;
        FLAGOS_HAL_TRY(D::on(device, [&] { return V::memoryInfo(device, &free_bytes, &total); }));
        *out_free = free_bytes < total ? free_bytes : total;
        *out_total = total;
        return FLAGOS_HAL_STATUS_OK;
      });
    }
    static flagos_hal_status synchronize(int32_t device) noexcept {
      return call("device.synchronize", [&] {
        return D::on(device, [&] {
          if constexpr (HasSynchronize<V>::value) {
            return V::synchronize(device);
          } else {
            return Q::synchronizeDevice(device);
          }
        });
      });
    }
    static flagos_hal_status health(int32_t device) noexcept {
      return call("device.health", [&] {
        return D::on(device, [&]() -> flagos_hal_status {
          if constexpr (HasHealth<V>::value) return V::health(device);
          return FLAGOS_HAL_STATUS_OK;
        });
      });
    }

    static flagos_hal_status allocate(int32_t device, uint64_t size, void** out_pointer) noexcept {
      return call("memory.allocate", [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(out_pointer, "out_pointer"));
        void* pointer = nullptr;
        FLAGOS_HAL_TRY(D::on(
            device, [&] { return size == 0 ? FLAGOS_HAL_STATUS_OK : V::allocate(device, size, &pointer); }));
        if (pointer) allocations().add(pointer, {size, device});
        *out_pointer = pointer;
        return FLAGOS_HAL_STATUS_OK;
      });
    }
    static flagos_hal_status release(int32_t device, void* pointer) noexcept {
      return releaseCall("memory.release", [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(D::check(device));
        if (!pointer) return FLAGOS_HAL_STATUS_OK;
        Allocations::Entry entry;
        FLAGOS_HAL_REQUIRE(allocations().take(pointer, device, &entry), INVALID_HANDLE,
                           "%p is not the start of a live allocation of device %d", pointer, device);
        const flagos_hal_status status = D::onReleasing(device, [&] { return V::release(device, pointer); });
        if (status != FLAGOS_HAL_STATUS_OK) allocations().add(pointer, entry);
        return status;
      });
    }
    static flagos_hal_status copy(int32_t device, void* destination, const void* source, uint64_t size,
                                  int32_t kind) noexcept {
      return call("memory.copy", [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkCopy(destination, source, size, kind));
        return D::on(device, [&] {
          return size == 0 ? FLAGOS_HAL_STATUS_OK : V::copy(device, destination, source, size, kind);
        });
      });
    }
    static flagos_hal_status fill(int32_t device, void* destination, int32_t value, uint64_t size) noexcept {
      return call("memory.fill", [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkFill(destination, value, size));
        return D::on(device, [&] {
          return size == 0 ? FLAGOS_HAL_STATUS_OK : V::fill(device, destination, value, size);
        });
      });
    }
    static flagos_hal_status pointerInfo(const void* pointer, flagos_hal_pointer_info* out_info) noexcept {
      return call("memory.pointer_info", [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(out_info, "out_info"));
        flagos_hal_pointer_info full = {};
        full.kind = FLAGOS_HAL_MEMORY_UNKNOWN;
        full.device = -1;
        Allocations::Entry entry;
        const void* base = nullptr;
        if (pointer && allocations().around(pointer, &base, &entry)) {
          full.kind =
              entry.device == Allocations::kHost ? FLAGOS_HAL_MEMORY_PINNED : FLAGOS_HAL_MEMORY_DEVICE;
          full.device = entry.device;
          full.base = const_cast<void*>(base);
          full.size = entry.size;
        } else if constexpr (HasPointerInfo<V>::value) {
          if (pointer) FLAGOS_HAL_TRY(V::pointerInfo(pointer, &full));
        }
        return writeSized(out_info, full);
      });
    }

    static flagos_hal_status hostAllocate(uint64_t size, void** out_pointer) noexcept {
      return call("host.allocate", [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(out_pointer, "out_pointer"));
        void* pointer = nullptr;
        if (size != 0) {
          FLAGOS_HAL_TRY(V::hostAllocate(size, &pointer));
          allocations().add(pointer, {size, Allocations::kHost});
        }
        *out_pointer = pointer;
        return FLAGOS_HAL_STATUS_OK;
      });
    }
    static flagos_hal_status hostRelease(void* pointer) noexcept {
      return releaseCall("host.release", [&]() -> flagos_hal_status {
        if (!pointer) return FLAGOS_HAL_STATUS_OK;
        Allocations::Entry entry;
        FLAGOS_HAL_REQUIRE(allocations().take(pointer, Allocations::kHost, &entry), INVALID_HANDLE,
                           "%p is not the start of live pinned memory", pointer);
        const flagos_hal_status status = V::hostRelease(pointer);
        if (status != FLAGOS_HAL_STATUS_OK) allocations().add(pointer, entry);
        return status;
      });
    }

    // Ranges registered by host.register_range, by start.
    static Allocations& registered() {
      static Allocations& all = *new Allocations;
      return all;
    }
    static flagos_hal_status (*registerRange())(void*, uint64_t) {
      if constexpr (HasHostRegister<V>::value) {
        return [](void* pointer, uint64_t size) noexcept {
          return call("host.register_range", [&]() -> flagos_hal_status {
            FLAGOS_HAL_REQUIRE(pointer && size != 0, INVALID_ARGUMENT,
                               "nothing to register: %" PRIu64 " bytes at %p", size, pointer);
            FLAGOS_HAL_REQUIRE(!registered().overlaps(pointer, size), INVALID_STATE,
                               "%" PRIu64 " bytes at %p overlap a registered range", size, pointer);
            FLAGOS_HAL_TRY(V::hostRegister(pointer, size));
            registered().add(pointer, {size, Allocations::kHost});
            return FLAGOS_HAL_STATUS_OK;
          });
        };
      } else {
        return nullptr;
      }
    }
    static flagos_hal_status (*unregisterRange())(void*) {
      if constexpr (HasHostRegister<V>::value) {
        return [](void* pointer) noexcept {
          return releaseCall("host.unregister_range", [&]() -> flagos_hal_status {
            Allocations::Entry entry;
            FLAGOS_HAL_REQUIRE(registered().take(pointer, Allocations::kHost, &entry), INVALID_HANDLE,
                               "%p is not the start of a registered range", pointer);
            const flagos_hal_status status = V::hostUnregister(pointer);
            if (status != FLAGOS_HAL_STATUS_OK) registered().add(pointer, entry);
            return status;
          });
        };
      } else {
        return nullptr;
      }
    }

    // The group peer is instantiated only for vendors that have it.
    template <typename Body>
    static flagos_hal_status withPeer(const char* function, int32_t device, int32_t peer,
                                      Body&& body) noexcept {
      return call(function, [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(D::check(peer));
        return D::on(device, std::forward<Body>(body));
      });
    }
    static flagos_hal_status canAccess(int32_t device, int32_t peer, int32_t* out_yes) noexcept {
      return withPeer("peer.can_access", device, peer, [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(out_yes, "out_yes"));
        int32_t yes = 0;
        if (device != peer) FLAGOS_HAL_TRY(V::peerCanAccess(device, peer, &yes));
        *out_yes = yes != 0;
        return FLAGOS_HAL_STATUS_OK;
      });
    }
    static flagos_hal_status enable(int32_t device, int32_t peer) noexcept {
      return withPeer("peer.enable", device, peer, [&]() -> flagos_hal_status {
        int32_t yes = 0;
        if (device != peer) FLAGOS_HAL_TRY(V::peerCanAccess(device, peer, &yes));
        FLAGOS_HAL_REQUIRE(yes, UNSUPPORTED, "device %d cannot address memory of device %d", device, peer);
        return V::peerEnable(device, peer);
      });
    }
    static flagos_hal_status disable(int32_t device, int32_t peer) noexcept {
      return withPeer("peer.disable", device, peer,
                      [&] { return device == peer ? FLAGOS_HAL_STATUS_OK : V::peerDisable(device, peer); });
    }
    static flagos_hal_status peerCopyAsync(flagos_hal_stream* handle, int32_t destination_device,
                                           void* destination, int32_t source_device, const void* source,
                                           uint64_t size) noexcept {
      return Q::onStream("peer.copy_async", handle, [&](typename Q::Stream& stream) -> flagos_hal_status {
        FLAGOS_HAL_TRY(D::check(destination_device));
        FLAGOS_HAL_TRY(D::check(source_device));
        FLAGOS_HAL_REQUIRE(stream.device == destination_device || stream.device == source_device,
                           INVALID_ARGUMENT,
                           "the stream is of device %d, the copy goes from device %d to device %d",
                           stream.device, source_device, destination_device);
        FLAGOS_HAL_REQUIRE((destination && source) || size == 0, INVALID_ARGUMENT,
                           "destination %p or source %p is null, with %" PRIu64 " bytes", destination, source,
                           size);
        if (size == 0) return FLAGOS_HAL_STATUS_OK;
        return V::peerCopyAsync(stream.native, destination_device, destination, source_device, source, size);
      });
    }
  };

  // The tables of a library. They live as long as the process.
  template <typename V>
  const flagos_hal_api* apiOf() {
    static const flagos_hal_api api = [] {
      flagos_hal_api tables = {};
      tables.struct_size = sizeof(tables);
      tables.abi_major = FLAGOS_HAL_ABI_MAJOR;
      tables.abi_minor = FLAGOS_HAL_ABI_MINOR;
      tables.system = Groups<V>::systemApi();
      tables.device = Groups<V>::deviceApi();
      tables.memory = Groups<V>::memoryApi();
      tables.stream = Queues<V>::streamApi();
      tables.event = Queues<V>::eventApi();
      tables.host = Groups<V>::hostApi();
      tables.peer = Groups<V>::peerApi();
      if constexpr (HasIpc<V>::value) tables.ipc = V::ipc();
      if constexpr (HasGraph<V>::value) tables.graph = V::graph();
      if constexpr (HasTrace<V>::value) tables.trace = V::trace();
      if constexpr (HasAsyncAlloc<V>::value) tables.async_alloc = V::asyncAlloc();
      return tables;
    }();
    return &api;
  }

}  // namespace hal_support
}  // namespace flagos
