// Unboxed wrappers: operators that PyTorch has no CPU kernel for. Registered only where a companion serves them.
// hot.h stands first: the headers of single operators expect ATen's types to be declared.
#include "csrc/ops/hot.h"
#include "csrc/ops/hot_lists.h"

#include <ATen/ops/_fused_rms_norm_backward_ops.h>
#include <ATen/ops/_fused_rms_norm_ops.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_ops.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_ops.h>
#include <ATen/ops/cudnn_batch_norm_backward_ops.h>
#include <ATen/ops/cudnn_batch_norm_ops.h>

namespace flagos::ops {

int64_t registerHotCompanion(HotLibraries& libraries) {
  return registerAll<
      at::_ops::_scaled_dot_product_flash_attention, at::_ops::_scaled_dot_product_flash_attention_backward,
      at::_ops::_scaled_dot_product_efficient_attention,
      at::_ops::_scaled_dot_product_efficient_attention_backward,
      at::_ops::_scaled_dot_product_cudnn_attention, at::_ops::_scaled_dot_product_cudnn_attention_backward,
      at::_ops::_fused_rms_norm, at::_ops::_fused_rms_norm_backward, at::_ops::cudnn_batch_norm,
      at::_ops::cudnn_batch_norm_backward>(libraries);
}

}  // namespace flagos::ops
