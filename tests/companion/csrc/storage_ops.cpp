// View primitives, by ATen's own functions, and operators that read or replace a tensor's storage.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

#include <algorithm>
#include <cstring>

#include "allocator.h"
#include "kernels.h"

namespace standin {
namespace {

// Only a storage that the stand-in owns may get other memory: one that is shared with another device belongs
// to that device.
void growStorage(c10::StorageImpl* storage, size_t bytes) {
  TORCH_CHECK(storage->device().type() == kType, "standin: a storage labelled ", storage->device(),
              " was to be resized.");
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  c10::DataPtr grown = allocateOn(storage->device().index(), bytes);
  if (storage->nbytes() != 0) std::memcpy(grown.get(), storage->data(), std::min(bytes, storage->nbytes()));
  storage->set_data_ptr_noswap(std::move(grown));
  storage->set_nbytes(bytes);
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
  const size_t bytes = at::detail::computeStorageNbytes(self->sizes(), self->strides(), self->itemsize(),
                                                        static_cast<size_t>(self->storage_offset()));
  c10::StorageImpl* storage = self->unsafe_storage().unsafeGetStorageImpl();
  if (bytes > storage->nbytes()) growStorage(storage, bytes);
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size,
                         std::optional<at::MemoryFormat> memory_format) {
  static const OpInfo& info = opInfo("aten::resize_");
  ++info.calls;
  at::detail::check_size_nonnegative(size);
  resizeImpl(self.unsafeGetTensorImpl(), size, std::nullopt);
  if (memory_format.has_value()) self.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  return self;
}

at::Tensor& setStorage(at::Tensor& self, at::Storage source, int64_t storage_offset, at::IntArrayRef size,
                       at::IntArrayRef stride) {
  static const OpInfo& info = opInfo("aten::set_.source_Storage_storage_offset");
  ++info.calls;
  at::native::checkSetStorage(self, std::move(source), storage_offset, size, stride);
  self.unsafeGetTensorImpl()->set_storage_offset(storage_offset);
  resizeImpl(self.unsafeGetTensorImpl(), size,
             stride.data() != nullptr ? at::OptionalIntArrayRef(stride) : std::nullopt);
  return self;
}

at::Tensor& setEmpty(at::Tensor& self) {
  static const OpInfo& info = opInfo("aten::set_");
  ++info.calls;
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                             allocateOn(self.device().index(), 0),
                                                             allocator(), /*resizable=*/true));
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  self.unsafeGetTensorImpl()->set_storage_offset(0);
  self.unsafeGetTensorImpl()->generic_set_sizes_contiguous(at::IntArrayRef{0});
  return self;
}

void recordStreamOp(at::Tensor& self, c10::Stream stream) {
  static const OpInfo& info = opInfo("aten::record_stream");
  ++info.calls;
  recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

void registerStorageOps(torch::Library& library) {
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  library.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  library.impl("resize_", TORCH_FN(resize));
  library.impl("set_", TORCH_FN(setEmpty));
  library.impl("set_.source_Storage",
               TORCH_FN(static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(at::native::set_)));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(setStorage));
  library.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  library.impl("record_stream", TORCH_FN(recordStreamOp));
}

}  // namespace standin
