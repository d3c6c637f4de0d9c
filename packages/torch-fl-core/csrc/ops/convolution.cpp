// The operators that PyTorch hands an unknown device's convolutions to. `convolution` itself is routed
// (registration.cpp), so these are reached by direct calls and by `_convolution` only.
#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/library.h>

namespace flagos::ops {

namespace {

at::Tensor convolutionOverrideable(const at::Tensor& input, const at::Tensor& weight,
                                   const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                   at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                                   at::IntArrayRef output_padding, int64_t groups) {
  return at::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolutionBackwardOverrideable(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
    int64_t groups, std::array<bool, 3> output_mask) {
  const std::array<int64_t, 1> bias_sizes = {grad_output.size(1)};
  const at::OptionalIntArrayRef bias = output_mask[2] ? at::OptionalIntArrayRef(bias_sizes) : std::nullopt;
  return at::convolution_backward(grad_output, input, weight, bias, stride, padding, dilation, transposed,
                                  output_padding, groups, output_mask);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("convolution_overrideable", TORCH_FN(convolutionOverrideable));
  library.impl("convolution_backward_overrideable", TORCH_FN(convolutionBackwardOverrideable));
}

}  // namespace flagos::ops
