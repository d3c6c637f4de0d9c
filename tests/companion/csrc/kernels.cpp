#include "kernels.h"

#include <ATen/core/List.h>

#include "generator.h"
#include "host_call.h"

namespace standin {
namespace {

const c10::DispatchKeySet kHostKeys(c10::DispatchKey::CPU);

// The alias of a list's element, which may be none.
std::optional<at::Tensor> aliasOf(const c10::IValue& element, HostCall& call) {
  if (element.isNone()) return std::nullopt;
  return call.alias(element.toTensor());
}

void seeArgument(const c10::IValue& value, const Argument& argument, HostCall& call) {
  if (value.isNone()) return;
  switch (argument.kind) {
    case ArgumentKind::Tensor:
      return call.see(value.toTensor(), argument);
    case ArgumentKind::TensorList:
    case ArgumentKind::OptionalTensorList:
      for (const c10::IValue& element : value.toListRef()) {
        if (!element.isNone()) call.see(element.toTensor(), argument);
      }
      return;
    case ArgumentKind::Device:
      return call.seeDevice(value.toDevice());
    default:
      return;
  }
}

c10::IValue lentArgument(c10::IValue value, const Argument& argument, HostCall& call) {
  if (argument.kind == ArgumentKind::Generator) {
    return generatorFor(value.toOptional<at::Generator>(), call.device()).draw();
  }
  if (value.isNone()) return value;
  switch (argument.kind) {
    case ArgumentKind::Tensor:
      return call.alias(value.toTensor());
    case ArgumentKind::TensorList: {
      c10::List<at::Tensor> list;
      for (const c10::IValue& element : value.toListRef()) list.push_back(call.alias(element.toTensor()));
      return list;
    }
    case ArgumentKind::OptionalTensorList: {
      c10::List<std::optional<at::Tensor>> list;
      for (const c10::IValue& element : value.toListRef()) list.push_back(aliasOf(element, call));
      return list;
    }
    case ArgumentKind::Device:
      return c10::Device(c10::DeviceType::CPU);
    default:
      return value;
  }
}

c10::IValue converted(const c10::IValue& value, HostCall& call) {
  if (value.isTensor()) return call.result(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(call.result(tensor));
    return list;
  }
  return value;
}

}  // namespace

void runOnHost(const OpInfo& info, const c10::OperatorHandle& target, torch::jit::Stack* stack) {
  HostCall call(info);
  const size_t first = stack->size() - info.arguments.size();
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    seeArgument((*stack)[first + i], info.arguments[i], call);
  }
  call.begin();
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    value = lentArgument(std::move(value), info.arguments[i], call);
  }
  // The one pair of operators whose CPU kernel has another name, and in the backward one argument more.
  if (info.name == "aten::convolution_backward_overrideable") {
    stack->insert(stack->begin() + static_cast<std::ptrdiff_t>(first) + 3, c10::IValue());  // bias_sizes
  }
  target.redispatchBoxed(kHostKeys, stack);
  call.finishWrites();
  for (size_t i = stack->size() - info.returns; i < stack->size(); ++i) {
    (*stack)[i] = converted((*stack)[i], call);
  }
}

}  // namespace standin
