#include "strictness.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/DispatchKeySet.h>

#include <algorithm>
#include <mutex>

#include "allocator.h"
#include "records.h"

namespace standin {
namespace {

std::mutex rules_mutex;
Rules& currentRules() {
  static auto* const instance = new Rules;  // guarded by rules_mutex
  return *instance;
}

// Where a complaint is about, as its beginning.
std::string where(const OpInfo& op, const Argument& argument) {
  return "standin: " + op.name + ", argument " + argument.name + ": ";
}

void checkKeys(const OpInfo& op, const Argument& argument, const at::Tensor& tensor, const Rules& rules) {
  const c10::DispatchKeySet keys = tensor.key_set();
  TORCH_CHECK(keys.has(c10::DispatchKey::HPU), where(op, argument), "a tensor of ", tensor.device(),
              " has no key HPU, but ", keys, ".");
  TORCH_CHECK(!keys.has_backend(c10::BackendComponent::PrivateUse1Bit) &&
                  !keys.has_backend(c10::BackendComponent::CPUBit),
              where(op, argument), "a tensor of ", tensor.device(), " has the keys of two backends: ", keys,
              ".");
  const bool watched = keys.has_any(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  TORCH_CHECK(!rules.bare_tensors || !watched || op.counts_versions || kernelDepth() > 0, where(op, argument),
              "the tensor carries autograd's keys: ", keys, ".");
  TORCH_CHECK(tensor.layout() == c10::Layout::Strided && !tensor.is_quantized() && !tensor.is_nested(),
              where(op, argument), "only dense tensors are served.");
}

void checkStorage(const OpInfo& op, const Argument& argument, const at::Tensor& tensor, const Rules& rules) {
  const c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  TORCH_CHECK(storage != nullptr, where(op, argument), "the tensor has no storage.");
  const c10::Device label = storage->device();
  if (label.type() == kType) {
    TORCH_CHECK(label == tensor.device(), where(op, argument), "a tensor of ", tensor.device(),
                " has a storage of ", label, ".");
  } else {
    const bool companion = label.type() == c10::DeviceType::PrivateUse1;
    TORCH_CHECK(
        rules.labels == StorageLabels::Any || (rules.labels == StorageLabels::PrivateUse1 && companion),
        where(op, argument), "the storage is labelled ", label, ".");
    const auto& ops = rules.foreign_label_ops;
    TORCH_CHECK(!rules.restrict_ops || std::find(ops.begin(), ops.end(), op.name) != ops.end(),
                where(op, argument), "the storage is labelled ", label,
                ", which this operator may not be given.");
  }
  if (tensor.numel() == 0) return;
  const size_t needed = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                                         static_cast<size_t>(tensor.storage_offset()));
  TORCH_CHECK(needed <= storage->nbytes(), where(op, argument), "the tensor reaches ", needed,
              " bytes into a storage of ", storage->nbytes(), ".");
  if (!rules.own_memory) return;
  const c10::DeviceIndex owner = ownerOf(storage->data_ptr().get(), storage->nbytes());
  TORCH_CHECK(owner >= 0, where(op, argument), "the ", storage->nbytes(), " bytes at ",
              storage->data_ptr().get(), " lie in no live block of hpu memory.");
  TORCH_CHECK(owner == tensor.device().index(), where(op, argument), "a tensor of ", tensor.device(),
              " has memory of hpu:", static_cast<int>(owner), ".");
}

}  // namespace

Rules rules() {
  const std::lock_guard<std::mutex> lock(rules_mutex);
  return currentRules();
}

void setRules(Rules rules) {
  const std::lock_guard<std::mutex> lock(rules_mutex);
  currentRules() = std::move(rules);
}

void checkTensor(const OpInfo& op, const Argument& argument, const at::Tensor& tensor) {
  if (tensor.device().type() != kType) {
    const bool host = tensor.device().is_cpu() && !argument.written;
    TORCH_CHECK(host && (tensor.dim() == 0 || op.host_tensors_allowed),
                "Expected all tensors to be on the same device, but got ", argument.name, " is on ",
                tensor.device(), ", different from other tensors on hpu (standin, ", op.name, ").");
    return;
  }
  checkedIndex(tensor.device().index(), op.name.c_str());
  const Rules now = rules();
  checkKeys(op, argument, tensor, now);
  if (!tensor._is_zerotensor()) checkStorage(op, argument, tensor, now);
}

}  // namespace standin
