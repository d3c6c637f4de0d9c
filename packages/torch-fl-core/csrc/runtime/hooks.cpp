// The hooks: what PyTorch asks of an accelerator outside of kernels.
#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <algorithm>
#include <exception>
#include <optional>

#include "csrc/runtime/companion.h"
#include "csrc/runtime/device_allocator.h"
#include "csrc/runtime/devices.h"
#include "csrc/runtime/generator.h"
#include "csrc/runtime/host_allocator.h"
#include "csrc/runtime/stream.h"

namespace flagos {
namespace {

std::optional<c10::Device> deviceOfCompanionPointer(const Companion& companion, const void* pointer) {
  try {
    const c10::Device device =
        at::globalContext().getDeviceFromPtr(const_cast<void*>(pointer), companion.type);
    if (const DeviceEntry* entry = deviceOfCompanion(device)) return c10::Device(kDeviceType, entry->index);
  } catch (const c10::Error&) {  // its way to say that the memory is not on a device
  }
  return std::nullopt;
}

// Asks every selected backend what the pointer is.
c10::Device deviceOfPointer(const void* pointer) {
  const c10::DeviceIndex count = activate();
  bool pinned = false;
  for (c10::DeviceIndex i = 0; i < count;) {
    const DeviceEntry& entry = deviceEntry(i);
    if (entry.companion != nullptr) {
      const auto found = deviceOfCompanionPointer(*entry.companion, pointer);
      if (found.has_value()) return *found;
      i = static_cast<c10::DeviceIndex>(i + entry.backend->device_count);
      continue;
    }
    flagos_hal_pointer_info info{};
    info.struct_size = sizeof(info);
    FLAGOS_CHECK(entry, entry.hal->memory.pointer_info(pointer, &info), "ask whose memory a pointer is");
    if (info.kind == FLAGOS_HAL_MEMORY_DEVICE && info.device >= 0 &&
        info.device < entry.backend->device_count) {
      return c10::Device(kDeviceType,
                         static_cast<c10::DeviceIndex>(entry.backend->first_device + info.device));
    }
    pinned = pinned || info.kind == FLAGOS_HAL_MEMORY_PINNED;
    i = static_cast<c10::DeviceIndex>(i + entry.backend->device_count);
  }
  TORCH_CHECK(false, "flagos: pointer ", pointer,
              pinned ? " is pinned host memory, which belongs to no device."
                     : " is not memory of any flagos device of this process.");
}

struct FlagosHooks final : public at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override {
    return flagos::deviceCount() > 0;
  }  // opens no emulated backend that nobody asked for
  bool hasPrimaryContext(c10::DeviceIndex device) const override { return deviceInUse(device); }
  void init() const override { activate(); }

  c10::DeviceIndex deviceCount() const override { return flagos::deviceCount(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { setDevice(device); }
  c10::DeviceIndex getCurrentDevice() const override { return currentDevice(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return flagos::exchangeDevice(device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex before = currentDevice();
    setDeviceLazily(device);
    return before;
  }

  bool isPinnedPtr(const void* pointer) const override { return activated() && isPinned(pointer); }
  at::Allocator* getPinnedMemoryAllocator() const override { return hostAllocator(); }
  c10::Device getDeviceFromPtr(void* pointer) const override { return deviceOfPointer(pointer); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return defaultGenerator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return newGenerator(device); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override;
};

// Queued on the current stream. The old block may belong to another stream; it must not be reused before the
// copy has read it.
void FlagosHooks::resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const {
  TORCH_CHECK(storage.resizable(), "flagos: a storage that cannot be resized was to get ", size,
              " bytes; it has ", storage.nbytes(), ".");
  const c10::DeviceIndex index = resolveIndex(storage.device().index());
  const DeviceEntry& entry = deviceEntry(index);
  c10::StorageImpl* target = storage.unsafeGetStorageImpl();
  c10::DataPtr fresh = allocateOn(index, size);
  const size_t kept = std::min(size, storage.nbytes());
  if (kept > 0) {
    const c10::Stream stream = currentStream(index);
    if (entry.companion != nullptr) {
      copyByCompanion(entry, fresh.get(), false, storage.data(), false, kept, /*non_blocking=*/true);
    } else {
      FLAGOS_CHECK(entry,
                   entry.hal->memory.copy_async(streamHandle(stream), fresh.get(), storage.data(), kept,
                                                FLAGOS_HAL_COPY_DEVICE_TO_DEVICE),
                   ("copy " + std::to_string(kept) + " bytes to a storage's new memory").c_str());
    }
    if (entry.companion != nullptr || isFromDeviceAllocator(storage.data_ptr()))
      recordStream(storage.data_ptr(), stream);
  }
  target->set_data_ptr_noswap(std::move(fresh));
  target->set_nbytes(size);
}

// When the library is loaded, so before the device gets its name: PyTorch asks for the accelerator's hooks
// from then on. Leaked, as PyTorch keeps the pointer.
[[maybe_unused]] const bool registered = [] {
  if (at::isPrivateUse1HooksRegistered())
    return false;  // another plugin owns the device type; claiming the name says so in words
  at::RegisterPrivateUse1HooksInterface(new FlagosHooks);
  return true;
}();

}  // namespace
}  // namespace flagos
