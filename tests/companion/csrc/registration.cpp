// Registers the kernels under the key HPU when the library is loaded: the hand-written ones, then one boxed
// kernel for every operator that has a kernel for the CPU.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "kernels.h"

namespace standin {
namespace {

// Composites that fail on a device that PyTorch has no kernel table for.
constexpr std::array<std::string_view, 3> kRoutedComposites = {"aten::mode.values", "aten::conj_physical_",
                                                               "aten::addr_"};

// Operators with a CPU kernel whose results are no dense tensors.
constexpr std::array<std::string_view, 4> kLeftAlone = {
    "aten::_nested_view_from_buffer", "aten::_nested_view_from_buffer_copy", "aten::_empty_affine_quantized",
    "aten::_empty_per_channel_affine_quantized"};

class BoxedKernel final : public c10::OperatorKernel {
 public:
  explicit BoxedKernel(const OpInfo& info) : info_(info) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    runOnHost(info_, op, stack);
  }

 private:
  const OpInfo& info_;
};

// A kernel whose CPU form has another name.
class RenamedKernel final : public c10::OperatorKernel {
 public:
  RenamedKernel(const OpInfo& info, const char* target)
      : info_(info), target_(c10::Dispatcher::singleton().findSchemaOrThrow(target, "")) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    runOnHost(info_, target_, stack);
  }

 private:
  const OpInfo& info_;
  c10::OperatorHandle target_;
};

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool wantsKernel(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  if (contains(kLeftAlone, name)) return false;
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) return true;
  if (contains(kRoutedComposites, c10::toString(op.operator_name()))) return true;
  // CUDA has kernels over whole lists; the composite ones go tensor by tensor.
  return name.rfind("aten::_foreach_", 0) == 0 &&
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

void registerBoxed(torch::Library& library) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op.has_value() || op->hasKernelForDispatchKey(c10::DispatchKey::HPU) || !wantsKernel(*op)) continue;
    library.impl(c10::toString(name).c_str(),
                 torch::CppFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(opInfo(*op))));
  }
}

// PyTorch's convolution ends in these on a device that it does not know by name, as it ends in cuDNN's on
// CUDA.
void registerConvolutions(torch::Library& library) {
  constexpr std::array<std::array<const char*, 2>, 2> kRenamed = {
      {{"aten::convolution_overrideable", "aten::convolution"},
       {"aten::convolution_backward_overrideable", "aten::convolution_backward"}}};
  for (const auto& [name, target] : kRenamed) {
    auto kernel = std::make_unique<RenamedKernel>(opInfo(name), target);
    library.impl(name, torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
  }
}

[[maybe_unused]] const bool registered = [] {
  // Never destroyed: taking kernels away at exit would race with threads that still run.
  auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::HPU, __FILE__, __LINE__);
  registerFactories(*library);
  registerStorageOps(*library);
  registerCopies(*library);
  registerFused(*library);
  registerConvolutions(*library);
  registerBoxed(*library);
  return true;
}();

}  // namespace
}  // namespace standin
