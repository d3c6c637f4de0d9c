// Operators that need a word of their own: reading a number, telling whether data may be swapped, dropout.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/native_dropout_native.h>
#include <torch/library.h>

#include "csrc/ops/counters.h"
#include "csrc/ops/op_record.h"
#include "csrc/ops/operator_call.h"

namespace flagos::ops {

namespace {

// tensor.item(): waits for the current stream.
at::Scalar localScalarDense(const at::Tensor& self) {
  static const OpId id = opId("aten::_local_scalar_dense");
  const DeviceEntry& entry = deviceEntry(self.device().index());
  if (entry.companion == nullptr) {
    OperatorCall call(id, {}, Source::Cpu);
    call.see(self);
    call.settle();
    call.begin();
    return at::native::_local_scalar_dense_cpu(call.alias(self));
  }
  countCall(id, Source::Boxed, entry.index);
  // A blocking copy of the HAL's in its place was measured, and is slower than the companion's pinned read.
  return at::_ops::_local_scalar_dense::redispatch(entry.companion->keys, aliasOnCompanion(self));
}

bool isDense(const c10::DispatchKeySet& keys) {
  return keys.has(c10::DispatchKey::PrivateUse1) || keys.has(c10::DispatchKey::CPU);
}

// Whether `tensor.data = from` may keep the tensor's identity. PyTorch says no between the CPU and any
// PrivateUse1 device, so that Module.to would make new parameters: tied weights come apart and an optimizer
// built before holds stale ones.
bool hasCompatibleShallowCopyType(const at::Tensor& self, const at::Tensor& from) {
  return isDense(self.key_set()) && isDense(from.key_set());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_local_scalar_dense", TORCH_FN(localScalarDense));
  library.impl("_has_compatible_shallow_copy_type", TORCH_FN(hasCompatibleShallowCopyType));
}

// ATen's composite form. Its own bernoulli_ draws from the flagos generator; the CPU kernel run as a whole
// would draw from the CPU's default one, because the operator takes no generator.
[[maybe_unused]] const bool composed = [] {
  registerComposed("aten::native_dropout",
                   c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(at::native::native_dropout_cpu)));
  return true;
}();

}  // namespace flagos::ops
