#include "csrc/ops/routed_kernel.h"

#include <ATen/core/List.h>

#include <chrono>

#include "csrc/ops/counters.h"
#include "csrc/ops/operator_call.h"
#include "csrc/ops/route_check.h"
#include "csrc/ops/source_generator.h"
#include "csrc/ops/source_kernels.h"

namespace flagos::ops {

namespace {

// The caller's tensors, taken off the stack so that aliases can stand there. Addresses must stay fixed:
// OperatorCall keeps them.
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

void seeArguments(const OpRecord& record, c10::IValue* arguments, Originals& originals, OperatorCall& call) {
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

at::Tensor lent(const at::Tensor& original, OperatorCall& call) {
  if (!original.defined() || original.device().type() != kDeviceType) return original;
  std::optional<at::Tensor> holder;
  return call.lend(original, holder).value();
}

void lendArguments(const OpRecord& record, c10::IValue* arguments, Originals& originals, OperatorCall& call) {
  for (size_t i = 0; i < record.arguments.size(); ++i) {
    c10::IValue& value = arguments[i];
    const ArgumentKind kind = record.arguments[i].kind;
    if (kind == ArgumentKind::Generator) {
      value = sourceGenerator(value.toOptional<at::Generator>(), call);
      continue;
    }
    if (value.isNone()) continue;
    switch (kind) {
      case ArgumentKind::Tensor:
        value = lent(originals.next(), call);
        break;
      case ArgumentKind::TensorList: {
        const size_t size = value.toListRef().size();
        c10::List<at::Tensor> list;
        list.reserve(size);
        for (size_t k = 0; k < size; ++k) list.push_back(lent(originals.next(), call));
        value = std::move(list);
        break;
      }
      case ArgumentKind::OptionalTensorList: {
        const size_t size = value.toListRef().size();
        c10::List<std::optional<at::Tensor>> list;
        list.reserve(size);
        for (size_t k = 0; k < size; ++k) {
          const at::Tensor& original = originals.next();
          list.push_back(original.defined() ? std::optional<at::Tensor>(lent(original, call)) : std::nullopt);
        }
        value = std::move(list);
        break;
      }
      case ArgumentKind::Device:
        value = call.target();
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

// What fails here would fail in PyTorch's dispatcher with a message for its developers.
void checkHostKernel(const OpRecord& record, const DeviceEntry& device) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      hasHostKernel(record), "flagos: no source implements ", opName(record.id), " for dense tensors of ",
      describeDevice(device),
      ". Asked: ", device.companion != nullptr ? "boxed (the companion has no kernel), " : "",
      "cpu (PyTorch has no CPU kernel for it). Use another operator, or register a kernel for it with "
      "torch.library under the key PrivateUse1.");
}

c10::IValue convertReturn(c10::IValue value, OperatorCall& call) {
  if (value.isTensor()) return call.result(std::move(value).toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (at::Tensor& tensor : value.toTensorVector()) list.push_back(call.result(std::move(tensor)));
    return list;
  }
  return value;
}

// By the CPU or the companion, over aliases.
void callLent(const OpRecord& record, torch::jit::Stack* stack, Source source) {
  c10::IValue* arguments = stack->data() + (stack->size() - record.arguments.size());
  Originals originals(countTensors(record, arguments));
  OperatorCall call(record.id, record.traits, source);
  seeArguments(record, arguments, originals, call);
  call.settle();
  call.begin();
  lendArguments(record, arguments, originals, call);
  try {
    record.op.redispatchBoxed(call.keys(), stack);
  } catch (c10::AcceleratorError& error) {
    call.explain(error);
    throw;
  }
  call.finishWrites();
  for (size_t i = stack->size() - record.returns; i < stack->size(); ++i) {
    (*stack)[i] = convertReturn(std::move((*stack)[i]), call);
  }
}

// One candidate; false if it was not for this call, declined, or failed where the table allows that.
bool tryCandidate(const OpRecord& record, torch::jit::Stack* stack, const Candidate& candidate,
                  const DeviceEntry& device) {
  const size_t count = record.arguments.size();
  const c10::IValue* arguments = stack->data() + (stack->size() - count);
  if (candidate.when != nullptr &&
      !candidate.when->holds(record.op.schema(), arguments, firstDeviceTensor(record, arguments),
                             device.local)) {
    return false;
  }
  if (candidate.on_error == OnError::Raise) return callSource(record, stack, candidate.source, device);
  // A kernel that fails may have taken its arguments off the stack.
  const torch::jit::Stack kept(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  const size_t below = stack->size() - count;
  try {
    return callSource(record, stack, candidate.source, device);
  } catch (const c10::Error& error) {
    noteCandidateError(record.id, candidate.source, error.what_without_backtrace());
    stack->resize(below);
    stack->insert(stack->end(), kept.begin(), kept.end());
    return false;
  }
}

Source callCandidates(const OpRecord& record, torch::jit::Stack* stack, Route found,
                      const DeviceEntry& device) {
  for (const Candidate& candidate : candidatesOf(found)) {
    if (tryCandidate(record, stack, candidate, device)) return candidate.source;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "flagos: every source of the route of ", opName(record.id), " on ",
                              describeDevice(device), " declined this call. See torch_fl.routes.explain(\"",
                              opName(record.id), "\").");
}

void callWatched(const OpRecord& record, torch::jit::Stack* stack, Route found, const DeviceEntry& device) {
  RouteCheck check(record, *stack);
  const auto start = std::chrono::steady_clock::now();
  const Source source = callCandidates(record, stack, found, device);
  const auto taken = std::chrono::steady_clock::now() - start;
  countTime(record.id, source, device.index,
            static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(taken).count()));
  check.compare(*stack, source, device);
}

}  // namespace

at::Tensor firstDeviceTensor(const OpRecord& record, const c10::IValue* arguments) {
  for (size_t i = 0; i < record.arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    if (value.isNone()) continue;
    if (record.arguments[i].kind == ArgumentKind::Tensor) {
      const at::Tensor& tensor = value.toTensor();
      if (tensor.defined() && tensor.device().type() == kDeviceType) return tensor;
    } else if (record.arguments[i].kind == ArgumentKind::TensorList ||
               record.arguments[i].kind == ArgumentKind::OptionalTensorList) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isNone()) continue;
        const at::Tensor& tensor = element.toTensor();
        if (tensor.defined() && tensor.device().type() == kDeviceType) return tensor;
      }
    }
  }
  return {};
}

