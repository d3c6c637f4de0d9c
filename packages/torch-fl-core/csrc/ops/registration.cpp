#include "csrc/ops/registration.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "csrc/ops/host_kernel.h"
#include "csrc/ops/hot_lists.h"
#include "csrc/ops/op_record.h"
#include "csrc/ops/unsupported_layouts.h"
#include "csrc/runtime/devices.h"

namespace flagos::ops {

namespace {

// Composites that are routed as a whole nevertheless: on a device that PyTorch does not know by name they
// fail or take another way. `convolution` looks for a backend by device type, `mode` for a name,
// `conj_physical_` for a kernel in a table of PyTorch's own; `addr_` tells
// its in-place case by the address of an argument.
constexpr std::array<std::string_view, 5> kRoutedComposites = {
    "aten::convolution", "aten::convolution_backward", "aten::mode.values", "aten::conj_physical_",
    "aten::addr_"};

// Operators with a CPU kernel that must not run as a whole on the host: their result is another's business.
constexpr std::array<std::string_view, 6> kLeftAlone = {
    "aten::_nested_view_from_buffer",          "aten::_nested_view_from_buffer_copy",
    "aten::_empty_affine_quantized",           "aten::_empty_per_channel_affine_quantized",
    "aten::_has_compatible_shallow_copy_type", "aten::_fused_sdp_choice"};

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool wantsKernel(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  if (contains(kLeftAlone, name)) return false;
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) return true;
  if (contains(kRoutedComposites, c10::toString(op.operator_name()))) return true;
  // The composite kernels of _foreach_* loop over tensors on the device; as one host kernel they loop over
  // aliases.
  return name.rfind("aten::_foreach_", 0) == 0 &&
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

RegistrationCounts registerAllOperators() {
  // Never destroyed: taking kernels away at exit would race with threads that still run.
  static auto* library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  RegistrationCounts counts;
  counts.hot = registerHotOperators(*library);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op.has_value() || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) || !wantsKernel(*op))
      continue;
    library->impl(c10::toString(name).c_str(),
                  torch::CppFunction::makeFromBoxedFunctor(std::make_unique<HostKernel>(opRecord(*op))));
    ++counts.boxed;
  }
  registerRefusals();
  return counts;
}

}  // namespace

const RegistrationCounts& registerOperators() {
  static const RegistrationCounts counts = registerAllOperators();
  return counts;
}

void registerOperatorsOnActivation() {
  onActivation([] { registerOperators(); });
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&hostFallback>());
}

}  // namespace flagos::ops
