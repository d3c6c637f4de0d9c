#include "host_call.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <cstring>

#include "allocator.h"
#include "streams.h"
#include "strictness.h"

namespace standin {
namespace {

const c10::Device kHost(c10::DeviceType::CPU);

// Keys that change how a kernel reads the bytes.
constexpr c10::DispatchKeySet kValueKeys({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
                                          c10::DispatchKey::ZeroTensor});

at::Tensor makeAlias(const at::Tensor& tensor, c10::Storage storage, bool counts_versions) {
  c10::TensorImpl* original = tensor.unsafeGetTensorImpl();
  c10::DispatchKeySet keys = c10::DispatchKeySet(c10::DispatchKey::CPU) | (original->key_set() & kValueKeys);
  counts_versions = counts_versions && original->version_counter().enabled();
  if (counts_versions) keys = keys | c10::getAutogradRelatedKeySetFromBackend(c10::BackendComponent::CPUBit);
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(storage), keys,
                                                   original->dtype());
  impl->set_sizes_and_strides(original->sizes(), original->strides(), original->storage_offset());
  if (original->is_wrapped_number()) impl->set_wrapped_number(true);
  if (counts_versions) impl->set_version_counter(original->version_counter());
  return at::Tensor(std::move(impl));
}

// A tensor of the stand-in with the sizes, dtype and value bits of `like`.
at::Tensor onStorage(c10::Storage storage, const at::Tensor& like) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage),
                                                   c10::DispatchKeySet(c10::DispatchKey::HPU), like.dtype());
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) impl->_set_conj(true);
  if (like.is_neg()) impl->_set_neg(true);
  return at::Tensor(std::move(impl));
}

c10::StorageImpl* storageOf(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace

void HostCall::see(const at::Tensor& tensor, const Argument& argument) {
  if (!tensor.defined()) return;
  checkTensor(op_, argument, tensor);
  if (tensor.device().type() != kType) return;
  if (!device_.has_value()) device_ = tensor.device().index();
  TORCH_CHECK(*device_ == tensor.device().index(),
              "Expected all tensors to be on the same device, but found at least two devices, hpu:",
              static_cast<int>(*device_), " and ", tensor.device(), " (standin, ", op_.name, ", argument ",
              argument.name, ").");
  if (argument.written) written_.push_back(tensor);
}

void HostCall::seeDevice(c10::Device device) {
  TORCH_CHECK(device.type() == kType, "standin: ", op_.name, " was given the device ", device, ".");
  const c10::DeviceIndex index = resolveIndex(device.index(), op_.name.c_str());
  if (!device_.has_value()) device_ = index;
  TORCH_CHECK(*device_ == index, "standin: ", op_.name,
              " was given tensors of hpu:", static_cast<int>(*device_), " and the device ", device, ".");
}

void HostCall::begin() {
  if (!device_.has_value() && op_.takes_device) device_ = currentDevice();
  TORCH_CHECK(device_.has_value(), "standin: ", op_.name, " was called without a tensor of hpu.");
  ++op_.calls;
  submit(currentStream(*device_), op_.name);  // before the guard: logs the caller's current device
  device_scope_.emplace(*device_);
  kernel_scope_.emplace();
}

HostCall::LentStorage& HostCall::lend(const at::Tensor& tensor) {
  c10::StorageImpl* original = storageOf(tensor);
  for (LentStorage& lent : storages_) {
    if (lent.original == original) return lent;
  }
  void* address = original->_mutable_data_ptr_no_checks().get();
  auto borrowed = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                        original->nbytes(), c10::DataPtr(address, kHost),
                                                        c10::GetCPUAllocator(), original->resizable());
  storages_.push_back({original, std::move(borrowed), address});
  return storages_.back();
}

at::Tensor HostCall::alias(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kType) return tensor;
  // A tensor given twice stays one tensor: kernels tell an in-place call by it.
  for (const Lent& lent : lent_) {
    if (lent.original.is_same(tensor)) return lent.alias;
  }
  const at::Tensor alias = makeAlias(tensor, c10::Storage(lend(tensor).borrowed), op_.counts_versions);
  lent_.push_back({tensor, alias});
  return alias;
}

void HostCall::finishWrite(const at::Tensor& original, const at::Tensor& alias) {
  LentStorage& storage = lend(original);
  if (storage.borrowed->data() != storage.address) {
    TORCH_CHECK(storage.original->device().type() == kType, "standin: ", op_.name,
                " resized a tensor whose storage is labelled ", storage.original->device(), ".");
    const size_t bytes = storage.borrowed->nbytes();
    c10::DataPtr grown = allocateOn(*device_, bytes);
    if (bytes != 0) std::memcpy(grown.get(), storage.borrowed->data(), bytes);
    storage.address = grown.get();
    storage.borrowed->set_data_ptr_noswap(c10::DataPtr(grown.get(), kHost));
    storage.original->set_data_ptr_noswap(std::move(grown));
    storage.original->set_nbytes(bytes);
  }
  if (alias.sizes() != original.sizes() || alias.strides() != original.strides() ||
      alias.storage_offset() != original.storage_offset()) {
    original.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides(),
                                                          alias.storage_offset());
  }
  if (alias.is_conj() != original.is_conj()) original._set_conj(alias.is_conj());
  if (alias.is_neg() != original.is_neg()) original._set_neg(alias.is_neg());
}

void HostCall::finishWrites() {
  for (const at::Tensor& tensor : written_) {
    const auto lent = std::find_if(lent_.begin(), lent_.end(),
                                   [&](const Lent& entry) { return entry.original.is_same(tensor); });
    if (lent != lent_.end()) finishWrite(lent->original, lent->alias);
  }
  if (op_.fails > 0) {
    --op_.fails;
    TORCH_CHECK(false, "standin: ", op_.name, " fails in the middle, as was asked.");
  }
}

at::Tensor HostCall::result(const at::Tensor& output) {
  if (!output.defined()) return output;
  for (const Lent& lent : lent_) {
    if (lent.alias.is_same(output)) return lent.original;
  }
  TORCH_CHECK(output.device().is_cpu(), "standin: ", op_.name, " returned a tensor of ", output.device(),
              ".");
  TORCH_CHECK_NOT_IMPLEMENTED(output.layout() == c10::Layout::Strided && !output.is_quantized(),
                              "standin: ", op_.name, " returned a sparse or quantized tensor.");
  c10::StorageImpl* storage = storageOf(output);
  for (const LentStorage& lent : storages_) {
    if (lent.borrowed.get() != storage) continue;
    TORCH_CHECK(lent.original->device().type() == kType, "standin: ", op_.name,
                " returned a view of a storage that is labelled ", lent.original->device(), ".");
    return onStorage(c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(lent.original)), output);
  }
  for (const auto& [host, copy] : uploaded_) {
    if (host.unsafeGetStorageImpl() == storage) return onStorage(copy, output);
  }
  const size_t bytes = storage->nbytes();
  c10::Storage copy(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                          allocateOn(*device_, bytes), allocator(),
                                                          /*resizable=*/true));
  if (bytes != 0) std::memcpy(copy.unsafeGetStorageImpl()->mutable_data(), storage->data(), bytes);
  uploaded_.emplace_back(output.storage(), copy);
  return onStorage(std::move(copy), output);
}

}  // namespace standin
