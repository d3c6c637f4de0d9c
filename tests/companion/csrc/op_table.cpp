#include "op_table.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

namespace standin {
namespace {

// Operators whose tensors of the host CUDA's kernels read where they are.
constexpr std::array<std::string_view, 13> kHostTensorsAllowed = {"aten::index",
                                                                  "aten::index_put_",
                                                                  "aten::_index_put_impl_",
                                                                  "aten::_unsafe_index",
                                                                  "aten::_unsafe_index_put",
                                                                  "aten::_pack_padded_sequence",
                                                                  "aten::_ctc_loss",
                                                                  "aten::_ctc_loss_backward",
                                                                  "aten::_pad_packed_sequence",
                                                                  "aten::_foreach_addcdiv",
                                                                  "aten::_foreach_addcdiv_",
                                                                  "aten::_foreach_addcmul",
                                                                  "aten::_foreach_addcmul_"};

struct OpTable {
  std::mutex mutex;  // guards the map; entries stay where they are
  std::map<std::string, std::unique_ptr<OpInfo>> by_name;
};

OpTable& table() {
  static auto* const instance = new OpTable;
  return *instance;
}

ArgumentKind kindOf(const c10::TypePtr& type) {
  c10::TypePtr inner = type;
  if (const auto optional = type->cast<c10::OptionalType>()) inner = optional->getElementType();
  if (inner->kind() == c10::TypeKind::TensorType) return ArgumentKind::Tensor;
  if (inner->kind() == c10::TypeKind::GeneratorType) return ArgumentKind::Generator;
  if (inner->kind() == c10::TypeKind::DeviceObjType) return ArgumentKind::Device;
  const auto list = inner->cast<c10::ListType>();
  if (list == nullptr) return ArgumentKind::Other;
  const c10::TypePtr element = list->getElementType();
  if (element->kind() == c10::TypeKind::TensorType) return ArgumentKind::TensorList;
  const auto optional = element->cast<c10::OptionalType>();
  const bool tensors = optional && optional->getElementType()->kind() == c10::TypeKind::TensorType;
  return tensors ? ArgumentKind::OptionalTensorList : ArgumentKind::Other;
}

std::unique_ptr<OpInfo> makeInfo(const c10::OperatorHandle& op) {
  auto info = std::make_unique<OpInfo>();
  const c10::FunctionSchema& schema = op.schema();
  info->name = c10::toString(op.operator_name());
  info->returns = schema.returns().size();
  info->host_tensors_allowed = std::find(kHostTensorsAllowed.begin(), kHostTensorsAllowed.end(),
                                         schema.name()) != kHostTensorsAllowed.end();
  info->counts_versions = schema.is_mutable() && schema.name().rfind("aten::_foreach_", 0) == 0;
  for (const c10::Argument& from : schema.arguments()) {
    Argument argument;
    argument.name = from.name();
    argument.kind = kindOf(from.type());
    argument.written = from.alias_info() != nullptr && from.alias_info()->isWrite();
    info->takes_device = info->takes_device || argument.kind == ArgumentKind::Device;
    info->arguments.push_back(std::move(argument));
  }
  return info;
}

}  // namespace

OpInfo& opInfo(const c10::OperatorHandle& op) {
  OpTable& all = table();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto& slot = all.by_name[c10::toString(op.operator_name())];
  if (slot == nullptr) slot = makeInfo(op);
  return *slot;
}

OpInfo& opInfo(const char* name) {
  const std::string text = name;
  const size_t dot = text.find('.');
  const c10::OperatorName parsed(text.substr(0, dot), dot == std::string::npos ? "" : text.substr(dot + 1));
  const auto op = c10::Dispatcher::singleton().findSchema(parsed);
  TORCH_CHECK(op.has_value(), "standin: this torch has no operator ", text, ".");
  return opInfo(*op);
}

OpInfo* findOp(const std::string& name) {
  OpTable& all = table();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.by_name.find(name);
  return found == all.by_name.end() ? nullptr : found->second.get();
}

std::vector<const OpInfo*> allOps() {
  OpTable& all = table();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::vector<const OpInfo*> ops;
  for (const auto& [name, info] : all.by_name) ops.push_back(info.get());
  return ops;
}

}  // namespace standin
