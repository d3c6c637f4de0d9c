// Unboxed wrappers: activations, losses, norms and attention.
// hot.h stands first: the headers of single operators expect ATen's types to be declared.
#include "csrc/ops/hot.h"
#include "csrc/ops/hot_lists.h"

#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/binary_cross_entropy_backward_ops.h>
#include <ATen/ops/binary_cross_entropy_ops.h>
#include <ATen/ops/elu_backward_ops.h>
#include <ATen/ops/elu_ops.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/glu_backward_ops.h>
#include <ATen/ops/glu_ops.h>
#include <ATen/ops/hardswish_backward_ops.h>
#include <ATen/ops/hardswish_ops.h>
#include <ATen/ops/hardtanh_backward_ops.h>
#include <ATen/ops/hardtanh_ops.h>
#include <ATen/ops/huber_loss_ops.h>
#include <ATen/ops/leaky_relu_backward_ops.h>
#include <ATen/ops/leaky_relu_ops.h>
#include <ATen/ops/mish_ops.h>
#include <ATen/ops/mse_loss_backward_ops.h>
#include <ATen/ops/mse_loss_ops.h>
#include <ATen/ops/native_batch_norm_backward_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/native_dropout_backward_ops.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/native_group_norm_backward_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/nll_loss2d_forward_ops.h>
#include <ATen/ops/nll_loss_backward_ops.h>
#include <ATen/ops/nll_loss_forward_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/smooth_l1_loss_ops.h>
#include <ATen/ops/softplus_backward_ops.h>
#include <ATen/ops/softplus_ops.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/threshold_backward_ops.h>

namespace flagos::ops {

int64_t registerHotActivation(HotLibraries& libraries) {
  return registerAll<
      at::_ops::gelu, at::_ops::gelu_backward, at::_ops::silu, at::_ops::silu_, at::_ops::silu_backward,
      at::_ops::relu, at::_ops::relu_, at::_ops::threshold_backward, at::_ops::sigmoid_backward,
      at::_ops::tanh_backward, at::_ops::leaky_relu, at::_ops::leaky_relu_backward, at::_ops::elu,
      at::_ops::elu_backward, at::_ops::hardtanh, at::_ops::hardtanh_backward, at::_ops::hardswish,
      at::_ops::hardswish_backward, at::_ops::softplus, at::_ops::softplus_backward, at::_ops::mish,
      at::_ops::glu, at::_ops::glu_backward, at::_ops::_softmax, at::_ops::_softmax_backward_data,
      at::_ops::_log_softmax, at::_ops::_log_softmax_backward_data, at::_ops::nll_loss_forward,
      at::_ops::nll_loss_backward, at::_ops::nll_loss2d_forward, at::_ops::mse_loss,
      at::_ops::mse_loss_backward, at::_ops::smooth_l1_loss, at::_ops::huber_loss,
      at::_ops::binary_cross_entropy, at::_ops::binary_cross_entropy_backward, at::_ops::native_layer_norm,
      at::_ops::native_layer_norm_backward, at::_ops::native_group_norm, at::_ops::native_group_norm_backward,
      at::_ops::native_batch_norm, at::_ops::native_batch_norm_backward, at::_ops::native_dropout,
      at::_ops::native_dropout_backward, at::_ops::_scaled_dot_product_flash_attention_for_cpu,
      at::_ops::_scaled_dot_product_flash_attention_for_cpu_backward>(libraries);
}

}  // namespace flagos::ops
