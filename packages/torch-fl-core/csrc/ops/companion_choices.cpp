// Composites of PyTorch that choose a kernel by device type, and so would choose otherwise for flagos than for
// the companion: answered as the companion's tensors would be.
//
// One function serves a composite both above autograd and, in inference mode, below it, as PyTorch's own does.
#include <ATen/core/Tensor.h>
#include <ATen/native/GridSamplerUtils.h>
#include <ATen/native/Normalization.h>
#include <ATen/ops/_batch_norm_impl_index_native.h>
#include <ATen/ops/cudnn_batch_norm.h>
#include <ATen/ops/cudnn_grid_sampler.h>
#include <ATen/ops/cudnn_is_acceptable_native.h>
#include <ATen/ops/grid_sampler_native.h>
#include <torch/library.h>

#include <tuple>

#include "csrc/ops/operator_call.h"

namespace flagos::ops {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool hasCompanion(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kDeviceType &&
         deviceEntry(tensor.device().index()).companion != nullptr;
}

at::Tensor aliasOf(const OptionalTensor& tensor) {
  return tensor.has_value() ? aliasOnCompanion(*tensor) : at::Tensor();
}

at::Tensor dense(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined() ? tensor->contiguous() : at::Tensor();
}

bool cudnnIsAcceptable(const at::Tensor& self) {
  return hasCompanion(self) && at::native::cudnn_is_acceptable(aliasOnCompanion(self));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, int64_t> batchNorm(
    const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, bool training, double momentum,
    double eps, bool cudnn_enabled) {
  constexpr int64_t kImplIndexCudnn = 1;  // what the backward pass of _batch_norm_impl_index knows it by
  if (hasCompanion(input) && input.numel() != 0 &&
      at::native::_select_batch_norm_backend(aliasOnCompanion(input), aliasOf(weight), aliasOf(bias),
                                             aliasOf(running_mean), aliasOf(running_var), training,
                                             eps) == at::native::BatchNormBackend::Cudnn) {
    return std::tuple_cat(
        at::cudnn_batch_norm(input.contiguous(input.suggest_memory_format()), dense(weight), dense(bias),
                             dense(running_mean), dense(running_var), training, momentum, eps),
        std::make_tuple(kImplIndexCudnn));
  }
  return at::native::_batch_norm_impl_index(input, weight, bias, running_mean, running_var, training,
                                            momentum, eps, cudnn_enabled);
}

at::Tensor gridSampler(const at::Tensor& input, const at::Tensor& grid, int64_t interpolation,
                       int64_t padding, bool align_corners) {
  using at::native::GridSamplerInterpolation;
  using at::native::GridSamplerPadding;
  if (hasCompanion(input) && hasCompanion(grid) &&
      at::native::cond_cudnn_grid_sampler(aliasOnCompanion(input), aliasOnCompanion(grid)) &&
      static_cast<GridSamplerInterpolation>(interpolation) == GridSamplerInterpolation::Bilinear &&
      static_cast<GridSamplerPadding>(padding) == GridSamplerPadding::Zeros && align_corners) {
    return at::cudnn_grid_sampler(input, grid);
  }
  return at::native::grid_sampler(input, grid, interpolation, padding, align_corners);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("_batch_norm_impl_index", TORCH_FN(batchNorm));
  library.impl("grid_sampler", TORCH_FN(gridSampler));
  library.impl("cudnn_is_acceptable", TORCH_FN(cudnnIsAcceptable));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_batch_norm_impl_index", TORCH_FN(batchNorm));
  library.impl("grid_sampler", TORCH_FN(gridSampler));
  library.impl("cudnn_is_acceptable", TORCH_FN(cudnnIsAcceptable));
}

}  // namespace flagos::ops