const DeviceEntry& deviceOfCall(const OpRecord& record, const c10::IValue* arguments) {
  const at::Tensor first = firstDeviceTensor(record, arguments);
  if (first.defined()) return deviceEntry(first.device().index());
  for (size_t i = 0; i < record.arguments.size(); ++i) {
    if (record.arguments[i].kind != ArgumentKind::Device || arguments[i].isNone()) continue;
    const c10::Device device = arguments[i].toDevice();
    if (device.type() == kDeviceType) return deviceEntry(resolveIndex(device.index()));
  }
  return deviceEntry(currentDevice());
}

bool callSource(const OpRecord& record, torch::jit::Stack* stack, Source source, const DeviceEntry& device) {
  if (source == Source::Boxed) {
    callLent(record, stack, source);
    return true;
  }
  if (source == Source::Cpu) {
    if (record.composed != nullptr) {
      countCall(record.id, source, device.index);
      record.composed->callBoxed(record.op, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
      return true;
    }
    checkHostKernel(record, device);
    callLent(record, stack, source);
    return true;
  }
  const SourceKernel* kernel = sourceKernel(source, record.id, device.slot);
  if (kernel != nullptr && (*kernel)(record.op, stack)) {
    countCall(record.id, source, device.index);
    return true;
  }
  countDecline(record.id, source);
  return false;
}

void callRouted(const OpRecord& record, torch::jit::Stack* stack) {
  const c10::IValue* arguments = stack->data() + (stack->size() - record.arguments.size());
  if (C10_UNLIKELY(record.traits.list_loop && listsSpanDevices(record, arguments))) {
    record.op.redispatchBoxed(compositeKeys(), stack);
    return;
  }
  const DeviceEntry& device = deviceOfCall(record, arguments);
  const Route found = route(record.id, device);
  if (C10_UNLIKELY(found.watched())) {
    callWatched(record, stack, found, device);
  } else if (C10_LIKELY(found.direct() && callSource(record, stack, found.source(), device))) {
    return;
  } else {
    callCandidates(record, stack, found, device);
  }
}

void routedFallback(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  const OpRecord& record = opRecord(op);
  joinRoutes(record);
  callRouted(record, stack);
}

}  // namespace flagos::ops
