#include "csrc/ops/renamed_device.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "csrc/ops/operator_call.h"
#include "csrc/runtime/devices.h"

namespace flagos::ops {

namespace {

// Where the kernels lie, so that each call of such an operator meets one before anything looks at the device:
// with BackendSelect, and for composites, which look at it themselves (aten::to asks the type's guard for an
// index), with autograd's keys, which stand above them.
constexpr std::array<c10::DispatchKey, 4> kKeys = {
    c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradPrivateUse1, c10::DispatchKey::AutogradMeta,
    c10::DispatchKey::BackendSelect};

bool ofAutograd(c10::DispatchKey key) { return key != c10::DispatchKey::BackendSelect; }

struct OptionPositions {
  int dtype = -1;
  int layout = -1;
  int device = -1;
};

OptionPositions positionsIn(const c10::FunctionSchema& schema) {
  OptionPositions found;
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i].name();
    if (name == "dtype") found.dtype = static_cast<int>(i);
    if (name == "layout") found.layout = static_cast<int>(i);
    if (name == "device") found.device = static_cast<int>(i);
  }
  return found;
}

class RenamedDevice final : public c10::OperatorKernel {
 public:
  // `selects`: the operator has no tensor to take its backend from, and its own kernel for BackendSelect, which
  // this one stands before, takes it from the options.
  RenamedDevice(c10::DispatchKey key, c10::DeviceType type, OptionPositions options, bool selects)
      : key_(key), type_(type), options_(options), selects_(selects) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) const {
    const size_t count = op.schema().arguments().size();
    for (size_t i = stack->size() - count; i < stack->size(); ++i) rename((*stack)[i]);
    if (ofAutograd(key_)) {
      op.redispatchBoxed(compositeKeys(), stack);
      return;
    }
    if (!selects_) {
      op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key_), stack);
      return;
    }
    // As PyTorch's own kernels there: without tensors the options alone decide, and Python's dispatcher, which
    // knows composites that would come back here, is left.
    const auto arguments = torch::jit::last(*stack, count);
    c10::DispatchKeySet below = selected(arguments);
    if (hasTensors(arguments))
      below = below | (keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key_));
    op.redispatchBoxed(below, stack);
  }

 private:
  static bool hasTensors(c10::ArrayRef<c10::IValue> arguments) {
    for (const c10::IValue& value : arguments) {
      if (value.isTensor() || value.isTensorList()) return true;
    }
    return false;
  }

  void rename(c10::IValue& value) const {
    if (!value.isDevice() || value.toDevice().type() != type_) return;
    value = c10::Device(kDeviceType, value.toDevice().index());
  }

  c10::DispatchKeySet selected(c10::ArrayRef<c10::IValue> arguments) const {
    const auto argument = [&](int position) -> const c10::IValue* {
      if (position < 0 || arguments[static_cast<size_t>(position)].isNone()) return nullptr;
      return &arguments[static_cast<size_t>(position)];
    };
    const c10::IValue* dtype = argument(options_.dtype);
    const c10::IValue* layout = argument(options_.layout);
    const c10::IValue* device = argument(options_.device);
    return c10::DispatchKeySet(
        c10::computeDispatchKey(dtype != nullptr ? std::optional(dtype->toScalarType()) : std::nullopt,
                                layout != nullptr ? std::optional(layout->toLayout()) : std::nullopt,
                                device != nullptr ? std::optional(device->toDevice()) : std::nullopt));
  }

  c10::DispatchKey key_;
  c10::DeviceType type_;
  OptionPositions options_;
  bool selects_;
};

bool takesDevice(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    c10::TypePtr type = argument.type();
    if (type->kind() == c10::TypeKind::OptionalType)
      type = type->expectRef<c10::OptionalType>().getElementType();
    if (type->kind() == c10::TypeKind::DeviceObjType) return true;
  }
  return false;
}

bool wants(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return !ofAutograd(key) || op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

// Standing before a kernel of PyTorch's is what is wanted here, and taken back by restoreDeviceType().
class NoWarnings final : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

using Libraries = std::array<std::optional<torch::Library>, kKeys.size()>;
std::mutex mutex;
std::unique_ptr<Libraries> libraries;  // not null while a name is on

void fill(torch::Library& library, c10::DispatchKey key, c10::DeviceType type) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op.has_value() || !takesDevice(op->schema()) || !wants(*op, key)) continue;
    const bool selects = key == c10::DispatchKey::BackendSelect && op->hasKernelForDispatchKey(key);
    library.impl(c10::toString(name).c_str(),
                 torch::CppFunction::makeFromBoxedFunctor(
                     std::make_unique<RenamedDevice>(key, type, positionsIn(op->schema()), selects)));
  }
}

}  // namespace

void renameDeviceType(c10::DeviceType type) {
  const std::lock_guard<std::mutex> lock(mutex);
  TORCH_CHECK(libraries == nullptr, "flagos: a device type is renamed already; end that first.");
  NoWarnings handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
  auto made = std::make_unique<Libraries>();
  for (size_t i = 0; i < kKeys.size(); ++i) {
    (*made)[i].emplace(torch::Library::IMPL, "aten", kKeys[i], __FILE__, __LINE__);
    fill(*(*made)[i], kKeys[i], type);
  }
  libraries = std::move(made);
}

void restoreDeviceType() {
  const std::lock_guard<std::mutex> lock(mutex);
  libraries.reset();
}

}  // namespace flagos::ops
