// Unboxed wrappers: matrix products, convolution, pooling.
// hot.h stands first: the headers of single operators expect ATen's types to be declared.
#include "csrc/ops/hot.h"
#include "csrc/ops/hot_lists.h"

#include <ATen/ops/_adaptive_avg_pool2d_backward_ops.h>
#include <ATen/ops/_adaptive_avg_pool2d_ops.h>
#include <ATen/ops/_addmm_activation_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/addmv_ops.h>
#include <ATen/ops/addr_ops.h>
#include <ATen/ops/avg_pool2d_backward_ops.h>
#include <ATen/ops/avg_pool2d_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/dot_ops.h>
#include <ATen/ops/max_pool2d_with_indices_backward_ops.h>
#include <ATen/ops/max_pool2d_with_indices_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/tril_ops.h>
#include <ATen/ops/triu_ops.h>
#include <ATen/ops/upsample_bilinear2d_ops.h>
#include <ATen/ops/upsample_nearest2d_ops.h>
#include <ATen/ops/vdot_ops.h>

namespace flagos::ops {

int64_t registerHotLinear(HotLibraries& libraries) {
  return registerAll<
      at::_ops::mm, at::_ops::mm_out, at::_ops::bmm, at::_ops::bmm_out, at::_ops::addmm, at::_ops::addmm_out,
      at::_ops::addmm_, at::_ops::addmv, at::_ops::addmv_, at::_ops::baddbmm, at::_ops::baddbmm_,
      at::_ops::baddbmm_out, at::_ops::dot, at::_ops::vdot, at::_ops::addr, at::_ops::convolution,
      at::_ops::convolution_backward, at::_ops::_addmm_activation, at::_ops::max_pool2d_with_indices,
      at::_ops::max_pool2d_with_indices_backward, at::_ops::avg_pool2d, at::_ops::avg_pool2d_backward,
      at::_ops::_adaptive_avg_pool2d, at::_ops::_adaptive_avg_pool2d_backward, at::_ops::upsample_nearest2d,
      at::_ops::upsample_bilinear2d, at::_ops::triu, at::_ops::tril, at::_ops::triu_, at::_ops::tril_>(
      libraries);
}

}  // namespace flagos::ops
