#include "csrc/ops/factories.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/TensorOptions.h>
#include <torch/library.h>

#include "csrc/runtime/device_allocator.h"

namespace flagos::ops {

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor wrap(c10::DeviceIndex device, size_t bytes, at::ScalarType dtype) {
  auto storage =
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                            allocateOn(device, bytes), deviceAllocator(), /*resizable=*/true);
  return at::detail::make_tensor_base<c10::TensorImpl>(std::move(storage), kKeys,
                                                       c10::scalarTypeToTypeMeta(dtype));
}

c10::DeviceIndex checkedDevice(std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::Layout::Strided) == at::Layout::Strided,
                              "flagos: empty tensors of layout ", layout.value_or(at::Layout::Strided),
                              " are not supported; only torch.strided is.");
  TORCH_CHECK(!pin_memory.value_or(false),
              "Only dense CPU tensors can be pinned; pin_memory=True and device=\"",
              device.value_or(at::Device(kDeviceType)), "\" exclude each other.");
  return resolveIndex(device.has_value() ? device->index() : static_cast<c10::DeviceIndex>(-1));
}

// As PyTorch does for its own devices: with deterministic algorithms on, fresh memory is filled with a value
// that shows.
void fillIfDeterministic(at::Tensor& tensor) {
  if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms() &&
                   at::globalContext().deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
}

at::Tensor emptyMemoryFormat(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                             std::optional<at::Layout> layout, std::optional<at::Device> device,
                             std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format) {
  const c10::DeviceIndex index = checkedDevice(layout, device, pin_memory);
  const at::ScalarType type = c10::dtype_or_default(dtype);
  at::detail::check_size_nonnegative(size);
  at::Tensor tensor =
      wrap(index, at::detail::computeStorageNbytesContiguous(size, c10::elementSize(type)), type);
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (size.size() != 1 || size[0] != 0) impl->generic_set_sizes_contiguous(size);
  if (memory_format.has_value() && *memory_format != at::MemoryFormat::Contiguous) {
    impl->empty_tensor_restride(*memory_format);
  }
  fillIfDeterministic(tensor);
  return tensor;
}

at::Tensor emptyStrided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout> layout, std::optional<at::Device> device,
                        std::optional<bool> pin_memory) {
  const c10::DeviceIndex index = checkedDevice(layout, device, pin_memory);
  TORCH_CHECK(size.size() == stride.size(), "empty_strided: size has ", size.size(),
              " dimensions and stride ", stride.size());
  at::detail::check_size_nonnegative(size);
  at::Tensor tensor = emptyOn(index, size, c10::dtype_or_default(dtype), stride);
  fillIfDeterministic(tensor);
  return tensor;
}

// Tensors that stand for zeros without memory (forward-mode AD).
at::Tensor efficientZeroTensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory) {
  const c10::DeviceIndex index = checkedDevice(layout, device, pin_memory);
  at::native::ZeroTensorAllocator allocator(at::Device(kDeviceType, index));
  const c10::DispatchKeySet keys = kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return at::detail::empty_generic(size, &allocator, keys, c10::dtype_or_default(dtype), std::nullopt);
}

}  // namespace

at::Tensor emptyOn(c10::DeviceIndex device, at::IntArrayRef size, at::ScalarType dtype,
                   std::optional<at::IntArrayRef> strides) {
  const size_t itemsize = c10::elementSize(dtype);
  const size_t bytes = strides.has_value() ? at::detail::computeStorageNbytes(size, *strides, itemsize)
                                           : at::detail::computeStorageNbytesContiguous(size, itemsize);
  at::Tensor tensor = wrap(device, bytes, dtype);
  if (strides.has_value()) {
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(size, *strides);
  } else {
    tensor.unsafeGetTensorImpl()->generic_set_sizes_contiguous(size);
  }
  return tensor;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", TORCH_FN(emptyMemoryFormat));
  library.impl("empty_strided", TORCH_FN(emptyStrided));
  library.impl("_efficientzerotensor", TORCH_FN(efficientZeroTensor));
}

}  // namespace flagos::ops
