#include "csrc/ops/op_record.h"

#include <ATen/core/enum_tag.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace flagos::ops {

namespace {

// Operators whose tensors of the host are indices, lengths or numbers that every backend reads where they
// are.
constexpr std::array<std::string_view, 13> kHostTensorsAllowed = {"aten::_foreach_addcdiv",
                                                                  "aten::_foreach_addcdiv_",
                                                                  "aten::_foreach_addcmul",
                                                                  "aten::_foreach_addcmul_",
                                                                  "aten::index",
                                                                  "aten::index_put_",
                                                                  "aten::_index_put_impl_",
                                                                  "aten::_unsafe_index",
                                                                  "aten::_unsafe_index_put",
                                                                  "aten::_ctc_loss",
                                                                  "aten::_ctc_loss_backward",
                                                                  "aten::_pad_packed_sequence",
                                                                  "aten::_pack_padded_sequence"};

// Arguments that a kernel changes though the schema does not say so.
struct UndeclaredWrite {
  std::string_view op;
  std::string_view argument;
};
constexpr std::array<UndeclaredWrite, 6> kUndeclaredWrites = {
    {{"aten::native_batch_norm", "running_mean"},
     {"aten::native_batch_norm", "running_var"},
     {"aten::batch_norm_update_stats", "running_mean"},
     {"aten::batch_norm_update_stats", "running_var"},
     {"aten::rrelu_with_noise", "noise"},
     {"aten::rrelu_with_noise_", "noise"}}};

ArgumentKind kindOf(const c10::TypePtr& type) {
  c10::TypePtr inner = type;
  if (const auto optional = type->cast<c10::OptionalType>()) inner = optional->getElementType();
  switch (inner->kind()) {
    case c10::TypeKind::TensorType:
      return ArgumentKind::Tensor;
    case c10::TypeKind::GeneratorType:
      return ArgumentKind::Generator;
    case c10::TypeKind::DeviceObjType:
      return ArgumentKind::Device;
    case c10::TypeKind::ListType: {
      const auto element = inner->expectRef<c10::ListType>().getElementType();
      if (element->kind() == c10::TypeKind::TensorType) return ArgumentKind::TensorList;
      if (const auto optional = element->cast<c10::OptionalType>()) {
        if (optional->getElementType()->kind() == c10::TypeKind::TensorType)
          return ArgumentKind::OptionalTensorList;
      }
      return ArgumentKind::Other;
    }
    default:
      return ArgumentKind::Other;
  }
}

// Composites that are routed as a whole nevertheless: on a device that PyTorch does not know by name they
// fail or take another way. `convolution` looks for a backend by device type, `mode` for a name,
// `conj_physical_` for a kernel in a table of PyTorch's own; `addr_` tells
// its in-place case by the address of an argument.
constexpr std::array<std::string_view, 5> kRoutedComposites = {
    "aten::convolution", "aten::convolution_backward", "aten::mode.values", "aten::conj_physical_",
    "aten::addr_"};

using ComposedKernels = std::unordered_map<std::string, c10::KernelFunction>;

ComposedKernels& composedKernels() {
  static auto* instance = new ComposedKernels();  // complete before the first record; never destroyed
  return *instance;
}

// By PyTorch's rule for names.
bool isInPlace(const c10::FunctionSchema& schema) {
  return schema.name().back() == '_' && schema.is_mutable() &&
         schema.overload_name().find("out") == std::string::npos;
}

std::unique_ptr<OpRecord> makeRecord(const c10::OperatorHandle& op) {
  auto record = std::make_unique<OpRecord>(op);
  const c10::FunctionSchema& schema = op.schema();
  const std::string name = c10::toString(schema.operator_name());
  record->id = opId(name);
  const auto composed = composedKernels().find(name);
  if (composed != composedKernels().end()) record->composed = &composed->second;
  record->traits.composed = record->composed != nullptr;
  record->whole = isRoutedWhole(name);
  const auto& tags = op.getTags();
  record->compared = std::find(tags.begin(), tags.end(), at::Tag::nondeterministic_seeded) == tags.end() &&
                     schema.name().rfind("aten::empty", 0) != 0;
  record->returns = schema.returns().size();
  record->traits.host_tensors_allowed = std::find(kHostTensorsAllowed.begin(), kHostTensorsAllowed.end(),
                                                  schema.name()) != kHostTensorsAllowed.end();
  record->traits.list_loop = schema.name().rfind("aten::_foreach_", 0) == 0;
  record->in_place = isInPlace(schema);
  record->traits.counts_versions = record->traits.list_loop && schema.is_mutable();
  for (const c10::Argument& argument : schema.arguments()) {
    ArgumentRecord entry;
    entry.kind = kindOf(argument.type());
    // An out= argument is read as well: a kernel may leave it, or a part of it, as it was (batch norm's saved
    // statistics in evaluation).
    if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) entry.access = Access::Write;
    for (const auto& write : kUndeclaredWrites) {
      if (write.op == schema.name() && write.argument == argument.name()) entry.access = Access::Write;
    }
    record->arguments.push_back(entry);
  }
  return record;
}

struct Records {
  std::mutex mutex;
  std::unordered_map<c10::OperatorName, std::unique_ptr<OpRecord>> by_name;
};

Records& records() {
  static auto* instance = new Records();  // never destroyed: kernels keep references
  return *instance;
}

std::array<std::atomic<const OpRecord*>, kMaxOps> by_id{};

}  // namespace

const OpRecord& opRecord(const c10::OperatorHandle& op) {
  Records& all = records();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto& slot = all.by_name[op.operator_name()];
  if (slot == nullptr) {
    slot = makeRecord(op);
    by_id[slot->id].store(slot.get(), std::memory_order_release);
  }
  return *slot;
}

const OpRecord* recordOf(OpId id) noexcept {
  return id < kMaxOps ? by_id[id].load(std::memory_order_acquire) : nullptr;
}

void registerComposed(const std::string& name, c10::KernelFunction kernel) {
  composedKernels().emplace(name, std::move(kernel));
}

bool isRoutedWhole(const std::string& name) noexcept {
  return std::find(kRoutedComposites.begin(), kRoutedComposites.end(), name) != kRoutedComposites.end();
}

bool isComposed(const std::string& name) noexcept { return composedKernels().count(name) != 0; }

bool hasKernel(const OpRecord& record, c10::DispatchKeySet keys) {
  return record.op.hasComputedKernelForDispatchKey(keys.highestPriorityTypeId());
}

bool hasHostKernel(const OpRecord& record) {
  static const c10::DispatchKeySet host_keys(c10::DispatchKey::CPU);
  return record.composed != nullptr || hasKernel(record, host_keys);
}

}  // namespace flagos::ops
