// Fresh tensors.
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/TensorOptions.h>

#include "allocator.h"
#include "devices.h"
#include "kernels.h"

namespace standin {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::HPU);

c10::DeviceIndex checkedDevice(std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory, const char* op) {
  TORCH_CHECK(layout.value_or(at::Layout::Strided) == at::Layout::Strided, "standin: ", op,
              " was given the layout ", layout.value_or(at::Layout::Strided), ".");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  if (!device.has_value()) return currentDevice();
  TORCH_CHECK(device->type() == kType, "standin: ", op, " was given the device ", *device, ".");
  return resolveIndex(device->index(), op);
}

at::Tensor emptyMemoryFormat(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                             std::optional<at::Layout> layout, std::optional<at::Device> device,
                             std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format) {
  static const OpInfo& info = opInfo("aten::empty.memory_format");
  const DeviceScope scope(checkedDevice(layout, device, pin_memory, "empty"));
  ++info.calls;
  return at::detail::empty_generic(size, allocator(), kKeys, c10::dtype_or_default(dtype), memory_format);
}

at::Tensor emptyStrided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout> layout, std::optional<at::Device> device,
                        std::optional<bool> pin_memory) {
  static const OpInfo& info = opInfo("aten::empty_strided");
  const DeviceScope scope(checkedDevice(layout, device, pin_memory, "empty_strided"));
  ++info.calls;
  return at::detail::empty_strided_generic(size, stride, allocator(), kKeys, c10::dtype_or_default(dtype));
}

// Tensors that stand for zeros without memory (forward-mode AD).
at::Tensor efficientZeroTensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory) {
  static const OpInfo& info = opInfo("aten::_efficientzerotensor");
  ++info.calls;
  at::native::ZeroTensorAllocator zeros(deviceOf(checkedDevice(layout, device, pin_memory, "zeros")));
  const c10::DispatchKeySet keys = kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return at::detail::empty_generic(size, &zeros, keys, c10::dtype_or_default(dtype), std::nullopt);
}

}  // namespace

void registerFactories(torch::Library& library) {
  library.impl("empty.memory_format", TORCH_FN(emptyMemoryFormat));
  library.impl("empty_strided", TORCH_FN(emptyStrided));
  library.impl("_efficientzerotensor", TORCH_FN(efficientZeroTensor));
}

}  // namespace standin
