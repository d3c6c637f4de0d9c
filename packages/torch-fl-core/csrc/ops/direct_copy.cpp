#include "csrc/ops/direct_copy.h"

#include <array>
#include <atomic>

#include "csrc/ops/alias.h"
#include "csrc/runtime/companion.h"
#include "csrc/runtime/device_allocator.h"
#include "csrc/runtime/stream.h"

namespace flagos::ops {

namespace {

constexpr uint64_t kMostBytes = 64 << 10;  // beyond, the bandwidth decides, and a wait more is nothing

enum class Knows : uint8_t { NotAsked, No, Yes };

// Whether the HAL knows the companion's memory as that of this device. A stand-in's it does not.
bool halKnows(const DeviceEntry& entry, const void* memory) {
  static std::array<std::atomic<Knows>, kMaxDevices> known{};
  auto& mine = known[static_cast<size_t>(entry.index)];
  const Knows answer = mine.load(std::memory_order_relaxed);
  if (C10_LIKELY(answer != Knows::NotAsked)) return answer == Knows::Yes;
  flagos_hal_pointer_info info{};
  info.struct_size = sizeof(info);
  const bool yes = entry.hal->memory.pointer_info(memory, &info) == FLAGOS_HAL_STATUS_OK &&
                   info.kind == FLAGOS_HAL_MEMORY_DEVICE && info.device == entry.local;
  mine.store(yes ? Knows::Yes : Knows::No, std::memory_order_relaxed);
  return yes;
}

bool isPlain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && (tensor.key_set() & kValueKeys).empty();
}

bool onDefaultStream(const DeviceEntry& entry) {
  return currentStream(entry.index) == defaultStream(entry.index);
}

void* dataOf(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get()) +
         tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
}

}  // namespace

bool copyDirectly(const at::Tensor& destination, const at::Tensor& source) {
  const bool to_device = destination.device().type() == kDeviceType;
  const at::Tensor& on_device = to_device ? destination : source;
  const at::Tensor& on_host = to_device ? source : destination;
  if (!on_host.is_cpu() || destination.dtype() != source.dtype() || destination.sizes() != source.sizes() ||
      destination.nbytes() > kMostBytes || !isPlain(destination) || !isPlain(source))
    return false;
  const DeviceEntry& entry = deviceEntry(on_device.device().index());
  if (!halKnows(entry, dataOf(on_device)) || !onDefaultStream(entry)) return false;
  FLAGOS_CHECK(
      entry,
      entry.hal->memory.copy(entry.local, dataOf(destination), dataOf(source), destination.nbytes(),
                             to_device ? FLAGOS_HAL_COPY_HOST_TO_DEVICE : FLAGOS_HAL_COPY_DEVICE_TO_HOST),
      to_device ? "copy from the host" : "copy to the host");
  return true;
}

}  // namespace flagos::ops
