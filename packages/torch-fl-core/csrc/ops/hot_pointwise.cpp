// Unboxed wrappers: element by element.
// hot.h stands first: the headers of single operators expect ATen's types to be declared.
#include "csrc/ops/hot.h"
#include "csrc/ops/hot_lists.h"

#include <ATen/ops/abs_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/arange_ops.h>
#include <ATen/ops/atan2_ops.h>
#include <ATen/ops/bitwise_and_ops.h>
#include <ATen/ops/bitwise_not_ops.h>
#include <ATen/ops/bitwise_or_ops.h>
#include <ATen/ops/bitwise_xor_ops.h>
#include <ATen/ops/ceil_ops.h>
#include <ATen/ops/clamp_max_ops.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/erf_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/expm1_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/floor_ops.h>
#include <ATen/ops/fmod_ops.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/isnan_ops.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/log1p_ops.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/logical_and_ops.h>
#include <ATen/ops/logical_not_ops.h>
#include <ATen/ops/logical_or_ops.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/ne_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/remainder_ops.h>
#include <ATen/ops/round_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/sign_ops.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/trunc_ops.h>
#include <ATen/ops/where_ops.h>
#include <ATen/ops/zero_ops.h>

namespace flagos::ops {

int64_t registerHotPointwise(HotLibraries& libraries) {
  // masked_fill_ expands its mask, which makes a view.
  return registerElementwise<
             at::_ops::add_Tensor, at::_ops::add__Tensor, at::_ops::add_out, at::_ops::sub_Tensor,
             at::_ops::sub__Tensor, at::_ops::sub_out, at::_ops::mul_Tensor, at::_ops::mul__Tensor,
             at::_ops::mul_out, at::_ops::div_Tensor, at::_ops::div__Tensor, at::_ops::div_out, at::_ops::neg,
             at::_ops::neg_, at::_ops::neg_out, at::_ops::exp, at::_ops::exp_, at::_ops::exp_out,
             at::_ops::log, at::_ops::log_, at::_ops::log_out, at::_ops::sqrt, at::_ops::sqrt_,
             at::_ops::sqrt_out, at::_ops::rsqrt, at::_ops::rsqrt_, at::_ops::rsqrt_out, at::_ops::reciprocal,
             at::_ops::reciprocal_, at::_ops::reciprocal_out, at::_ops::sin, at::_ops::sin_,
             at::_ops::sin_out, at::_ops::cos, at::_ops::cos_, at::_ops::cos_out, at::_ops::tanh,
             at::_ops::tanh_, at::_ops::tanh_out, at::_ops::sigmoid, at::_ops::sigmoid_,
             at::_ops::sigmoid_out, at::_ops::abs_out, at::_ops::erf, at::_ops::erf_, at::_ops::erf_out,
             at::_ops::floor, at::_ops::floor_, at::_ops::floor_out, at::_ops::ceil, at::_ops::ceil_,
             at::_ops::ceil_out, at::_ops::sign, at::_ops::sign_, at::_ops::sign_out, at::_ops::bitwise_not,
             at::_ops::bitwise_not_, at::_ops::bitwise_not_out, at::_ops::logical_not_out, at::_ops::trunc,
             at::_ops::trunc_, at::_ops::trunc_out, at::_ops::round, at::_ops::round_, at::_ops::round_out,
             at::_ops::log1p, at::_ops::log1p_, at::_ops::log1p_out, at::_ops::expm1, at::_ops::expm1_,
             at::_ops::expm1_out, at::_ops::pow_Tensor_Scalar, at::_ops::pow_Tensor_Tensor,
             at::_ops::pow__Scalar, at::_ops::pow__Tensor, at::_ops::maximum, at::_ops::minimum,
             at::_ops::atan2, at::_ops::remainder_Tensor, at::_ops::fmod_Tensor, at::_ops::eq_Scalar,
             at::_ops::eq_Tensor, at::_ops::ne_Scalar, at::_ops::ne_Tensor, at::_ops::lt_Scalar,
             at::_ops::lt_Tensor, at::_ops::le_Scalar, at::_ops::le_Tensor, at::_ops::gt_Scalar,
             at::_ops::gt_Tensor, at::_ops::ge_Scalar, at::_ops::ge_Tensor, at::_ops::bitwise_and_Tensor,
             at::_ops::bitwise_or_Tensor, at::_ops::bitwise_xor_Tensor, at::_ops::where_self, at::_ops::clamp,
             at::_ops::clamp_, at::_ops::clamp_min, at::_ops::clamp_min_, at::_ops::clamp_max,
             at::_ops::addcmul, at::_ops::addcmul_, at::_ops::addcdiv, at::_ops::addcdiv_,
             at::_ops::lerp_Scalar, at::_ops::lerp__Scalar, at::_ops::lerp_Tensor, at::_ops::lerp__Tensor,
             at::_ops::fill__Scalar, at::_ops::fill__Tensor, at::_ops::zero_, at::_ops::isnan,
             at::_ops::logical_and_out, at::_ops::logical_or_out, at::_ops::arange_start_out>(libraries) +
         registerAll<at::_ops::masked_fill__Scalar, at::_ops::masked_fill__Tensor>(libraries);
}

}  // namespace flagos::ops
