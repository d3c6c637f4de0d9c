// Which handles are alive (GEN-08): a registry that turns an opaque handle back into the library's own
// object, and says INVALID_HANDLE for one that was never given out or was destroyed.
//
//   using Streams = Registry<flagos_hal_stream, Stream>;
//   inline Streams& streams() { static Streams& registry = *new Streams("stream"); return registry; }  //
//   outlives exit
//
//   *out = streams().add(std::make_shared<Stream>(…));
//   auto stream = streams().find(handle);          // keeps the object alive while it is used
//   if (!stream) return streams().unknown(handle);
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "flagos/hal_support/error.hpp"

namespace flagos {
namespace hal_support __attribute__((visibility("hidden"))) {

  // Handles are the addresses of the objects. An address that the allocator hands out again is a new handle:
  // like every library, this one cannot tell an old handle from a new one at the same address.
  template <typename Handle, typename Object>
  class Registry {
   public:
    explicit Registry(const char* kind) noexcept : kind_(kind) {}
    Registry(const Registry&) = delete;
    Registry& operator=(const Registry&) = delete;

    Handle* add(std::shared_ptr<Object> object) {
      Handle* handle = reinterpret_cast<Handle*>(object.get());
      std::unique_lock<std::shared_mutex> lock(mutex_);
      objects_[handle] = std::move(object);
      return handle;
    }

    // The object behind a live handle, else null.
    std::shared_ptr<Object> find(const Handle* handle) const {
      std::shared_lock<std::shared_mutex> lock(mutex_);
      const auto it = objects_.find(handle);
      return it == objects_.end() ? nullptr : it->second;
    }

    // Takes the handle out and returns its object (null if there is none): the caller lets go of it last.
    std::shared_ptr<Object> take(const Handle* handle) {
      std::unique_lock<std::shared_mutex> lock(mutex_);
      const auto it = objects_.find(handle);
      if (it == objects_.end()) return nullptr;
      std::shared_ptr<Object> object = std::move(it->second);
      objects_.erase(it);
      return object;
    }

    // All live objects at this moment, for device.synchronize and shutdown.
    std::vector<std::shared_ptr<Object>> all() const {
      std::shared_lock<std::shared_mutex> lock(mutex_);
      std::vector<std::shared_ptr<Object>> objects;
      objects.reserve(objects_.size());
      for (const auto& entry : objects_) objects.push_back(entry.second);
      return objects;
    }

    // Empties the registry and returns what was in it.
    std::vector<std::shared_ptr<Object>> takeAll() {
      std::unordered_map<const Handle*, std::shared_ptr<Object>> taken;
      {
        std::unique_lock<std::shared_mutex> lock(mutex_);
        taken.swap(objects_);
      }
      std::vector<std::shared_ptr<Object>> objects;
      objects.reserve(taken.size());
      for (auto& entry : taken) objects.push_back(std::move(entry.second));
      return objects;
    }

    size_t size() const {
      std::shared_lock<std::shared_mutex> lock(mutex_);
      return objects_.size();
    }

    // Records and returns INVALID_HANDLE for a handle that find or take did not know.
    flagos_hal_status unknown(const Handle* handle) const noexcept {
      if (!handle) return fail(FLAGOS_HAL_STATUS_INVALID_HANDLE, "the %s is null", kind_);
      return fail(FLAGOS_HAL_STATUS_INVALID_HANDLE, "%p is not a live %s of this library",
                  static_cast<const void*>(handle), kind_);
    }

   private:
    const char* kind_;
    mutable std::shared_mutex mutex_;  // guards objects_
    std::unordered_map<const Handle*, std::shared_ptr<Object>> objects_;
  };

}  // namespace hal_support
}  // namespace flagos
