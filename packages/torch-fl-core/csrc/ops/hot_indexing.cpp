// Unboxed wrappers: gathering, scattering and joining.
// hot.h stands first: the headers of single operators expect ATen's types to be declared.
#include "csrc/ops/hot.h"
#include "csrc/ops/hot_lists.h"

#include <ATen/ops/_embedding_bag_ops.h>
#include <ATen/ops/_index_put_impl_ops.h>
#include <ATen/ops/_unique2_ops.h>
#include <ATen/ops/bincount_ops.h>
#include <ATen/ops/bucketize_ops.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/embedding_dense_backward_ops.h>
#include <ATen/ops/flip_ops.h>
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/histc_ops.h>
#include <ATen/ops/index_add_ops.h>
#include <ATen/ops/index_copy_ops.h>
#include <ATen/ops/index_fill_ops.h>
#include <ATen/ops/index_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/masked_scatter_ops.h>
#include <ATen/ops/masked_select_ops.h>
#include <ATen/ops/nonzero_ops.h>
#include <ATen/ops/reflection_pad2d_ops.h>
#include <ATen/ops/repeat_interleave_ops.h>
#include <ATen/ops/replication_pad2d_ops.h>
#include <ATen/ops/roll_ops.h>
#include <ATen/ops/scatter_add_ops.h>
#include <ATen/ops/scatter_ops.h>
#include <ATen/ops/scatter_reduce_ops.h>
#include <ATen/ops/searchsorted_ops.h>
#include <ATen/ops/take_ops.h>

namespace flagos::ops {

int64_t registerHotIndexing(HotLibraries& libraries) {
  return registerAll<at::_ops::cat, at::_ops::cat_out, at::_ops::index_Tensor, at::_ops::index_Tensor_out,
                     at::_ops::index_select, at::_ops::index_add, at::_ops::gather, at::_ops::scatter_src,
                     at::_ops::scatter_value, at::_ops::scatter_add, at::_ops::scatter_reduce_two,
                     at::_ops::masked_select, at::_ops::nonzero, at::_ops::embedding_dense_backward,
                     at::_ops::_embedding_bag, at::_ops::take, at::_ops::flip, at::_ops::roll,
                     at::_ops::repeat_interleave_Tensor, at::_ops::bucketize_Tensor,
                     at::_ops::searchsorted_Tensor, at::_ops::histc, at::_ops::bincount, at::_ops::_unique2,
                     at::_ops::reflection_pad2d, at::_ops::replication_pad2d>(libraries) +
         registerKeepingSizes<at::_ops::_index_put_impl_, at::_ops::index_add_, at::_ops::index_copy_,
                              at::_ops::index_fill__int_Scalar, at::_ops::scatter__src,
                              at::_ops::scatter__value, at::_ops::scatter_add_, at::_ops::masked_scatter_>(
             libraries);
}

}  // namespace flagos::ops
