// The companion: the device type under which torch itself already serves a backend's chips.
//
// Where a backend names one and this process has it, core takes memory, streams, events, the current device
// and random numbers from it through c10's registries, and its kernels serve as the source `boxed`. Nothing
// of it is linked. Device i of the backend is device i of the companion.
//
// A flagos stream and its companion's have the same StreamId.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Stream.h>
#include <c10/core/TensorOptions.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <string>

#include "csrc/runtime/devices.h"

namespace flagos {

struct Companion {
  c10::DeviceType type;
  std::string name;              // "cuda"
  c10::DispatchKeySet keys;      // of its dense kernels, without autograd
  c10::DispatchKeySet own_keys;  // see keysOfBackend
  const c10::impl::DeviceGuardImplInterface* guard = nullptr;
  c10::DeviceAllocator* allocator = nullptr;
};

// The keys of a tensor that say which device type it is of, and those alone: the backend's bit and autocast's
// key.
inline c10::DispatchKeySet keysOfBackend(c10::DeviceType type) {
  const c10::BackendComponent backend =
      c10::toBackendComponent(c10::computeDispatchKey(std::nullopt, std::nullopt, c10::Device(type, 0)));
  return c10::DispatchKeySet(backend) | c10::getAutocastRelatedKeySetFromBackend(backend);
}

// The companion of this name for a backend with `devices` devices, initialised; null, with `reason` in words,
// where torch in this process does not have it. Never throws.
const Companion* findCompanion(const std::string& name, int devices, std::string& reason) noexcept;

inline c10::Device companionDevice(const DeviceEntry& entry) {
  return c10::Device(entry.companion->type, static_cast<c10::DeviceIndex>(entry.local));
}

inline c10::Stream toCompanion(const DeviceEntry& entry, c10::Stream stream) {
  return c10::Stream(c10::Stream::UNSAFE, companionDevice(entry), stream.id());
}

inline c10::Stream fromCompanion(const DeviceEntry& entry, c10::Stream stream) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, entry.index), stream.id());
}

// The flagos device that is device `index` of the companion `type`; null if it is nobody's companion.
FLAGOS_API const DeviceEntry* deviceOfCompanion(c10::Device device) noexcept;

// Memory of the companion's allocator for use on its current stream, with this label.
c10::DataPtr allocateFromCompanion(const DeviceEntry& entry, size_t bytes, c10::Device label);

// Copies bytes by the companion's own copy kernel, on its current stream, between memory of the device and
// of the device or the host; to and from pinned memory with `non_blocking` it is only queued.
void copyByCompanion(const DeviceEntry& entry, void* destination, bool destination_on_host,
                     const void* source, bool source_on_host, size_t bytes, bool non_blocking);

const at::Generator& companionGenerator(const DeviceEntry& entry);
at::Generator newCompanionGenerator(const DeviceEntry& entry);

}  // namespace flagos
