// When a call leaves autograd nothing to record: for the unboxed wrappers (hot.h), which then stand in for
// autograd's kernel.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <optional>

namespace flagos::ops {

// The backend under whose keys core has a second way to its kernels: PyTorch's autograd kernels are the same for
// every backend, and pass on the keys they are called with. Nobody has tensors of it.
inline constexpr c10::DispatchKey kDouble = c10::DispatchKey::PrivateUse2;

// The keys from autograd's downwards: called by Python's dispatcher a kernel is given those above it as well, and
// would come back here for ever.
inline c10::DispatchKeySet doubleKeys(c10::DispatchKeySet keys) {
  constexpr c10::DispatchKeySet from_autograd =
      c10::after_autograd_keyset | c10::DispatchKeySet(c10::DispatchKey::AutogradFunctionality);
  return (keys & from_autograd).remove_backend(c10::BackendComponent::PrivateUse1Bit) |
         c10::DispatchKeySet(c10::BackendComponent::PrivateUse2Bit);
}

inline c10::DispatchKeySet denseKeys() { return c10::DispatchKeySet(c10::DispatchKey::PrivateUse1); }

// Whether the arguments are dense tensors and nothing else wants to see the call: no subclass or mode of
// Python's, functionalisation, conjugate bit …
inline bool isDense(c10::DispatchKeySet keys) noexcept {
  constexpr c10::DispatchKeySet plain({c10::DispatchKey::Dense, c10::DispatchKey::AutogradFunctionality,
                                       c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::BackendSelect});
  constexpr uint64_t functionalities = ~uint64_t{0} << c10::num_backends;
  return (keys.raw_repr() & functionalities & ~plain.raw_repr()) == 0;
}

// Whether a tensor gives autograd no reason to look: neither a gradient while `recording`, nor a tangent.
// Inference tensors and undefined ones are left to PyTorch, which has errors for them.
inline bool leavesNothing(const at::Tensor& tensor, bool recording) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (C10_UNLIKELY(!impl->key_set().has(c10::DispatchKey::ADInplaceOrView))) return tensor.is_cpu();
  if (C10_LIKELY(impl->autograd_meta() == nullptr)) return true;
  return !recording && !tensor._fw_grad(/*level=*/0).defined();
}

inline bool leavesNothing(const std::optional<at::Tensor>& tensor, bool recording) {
  return !tensor.has_value() || !tensor->defined() || leavesNothing(*tensor, recording);
}

inline bool leavesNothing(at::TensorList tensors, bool recording) {
  for (const at::Tensor& tensor : tensors) {
    if (!leavesNothing(tensor, recording)) return false;
  }
  return true;
}

inline bool leavesNothing(const at::ITensorListRef& tensors, bool recording) {
  for (const at::Tensor& tensor : tensors) {
    if (!leavesNothing(tensor, recording)) return false;
  }
  return true;
}

inline bool leavesNothing(const c10::List<std::optional<at::Tensor>>& tensors, bool recording) {
  const c10::IValue list(tensors);  // gives its elements without counting them
  for (const c10::IValue& tensor : list.toListRef()) {
    if (tensor.isTensor() && !leavesNothing(tensor.toTensor(), recording)) return false;
  }
  return true;
}

// Numbers, sizes, dtypes …
template <class T>
bool leavesNothing(const T& /*value*/, bool /*recording*/) {
  return true;
}

}  // namespace flagos::ops
