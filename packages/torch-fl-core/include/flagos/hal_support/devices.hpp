// What the groups of hal.hpp share: finding out what a vendor wrote, its devices, its allocations. Included
// by hal.hpp.
#pragma once

#include <atomic>
#include <cinttypes>
#include <iterator>
#include <map>
#include <shared_mutex>
#include <type_traits>

#include "flagos/hal_support/device_switch.hpp"
#include "flagos/hal_support/handles.hpp"
#include "flagos/hal_support/state.hpp"

namespace flagos {
namespace hal_support __attribute__((visibility("hidden"))) {

// HasX<V>: whether the vendor wrote V::x.
#define FLAGOS_HAL_DETECT(Trait, member) \
  template <typename V, typename = void> \
  struct Trait : std::false_type {};     \
  template <typename V>                  \
  struct Trait<V, std::void_t<decltype(&V::member)>> : std::true_type {};

  FLAGOS_HAL_DETECT(HasSetCurrent, setCurrent)
  FLAGOS_HAL_DETECT(HasGetCurrent, getCurrent)
  FLAGOS_HAL_DETECT(HasSynchronize, synchronize)
  FLAGOS_HAL_DETECT(HasHealth, health)
  FLAGOS_HAL_DETECT(HasCapability, capability)
  FLAGOS_HAL_DETECT(HasInfo, info)
  FLAGOS_HAL_DETECT(HasPointerInfo, pointerInfo)
  FLAGOS_HAL_DETECT(HasIpc, ipc)
  FLAGOS_HAL_DETECT(HasGraph, graph)
  FLAGOS_HAL_DETECT(HasTrace, trace)
  FLAGOS_HAL_DETECT(HasAsyncAlloc, asyncAlloc)

  template <typename V, typename = void>
  struct HasQueues : std::false_type {};
  template <typename V>
  struct HasQueues<V, std::void_t<typename V::Stream, typename V::Event>> : std::true_type {};

  // What is known of the devices, and of the memory given out. One per library.
  template <typename V>
  class Devices {
   public:
    static constexpr int32_t kMost = 64;

    static int32_t count() noexcept { return count_.load(std::memory_order_acquire); }

    static flagos_hal_status open() {
      int32_t count = 0;
      FLAGOS_HAL_TRY(V::open());
      const flagos_hal_status status = V::count(&count);
      if (status != FLAGOS_HAL_STATUS_OK) {
        V::close();
        return status;
      }
      count_.store(count < kMost ? count : kMost, std::memory_order_release);
      for (std::atomic<bool>& lost : lost_) lost.store(false);
      return FLAGOS_HAL_STATUS_OK;
    }

    static flagos_hal_status check(int32_t device) noexcept {
      FLAGOS_HAL_REQUIRE(device >= 0 && device < count(), INVALID_DEVICE,
                         "there is no device %d; the library has %d", device, count());
      return FLAGOS_HAL_STATUS_OK;
    }

    // Runs `body` for `device`: not once it is lost (GEN-11), and with it current where the runtime has such
    // a thing (GEN-06).
    template <typename Body>
    static flagos_hal_status on(int32_t device, Body&& body) {
      FLAGOS_HAL_TRY(check(device));
      return onKnown(device, std::forward<Body>(body));
    }
    template <typename Body>
    static flagos_hal_status onKnown(int32_t device, Body&& body) {
      FLAGOS_HAL_REQUIRE(!lost_[device].load(std::memory_order_relaxed), DEVICE_LOST,
                         "device %d was lost by an earlier call", device);
      const flagos_hal_status status = switched(device, std::forward<Body>(body));
      if (status == FLAGOS_HAL_STATUS_DEVICE_LOST) lost_[device].store(true, std::memory_order_relaxed);
      return status;
    }
    // For releasing: on a lost device it does nothing and is OK.
    template <typename Body>
    static flagos_hal_status onReleasing(int32_t device, Body&& body) {
      if (lost_[device].load(std::memory_order_relaxed)) return FLAGOS_HAL_STATUS_OK;
      const flagos_hal_status status = switched(device, std::forward<Body>(body));
      if (status != FLAGOS_HAL_STATUS_DEVICE_LOST) return status;
      lost_[device].store(true, std::memory_order_relaxed);
      return FLAGOS_HAL_STATUS_OK;
    }

