#include "csrc/ops/registration.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "csrc/ops/hot_autograd.h"
#include "csrc/ops/hot_lists.h"
#include "csrc/ops/op_record.h"
#include "csrc/ops/routed_kernel.h"
#include "csrc/ops/router.h"
#include "csrc/ops/unsupported_layouts.h"
#include "csrc/runtime/companion.h"
#include "csrc/runtime/devices.h"

namespace flagos::ops {

namespace {

// Operators with a CPU kernel that must not run as a whole on the host: their result is another's business.
constexpr std::array<std::string_view, 6> kLeftAlone = {
    "aten::_nested_view_from_buffer",          "aten::_nested_view_from_buffer_copy",
    "aten::_empty_affine_quantized",           "aten::_empty_per_channel_affine_quantized",
    "aten::_has_compatible_shallow_copy_type", "aten::_fused_sdp_choice"};

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool wantsKernel(const c10::OperatorHandle& op, c10::DispatchKey backend) {
  const std::string& name = op.schema().name();
  if (contains(kLeftAlone, name)) return false;
  if (op.hasKernelForDispatchKey(backend)) return true;
  const std::string full_name = c10::toString(op.operator_name());
  if (isComposed(full_name) || isRoutedWhole(full_name)) return true;
  // The composite kernels of _foreach_* loop over tensors on the device; as one host kernel they loop over
  // aliases.
  return name.rfind("aten::_foreach_", 0) == 0 &&
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

// Never destroyed: taking kernels away at exit would race with threads that still run.
template <c10::DispatchKey Key>
torch::Library& libraryOf() {
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", Key, __FILE__, __LINE__);
  return *library;
}

torch::CppFunction routedKernel(const OpRecord& record) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<RoutedKernel>(record));
}

// Gives every operator of PyTorch's that has a kernel for `backend`, and none of ours, a routed one.
int64_t registerBoxed(c10::DispatchKey backend) {
  int64_t count = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op.has_value() || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) ||
        !wantsKernel(*op, backend))
      continue;
    libraryOf<c10::DispatchKey::PrivateUse1>().impl(c10::toString(name).c_str(), routedKernel(opRecord(*op)));
    ++count;
  }
  return count;
}

RegistrationCounts registerAllOperators() {
  RegistrationCounts counts;
  HotLibraries libraries;
  counts.hot = registerHotOperators(libraries);
  counts.boxed = registerBoxed(c10::DispatchKey::CPU);
  registerRefusals();
  return counts;
}

// Operators that only a companion has kernels for; which companions there are shows when devices open.
void registerForCompanions() {
  const int devices = flagos::detail::device_table_size.load(std::memory_order_acquire);
  for (int i = 0; i < devices; ++i) {
    const DeviceEntry& entry = flagos::detail::device_table[i];
    if (entry.companion == nullptr || entry.local != 0) continue;
    const c10::DispatchKey key = entry.companion->keys.highestPriorityTypeId();
    HotLibraries libraries(key);
    registerHotCompanion(libraries);
    registerBoxed(key);
  }
}

}  // namespace

bool HotLibraries::wants(const c10::OperatorHandle& op) const {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) return false;
  return backend_ == c10::DispatchKey::Undefined || op.hasKernelForDispatchKey(backend_);
}

void HotLibraries::add(const OpRecord& record, torch::CppFunction wrapper, torch::CppFunction double_wrapper,
                       torch::CppFunction autograd) {
  const std::string name = c10::toString(record.op.operator_name());
  libraryOf<c10::DispatchKey::PrivateUse1>().impl(name.c_str(), std::move(wrapper));
  libraryOf<kDouble>().impl(name.c_str(), std::move(double_wrapper));
  const c10::OperatorHandle& op = record.op;
  const bool returns_itself = record.in_place && record.returns == 1;
  // What PyTorch does between autograd and the backend: it counts what is changed in place, as the wrapper does,
  // or marks views and resized results, which it does not.
  const bool counted = op.hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView);
  if (op.hasKernelForDispatchKey(c10::DispatchKey::Autograd) &&
      !op.hasKernelForDispatchKey(c10::DispatchKey::AutogradPrivateUse1) && counted == returns_itself) {
    libraryOf<c10::DispatchKey::AutogradPrivateUse1>().impl(name.c_str(), std::move(autograd));
  }
}

const RegistrationCounts& registerOperators() {
  static const RegistrationCounts counts = registerAllOperators();
  return counts;
}

void registerOperatorsOnActivation() {
  onActivation([] {
    registerOperators();
    registerForCompanions();
    makeTables();
  });
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&routedFallback>());
}

}  // namespace flagos::ops
