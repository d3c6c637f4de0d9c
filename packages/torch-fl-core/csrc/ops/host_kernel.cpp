#include "csrc/ops/host_kernel.h"

#include <ATen/core/List.h>

#include "csrc/ops/host_call.h"
#include "csrc/ops/host_generator.h"

namespace flagos::ops {

namespace {

const c10::DispatchKeySet kHostKeys(c10::DispatchKey::CPU);

// The caller's tensors, taken off the stack so that aliases can stand there. Addresses must stay fixed:
// HostCall keeps them.
class Originals {
 public:
  explicit Originals(size_t count) { tensors_.reserve(count); }
  const at::Tensor& keep(at::Tensor tensor) {
    TORCH_INTERNAL_ASSERT(tensors_.size() < tensors_.capacity());
    tensors_.push_back(std::move(tensor));
    return tensors_.back();
  }
  const at::Tensor& next() { return tensors_[cursor_++]; }

 private:
  c10::SmallVector<at::Tensor, 8> tensors_;
  size_t cursor_ = 0;
};

size_t countTensors(const OpRecord& record, const c10::IValue* arguments) {
  size_t count = 0;
  for (size_t i = 0; i < record.arguments.size(); ++i) {
    if (arguments[i].isNone()) continue;
    switch (record.arguments[i].kind) {
      case ArgumentKind::Tensor:
        ++count;
        break;
      case ArgumentKind::TensorList:
      case ArgumentKind::OptionalTensorList:
        count += arguments[i].toListRef().size();
        break;
      default:
        break;
    }
  }
  return count;
}

void seeArguments(const OpRecord& record, c10::IValue* arguments, Originals& originals, HostCall& call) {
  for (size_t i = 0; i < record.arguments.size(); ++i) {
    const ArgumentRecord& argument = record.arguments[i];
    c10::IValue& value = arguments[i];
    if (value.isNone()) continue;
    switch (argument.kind) {
      case ArgumentKind::Tensor:
        call.see(originals.keep(std::move(value).toTensor()), argument.access);
        value = c10::IValue(at::Tensor());
        break;
      case ArgumentKind::TensorList:
      case ArgumentKind::OptionalTensorList:
        for (const c10::IValue& element : value.toListRef()) {
          call.see(originals.keep(element.isNone() ? at::Tensor() : element.toTensor()), argument.access);
        }
        break;
      case ArgumentKind::Device:
        call.seeDevice(value.toDevice());
        break;
      default:
        break;
    }
  }
}

void lendArguments(const OpRecord& record, c10::IValue* arguments, Originals& originals, HostCall& call) {
  for (size_t i = 0; i < record.arguments.size(); ++i) {
    c10::IValue& value = arguments[i];
    const ArgumentKind kind = record.arguments[i].kind;
    if (kind == ArgumentKind::Generator) {
      value = hostGenerator(value.toOptional<at::Generator>(), call.device());
      continue;
    }
    if (value.isNone()) continue;
    switch (kind) {
      case ArgumentKind::Tensor:
        value = call.alias(originals.next());
        break;
      case ArgumentKind::TensorList: {
        const size_t size = value.toListRef().size();
        c10::List<at::Tensor> list;
        list.reserve(size);
        for (size_t k = 0; k < size; ++k) list.push_back(call.alias(originals.next()));
        value = std::move(list);
        break;
      }
      case ArgumentKind::OptionalTensorList: {
        const size_t size = value.toListRef().size();
        c10::List<std::optional<at::Tensor>> list;
        list.reserve(size);
        for (size_t k = 0; k < size; ++k) {
          const at::Tensor& original = originals.next();
          list.push_back(original.defined() ? std::optional<at::Tensor>(call.alias(original)) : std::nullopt);
        }
        value = std::move(list);
        break;
      }
      case ArgumentKind::Device:
        value = c10::Device(c10::DeviceType::CPU);
        break;
      default:
        break;
    }
  }
}

bool listsSpanDevices(const OpRecord& record, const c10::IValue* arguments) {
  std::optional<c10::Device> first;
  for (size_t i = 0; i < record.arguments.size(); ++i) {
    if (record.arguments[i].kind != ArgumentKind::TensorList || arguments[i].isNone()) continue;
    if (spanDevices(arguments[i].toTensorVector(), first)) return true;
  }
  return false;
}

c10::IValue convertReturn(c10::IValue value, HostCall& call) {
  if (value.isTensor()) return call.result(std::move(value).toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (at::Tensor& tensor : value.toTensorVector()) list.push_back(call.result(std::move(tensor)));
    return list;
  }
  return value;
}

}  // namespace

void callHostBoxed(const OpRecord& record, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t base = stack->size() - record.arguments.size();
  c10::IValue* arguments = stack->data() + base;
  if (C10_UNLIKELY(record.traits.list_loop && listsSpanDevices(record, arguments))) {
    op.redispatchBoxed(compositeKeys(), stack);
    return;
  }
  Originals originals(countTensors(record, arguments));
  HostCall call(record.id, record.traits);
  seeArguments(record, arguments, originals, call);
  call.begin();
  lendArguments(record, arguments, originals, call);
  op.redispatchBoxed(kHostKeys, stack);
  call.finishWrites();
  for (size_t i = stack->size() - record.returns; i < stack->size(); ++i) {
    (*stack)[i] = convertReturn(std::move((*stack)[i]), call);
  }
}

void hostFallback(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU),
                              "flagos: no source implements ", toString(op.operator_name()),
                              " for dense tensors. Asked: cpu (PyTorch has no CPU kernel for it). Use "
                              "another operator, or register a kernel for it "
                              "with torch.library under the key PrivateUse1.");
  callHostBoxed(opRecord(op), op, stack);
}

}  // namespace flagos::ops
