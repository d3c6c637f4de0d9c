#include "csrc/runtime/companion.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/copy_ops.h>
#include <c10/core/DeviceGuard.h>

#include <exception>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace flagos {

namespace {

struct Companions {
  std::mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<Companion>>
      by_name;  // never erased: entries are pointed to
};

Companions& companions() {
  static auto* instance = new Companions;
  return *instance;
}

bool hasKernels(c10::DispatchKey key) {
  const auto add = c10::Dispatcher::singleton().findSchema({"aten::empty", "memory_format"});
  return add.has_value() && add->hasKernelForDispatchKey(key);
}

// Throws c10::Error with a message for torch's developers where something is missing that `reason` does not
// foresee.
const Companion* find(const std::string& name, int devices, std::string& reason) {
  const c10::DeviceType type = c10::Device(name).type();
  const c10::DispatchKey key =
      c10::computeDispatchKey(std::nullopt, c10::Layout::Strided, c10::Device(type, 0));
  if (!c10::impl::hasDeviceGuardImpl(type) || !hasKernels(key)) {
    reason = "this build of torch has no device type '" + name + "'";
    return nullptr;
  }
  const auto* guard = c10::impl::getDeviceGuardImpl(type);
  const int count = guard->deviceCount();
  if (count != devices) {
    reason = "torch sees " + std::to_string(count) + " devices of type '" + name + "', the backend " +
             std::to_string(devices);
    return nullptr;
  }
  at::globalContext().lazyInitDevice(type);
  Companions& all = companions();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::unique_ptr<Companion>& slot = all.by_name[name];
  if (slot == nullptr) {
    slot = std::make_unique<Companion>(Companion{type, name, c10::DispatchKeySet(key), keysOfBackend(type),
                                                 guard, c10::getDeviceAllocator(type)});
  }
  return slot.get();
}

at::Tensor bytesAt(void* data, c10::Device device, c10::DispatchKeySet keys, size_t bytes) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       c10::DataPtr(data, device), nullptr, false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys,
                                                               c10::scalarTypeToTypeMeta(at::kByte));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(static_cast<int64_t>(bytes));
  return tensor;
}

}  // namespace

const Companion* findCompanion(const std::string& name, int devices, std::string& reason) noexcept {
  try {
    return find(name, devices, reason);
  } catch (const c10::Error& error) {
    reason =
        std::string("torch's device type '") + name + "' cannot be used: " + error.what_without_backtrace();
  } catch (const std::exception& error) {
    reason = std::string("torch's device type '") + name + "' cannot be used: " + error.what();
  }
  return nullptr;
}

const DeviceEntry* deviceOfCompanion(c10::Device device) noexcept {
  const int size = detail::device_table_size.load(std::memory_order_acquire);
  for (int i = 0; i < size; ++i) {
    const DeviceEntry& entry = detail::device_table[i];
    if (entry.companion != nullptr && entry.companion->type == device.type() && entry.local == device.index())
      return &entry;
  }
  return nullptr;
}

c10::DataPtr allocateFromCompanion(const DeviceEntry& entry, size_t bytes, c10::Device label) {
  const c10::Device device = companionDevice(entry);
  const auto* guard = entry.companion->guard;
  // Its allocator allocates on its current device, which need not be ours.
  const c10::Device before = guard->exchangeDevice(device);
  c10::DataPtr pointer;
  try {
    pointer = entry.companion->allocator->allocate(bytes);
  } catch (...) {
    guard->uncheckedSetDevice(before);
    throw;
  }
  if (C10_UNLIKELY(before != device)) guard->uncheckedSetDevice(before);
  pointer.unsafe_set_device(label);
  return pointer;
}

void copyByCompanion(const DeviceEntry& entry, void* destination, bool destination_on_host,
                     const void* source, bool source_on_host, size_t bytes, bool non_blocking) {
  if (bytes == 0) return;
  const c10::Device host(c10::DeviceType::CPU);
  const c10::Device device = companionDevice(entry);
  const c10::DispatchKeySet host_keys(c10::DispatchKey::CPU);
  at::Tensor to = bytesAt(destination, destination_on_host ? host : device,
                          destination_on_host ? host_keys : entry.companion->keys, bytes);
  const at::Tensor from = bytesAt(const_cast<void*>(source), source_on_host ? host : device,
                                  source_on_host ? host_keys : entry.companion->keys, bytes);
  at::_ops::copy_::redispatch(entry.companion->keys, to, from, non_blocking);
}

const at::Generator& companionGenerator(const DeviceEntry& entry) {
  return at::globalContext().defaultGenerator(companionDevice(entry));
}

at::Generator newCompanionGenerator(const DeviceEntry& entry) {
  return at::globalContext()
      .getAcceleratorHooksInterface(entry.companion->type)
      .getNewGenerator(static_cast<c10::DeviceIndex>(entry.local));
}

}  // namespace flagos
