// Sparse, quantized and nested tensors: what they would need is not there yet, and PyTorch's own message for
// a missing kernel is a page long and names neither the reason nor the way out.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "csrc/ops/unsupported_layouts.h"

namespace flagos::ops {

namespace {

template <c10::DispatchKey key>
void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* /*stack*/) {
  constexpr const char* kind = key == c10::DispatchKey::SparsePrivateUse1      ? "sparse"
                               : key == c10::DispatchKey::SparseCsrPrivateUse1 ? "sparse compressed"
                               : key == c10::DispatchKey::QuantizedPrivateUse1 ? "quantized"
                                                                               : "nested";
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "flagos: ", toString(op.operator_name()), " needs ", kind,
      " tensors, which the device does not hold yet. Use dense tensors, or run this part on the CPU.");
}

// Kept for the life of the process, as all registrations.
template <c10::DispatchKey key>
void refuseAll() {
  static auto* library = new torch::Library(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&refuse<key>>());
}

}  // namespace

void registerRefusals() {
  refuseAll<c10::DispatchKey::SparsePrivateUse1>();
  refuseAll<c10::DispatchKey::SparseCsrPrivateUse1>();
  refuseAll<c10::DispatchKey::QuantizedPrivateUse1>();
  refuseAll<c10::DispatchKey::NestedTensorPrivateUse1>();
}

}  // namespace flagos::ops
