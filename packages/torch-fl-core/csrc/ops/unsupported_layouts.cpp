// Sparse, quantized and nested tensors: what they would need is not there yet, and PyTorch's own message for
// a missing kernel is a page long and names neither the reason nor the way out.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "csrc/ops/hot_autograd.h"
#include "csrc/ops/unsupported_layouts.h"

namespace flagos::ops {

namespace {

template <c10::DispatchKey layout>
void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* /*stack*/) {
  constexpr const char* kind = layout == c10::DispatchKey::Sparse      ? "sparse"
                               : layout == c10::DispatchKey::SparseCsr ? "sparse compressed"
                               : layout == c10::DispatchKey::Quantized ? "quantized"
                                                                       : "nested";
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "flagos: ", toString(op.operator_name()), " needs ", kind,
      " tensors, which the device does not hold yet. Use dense tensors, or run this part on the CPU.");
}

// Kept for the life of the process, as all registrations.
template <c10::DispatchKey layout, c10::DispatchKey backend>
void refuseOn() {
  const auto key = c10::toRuntimePerBackendFunctionalityKey(layout, c10::toBackendComponent(backend));
  static auto* library = new torch::Library(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&refuse<layout>>());
}

template <c10::DispatchKey layout>
void refuseAll() {
  refuseOn<layout, c10::DispatchKey::PrivateUse1>();
  refuseOn<layout, kDouble>();
}

}  // namespace

void registerRefusals() {
  refuseAll<c10::DispatchKey::Sparse>();
  refuseAll<c10::DispatchKey::SparseCsr>();
  refuseAll<c10::DispatchKey::Quantized>();
  refuseAll<c10::DispatchKey::NestedTensor>();
}

}  // namespace flagos::ops
