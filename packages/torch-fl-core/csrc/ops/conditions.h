// Conditions of a candidate: which calls it is for.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "csrc/api.h"

namespace flagos::ops {

// Whole numbers in [min, max], of which `multiple_of` divides.
struct Range {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
  int64_t multiple_of = 1;
  bool holds(int64_t value) const noexcept {
    return value >= min && value <= max && value % multiple_of == 0;
  }
};

// What an argument may be: one of some values, or a number in a range. A list of numbers must have a length
// in `length`, and all of its numbers in the range.
struct ArgumentCondition {
  using Value = std::variant<bool, int64_t, double, std::string>;
  std::vector<Value> one_of;  // empty: any
  std::optional<double> min, max;
  std::optional<Range> length;
};

// All of what is given must hold. The tensor that is looked at is the first argument on a flagos device; a
// call without one meets no condition about tensors.
struct FLAGOS_API Condition {
  std::string text;  // as the table has it, in one spelling: equal conditions have equal texts
  std::vector<c10::ScalarType> dtypes;  // empty: any
  Range rank;
  Range numel;
  Range last_dim;  // size of the last dimension; a tensor of rank 0 has 1
  std::optional<bool> contiguous;
  std::optional<bool> zero_size;
  std::vector<int64_t> devices;  // indices within the backend; empty: any
  std::map<std::string, ArgumentCondition> arguments;

  // Empty where the call meets the condition, else the reason in words ("dtype is float64").
  std::string unmet(const c10::FunctionSchema& schema, const c10::IValue* arguments, const at::Tensor& first,
                    int64_t local_device) const;
  bool holds(const c10::FunctionSchema& schema, const c10::IValue* arguments, const at::Tensor& first,
             int64_t local_device) const {
    return unmet(schema, arguments, first, local_device).empty();
  }
};

using ConditionPtr = std::shared_ptr<const Condition>;

}  // namespace flagos::ops
