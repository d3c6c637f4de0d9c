#include "csrc/ops/conditions.h"

#include <algorithm>
#include <sstream>

namespace flagos::ops {

namespace {

std::string unmetRange(const char* what, int64_t value, const Range& range) {
  if (range.holds(value)) return {};
  return std::string(what) + " is " + std::to_string(value);
}

struct SameValue {
  const c10::IValue& actual;
  bool operator()(bool wanted) const { return actual.isBool() && actual.toBool() == wanted; }
  bool operator()(int64_t wanted) const {
    if (actual.isInt()) return actual.toInt() == wanted;
    if (actual.isDouble()) return actual.toDouble() == static_cast<double>(wanted);
    return actual.isScalar() && actual.toScalar().equal(wanted);
  }
  bool operator()(double wanted) const {
    if (actual.isDouble()) return actual.toDouble() == wanted;
    if (actual.isInt()) return static_cast<double>(actual.toInt()) == wanted;
    return false;
  }
  bool operator()(const std::string& wanted) const {
    if (actual.isString()) return actual.toStringRef() == wanted;
    return wanted == "none" && actual.isNone();
  }
};

bool inBounds(const ArgumentCondition& condition, double value) {
  return (!condition.min.has_value() || value >= *condition.min) &&
         (!condition.max.has_value() || value <= *condition.max);
}

bool meets(const ArgumentCondition& condition, const c10::IValue& value) {
  if (!condition.one_of.empty() &&
      std::none_of(condition.one_of.begin(), condition.one_of.end(),
                   [&](const auto& wanted) { return std::visit(SameValue{value}, wanted); })) {
    return false;
  }
  const bool bounded = condition.min.has_value() || condition.max.has_value();
  if (!bounded && !condition.length.has_value()) return true;
  if (value.isList()) {
    const auto elements = value.toListRef();
    if (condition.length.has_value() && !condition.length->holds(static_cast<int64_t>(elements.size())))
      return false;
    return !bounded || std::all_of(elements.begin(), elements.end(), [&](const c10::IValue& element) {
      return element.isScalar() && inBounds(condition, element.toScalar().toDouble());
    });
  }
  // A number stands for a list of one.
  if (condition.length.has_value() && !condition.length->holds(1)) return false;
  if (!bounded) return true;
  if (!value.isScalar() || value.isComplexDouble()) return false;
  return inBounds(condition, value.toScalar().toDouble());
}

std::string describe(const c10::IValue& value) {
  std::ostringstream text;
  if (value.isTensor()) {
    text << "a tensor";
  } else {
    text << value;
  }
  return text.str();
}

}  // namespace

std::string Condition::unmet(const c10::FunctionSchema& schema, const c10::IValue* values,
                             const at::Tensor& first, int64_t local_device) const {
  const bool about_tensor = !dtypes.empty() || contiguous.has_value() || zero_size.has_value();
  if (!first.defined()) {
    if (about_tensor) return "no argument is a tensor of the device";
  } else {
    if (!dtypes.empty() && std::find(dtypes.begin(), dtypes.end(), first.scalar_type()) == dtypes.end())
      return "dtype is " + std::string(c10::getDtypeNames(first.scalar_type()).first);
    std::string reason = unmetRange("rank", first.dim(), rank);
    if (reason.empty()) reason = unmetRange("numel", first.numel(), numel);
    if (reason.empty())
      reason = unmetRange("the last dimension", first.dim() == 0 ? 1 : first.size(-1), last_dim);
    if (!reason.empty()) return reason;
    if (contiguous.has_value() && first.is_contiguous() != *contiguous)
      return *contiguous ? "it is not contiguous" : "it is contiguous";
    if (zero_size.has_value() && (first.numel() == 0) != *zero_size)
      return *zero_size ? "it has elements" : "it has no elements";
  }
  if (!devices.empty() && std::find(devices.begin(), devices.end(), local_device) == devices.end())
    return "the device is number " + std::to_string(local_device) + " of its backend";
  for (const auto& [name, condition] : arguments) {
    const std::optional<int> index = schema.argumentIndexWithName(name);
    if (!index.has_value()) return "the operator has no argument '" + name + "'";
    const c10::IValue& value = values[*index];
    if (!meets(condition, value)) return name + " is " + describe(value);
  }
  return {};
}

}  // namespace flagos::ops