    static flagos_hal_status setCurrent(int32_t device) {
      if constexpr (HasSetCurrent<V>::value) {
        int32_t now = -1;
        if (getCurrent(&now) != FLAGOS_HAL_STATUS_OK || now != device) FLAGOS_HAL_TRY(V::setCurrent(device));
      }
      current_ = device;
      return FLAGOS_HAL_STATUS_OK;
    }
    // The runtime is asked where it can be: other libraries of the process may have changed its device.
    static flagos_hal_status getCurrent(int32_t* out) {
      if constexpr (HasGetCurrent<V>::value) return V::getCurrent(out);
      *out = current_;
      return FLAGOS_HAL_STATUS_OK;
    }

   private:
    template <typename Body>
    static flagos_hal_status switched(int32_t device, Body&& body) {
      if constexpr (HasSetCurrent<V>::value) {
        DeviceSwitch<Devices> now(device);
        FLAGOS_HAL_TRY(now.status());
        return std::forward<Body>(body)();
      } else {
        return std::forward<Body>(body)();
      }
    }

    static inline std::atomic<int32_t> count_{0};
    static inline std::atomic<bool> lost_[kMost] = {};
    static inline thread_local int32_t current_ = 0;
  };

  // The allocations that are alive: what release and pointer_info need to tell right from wrong.
  class Allocations {
   public:
    struct Entry {
      uint64_t size = 0;
      int32_t device = -1;
    };

    void add(const void* base, Entry entry) {
      std::unique_lock<std::shared_mutex> lock(mutex_);
      entries_[reinterpret_cast<uintptr_t>(base)] = entry;
    }
    // Removes what starts at `base` and belongs to `device`.
    bool take(const void* base, int32_t device, Entry* out) {
      std::unique_lock<std::shared_mutex> lock(mutex_);
      const auto it = entries_.find(reinterpret_cast<uintptr_t>(base));
      if (it == entries_.end() || it->second.device != device) return false;
      *out = it->second;
      entries_.erase(it);
      return true;
    }
    bool around(const void* pointer, const void** base, Entry* out) const {
      const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
      std::shared_lock<std::shared_mutex> lock(mutex_);
      auto it = entries_.upper_bound(address);
      if (it == entries_.begin()) return false;
      --it;
      if (address - it->first >= it->second.size) return false;
      *base = reinterpret_cast<const void*>(it->first);
      *out = it->second;
      return true;
    }
    bool overlaps(const void* base, uint64_t size) const {
      const uintptr_t address = reinterpret_cast<uintptr_t>(base);
      std::shared_lock<std::shared_mutex> lock(mutex_);
      const auto next = entries_.lower_bound(address);
      if (next != entries_.end() && next->first - address < size) return true;
      if (next == entries_.begin()) return false;
      const auto before = std::prev(next);
      return address - before->first < before->second.size;
    }
    std::map<uintptr_t, Entry> takeAll() {
      std::map<uintptr_t, Entry> taken;
      std::unique_lock<std::shared_mutex> lock(mutex_);
      taken.swap(entries_);
      return taken;
    }

    static constexpr int32_t kHost = -1;  // the "device" of pinned memory

   private:
    mutable std::shared_mutex mutex_;  // guards entries_
    std::map<uintptr_t, Entry> entries_;
  };

  inline Allocations& allocations() {
    static Allocations& all = *new Allocations;  // never destroyed: frees may come while the process ends
    return all;
  }

  inline flagos_hal_status checkOutput(const void* out, const char* name) noexcept {
    FLAGOS_HAL_REQUIRE(out, INVALID_ARGUMENT, "%s is null", name);
    return FLAGOS_HAL_STATUS_OK;
  }

}  // namespace hal_support
}  // namespace flagos
