// Unboxed wrappers: reductions, sorting, scans.
// hot.h stands first: the headers of single operators expect ATen's types to be declared.
#include "csrc/ops/hot.h"
#include "csrc/ops/hot_lists.h"

#include <ATen/ops/_cummax_helper_ops.h>
#include <ATen/ops/all_ops.h>
#include <ATen/ops/amax_ops.h>
#include <ATen/ops/amin_ops.h>
#include <ATen/ops/aminmax_ops.h>
#include <ATen/ops/any_ops.h>
#include <ATen/ops/argmax_ops.h>
#include <ATen/ops/argmin_ops.h>
#include <ATen/ops/count_nonzero_ops.h>
#include <ATen/ops/cumprod_ops.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/equal_ops.h>
#include <ATen/ops/linalg_vector_norm_ops.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/min_ops.h>
#include <ATen/ops/norm_ops.h>
#include <ATen/ops/prod_ops.h>
#include <ATen/ops/sort_ops.h>
#include <ATen/ops/std_mean_ops.h>
#include <ATen/ops/std_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/topk_ops.h>
#include <ATen/ops/var_mean_ops.h>
#include <ATen/ops/var_ops.h>

namespace flagos::ops {

int64_t registerHotReduction(HotLibraries& libraries) {
  return registerAll<at::_ops::sum_dim_IntList, at::_ops::sum_IntList_out, at::_ops::mean_dim,
                     at::_ops::mean_out, at::_ops::prod, at::_ops::prod_dim_int, at::_ops::max,
                     at::_ops::max_dim, at::_ops::min, at::_ops::min_dim, at::_ops::amax, at::_ops::amin,
                     at::_ops::aminmax, at::_ops::argmax, at::_ops::argmin, at::_ops::any, at::_ops::any_dim,
                     at::_ops::all, at::_ops::all_dim, at::_ops::var_correction, at::_ops::std_correction,
                     at::_ops::var_mean_correction, at::_ops::std_mean_correction, at::_ops::cumsum,
                     at::_ops::cumprod, at::_ops::cumsum_, at::_ops::linalg_vector_norm,
                     at::_ops::norm_ScalarOpt_dim, at::_ops::norm_ScalarOpt_dim_dtype, at::_ops::sort_stable,
                     at::_ops::topk, at::_ops::_cummax_helper, at::_ops::equal,
                     at::_ops::count_nonzero_dim_IntList>(libraries);
}

}  // namespace flagos::ops
