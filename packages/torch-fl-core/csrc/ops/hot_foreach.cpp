// Unboxed wrappers: lists of tensors and fused optimizers.
// hot.h stands first: the headers of single operators expect ATen's types to be declared.
#include "csrc/ops/hot.h"
#include "csrc/ops/hot_lists.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale_ops.h>
#include <ATen/ops/_amp_update_scale_ops.h>
#include <ATen/ops/_foreach_add_ops.h>
#include <ATen/ops/_foreach_addcdiv_ops.h>
#include <ATen/ops/_foreach_addcmul_ops.h>
#include <ATen/ops/_foreach_copy_ops.h>
#include <ATen/ops/_foreach_div_ops.h>
#include <ATen/ops/_foreach_lerp_ops.h>
#include <ATen/ops/_foreach_mul_ops.h>
#include <ATen/ops/_foreach_neg_ops.h>
#include <ATen/ops/_foreach_norm_ops.h>
#include <ATen/ops/_foreach_sqrt_ops.h>
#include <ATen/ops/_foreach_sub_ops.h>
#include <ATen/ops/_foreach_zero_ops.h>
#include <ATen/ops/_fused_adagrad_ops.h>
#include <ATen/ops/_fused_adam_ops.h>
#include <ATen/ops/_fused_adamw_ops.h>
#include <ATen/ops/_fused_sgd_ops.h>

namespace flagos::ops {

int64_t registerHotForeach(HotLibraries& libraries) {
  // Their kernels loop over elements, save the norm's, which makes views.
  return registerElementwise<
             at::_ops::_foreach_add__List, at::_ops::_foreach_add__Scalar, at::_ops::_foreach_add__Tensor,
             at::_ops::_foreach_sub__List, at::_ops::_foreach_mul__Scalar, at::_ops::_foreach_mul__List,
             at::_ops::_foreach_mul__Tensor, at::_ops::_foreach_div__Scalar, at::_ops::_foreach_div__List,
             at::_ops::_foreach_div__ScalarList, at::_ops::_foreach_addcmul__Scalar,
             at::_ops::_foreach_addcdiv__Scalar, at::_ops::_foreach_addcdiv__ScalarList,
             at::_ops::_foreach_lerp__Scalar, at::_ops::_foreach_lerp__List, at::_ops::_foreach_sqrt_,
             at::_ops::_foreach_zero_, at::_ops::_foreach_copy_, at::_ops::_foreach_add_List,
             at::_ops::_foreach_add_Scalar, at::_ops::_foreach_mul_Scalar, at::_ops::_foreach_mul_List,
             at::_ops::_foreach_div_List, at::_ops::_foreach_sqrt, at::_ops::_foreach_neg,
             at::_ops::_fused_adam_, at::_ops::_fused_adam__tensor_lr, at::_ops::_fused_adamw_,
             at::_ops::_fused_adamw__tensor_lr, at::_ops::_fused_sgd_, at::_ops::_fused_sgd__tensor_lr,
             at::_ops::_fused_adagrad_, at::_ops::_amp_foreach_non_finite_check_and_unscale_,
             at::_ops::_amp_update_scale_>(libraries) +
         registerAll<at::_ops::_foreach_norm_Scalar>(libraries);
}

}  // namespace flagos::ops
