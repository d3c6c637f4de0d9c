// Operators that read or replace a tensor's storage.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/ops/set_native.h>
#include <torch/library.h>

#include "csrc/runtime/device_allocator.h"
#include "csrc/runtime/devices.h"
#include "csrc/runtime/stream.h"

namespace flagos::ops {

namespace {

c10::Storage emptyStorage(c10::DeviceIndex device) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), 0, allocateOn(device, 0), deviceAllocator(), /*resizable=*/true));
}

// Gives `self` these sizes and strides (contiguous if none); its storage grows where they do not fit.
void resizeImpl(c10::TensorImpl* self, at::IntArrayRef size, at::OptionalIntArrayRef stride) {
  if (self->sizes() == size && (!stride.has_value() || self->strides() == *stride)) return;
  if (stride.has_value()) {
    self->set_sizes_and_strides(size, *stride);
  } else {
    self->generic_set_sizes_contiguous(size);
  }
  if (self->numel() == 0) return;
  const size_t bytes =
      stride.has_value()
          ? at::detail::computeStorageNbytes(size, *stride, self->itemsize(), self->storage_offset())
          : at::detail::computeStorageNbytesContiguous(size, self->itemsize(), self->storage_offset());
  const c10::Storage& storage = self->unsafe_storage();
  if (bytes > storage.nbytes()) at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(storage, bytes);
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size,
                         std::optional<at::MemoryFormat> memory_format) {
  at::detail::check_size_nonnegative(size);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  const auto bytes_before = static_cast<int64_t>(impl->unsafe_storage().nbytes());
  resizeImpl(impl, size, std::nullopt);
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve, "Unsupported memory format ", *memory_format,
                " for resize_");
    impl->empty_tensor_restride(*memory_format);
  }
  if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms() &&
                   at::globalContext().deterministicFillUninitializedMemory())) {
    at::native::fill_resize_deterministic_(self, bytes_before);
  }
  return self;
}

at::Tensor& setStorage(at::Tensor& self, at::Storage source, int64_t storage_offset, at::IntArrayRef size,
                       at::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), storage_offset, size, stride);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(storage_offset);
  resizeImpl(impl, size, stride.data() != nullptr ? at::OptionalIntArrayRef(stride) : std::nullopt);
  return self;
}

at::Tensor& setEmpty(at::Tensor& self) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(emptyStorage(self.device().index()));
  self.unsafeGetTensorImpl()->set_storage_offset(0);
  self.unsafeGetTensorImpl()->generic_set_sizes_contiguous(at::IntArrayRef{0});
  return self;
}

void recordStreamOp(at::Tensor& self, c10::Stream stream) { recordStream(self.storage().data_ptr(), stream); }

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("resize_", TORCH_FN(resize));
  library.impl("set_", TORCH_FN(setEmpty));
  library.impl("set_.source_Storage",
               TORCH_FN(static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(at::native::set_)));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(setStorage));
  library.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  library.impl("record_stream", TORCH_FN(recordStreamOp));
}

}  // namespace flagos::ops
