// The fused cells of LSTM and GRU. PyTorch calls them on every device but the CPU and has kernels for CUDA
// alone; for the source cpu they are written in operators, with CUDA's own layout of the workspace, so that autograd's
// formulas fit.
#include <ATen/ATen.h>
#include <ATen/core/boxing/KernelFunction.h>

#include <tuple>

#include "csrc/ops/op_record.h"

namespace flagos::ops {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool given(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

// gates: [batch, 4 * hidden], in the order input, forget, cell, output. Returns (hy, cy, workspace: the
// activated gates).
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstmCell(const at::Tensor& input_gates,
                                                        const at::Tensor& hidden_gates, const at::Tensor& cx,
                                                        const OptionalTensor& input_bias,
                                                        const OptionalTensor& hidden_bias) {
  at::Tensor gates = input_gates + hidden_gates;
  if (given(input_bias)) gates = gates + *input_bias;
  if (given(hidden_bias)) gates = gates + *hidden_bias;
  const auto parts = gates.chunk(4, 1);
  const at::Tensor in = parts[0].sigmoid();
  const at::Tensor forget = parts[1].sigmoid();
  const at::Tensor cell = parts[2].tanh();
  const at::Tensor out = parts[3].sigmoid();
  const at::Tensor cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

// Returns (grad of the gates, grad of cx, grad of a bias).
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstmCellBackward(const OptionalTensor& grad_hy,
                                                                const OptionalTensor& grad_cy,
                                                                const at::Tensor& cx, const at::Tensor& cy,
                                                                const at::Tensor& workspace, bool has_bias) {
  if (!given(grad_hy) && !given(grad_cy)) return {};
  const auto parts = workspace.chunk(4, 1);
  const at::Tensor &in = parts[0], &forget = parts[1], &cell = parts[2], &out = parts[3];
  const at::Tensor squashed = cy.tanh();
  at::Tensor grad_cell_state = given(grad_cy) ? *grad_cy : at::Tensor();
  at::Tensor grad_out = at::zeros_like(out);
  if (given(grad_hy)) {
    grad_out = *grad_hy * squashed * out * (1 - out);
    const at::Tensor through_hy = *grad_hy * out * (1 - squashed * squashed);
    grad_cell_state = grad_cell_state.defined() ? grad_cell_state + through_hy : through_hy;
  }
  const at::Tensor grad_in = grad_cell_state * cell * in * (1 - in);
  const at::Tensor grad_forget = grad_cell_state * cx * forget * (1 - forget);
  const at::Tensor grad_cell = grad_cell_state * in * (1 - cell * cell);
  const at::Tensor grad_gates = at::cat({grad_in, grad_forget, grad_cell, grad_out}, 1);
  return {grad_gates, grad_cell_state * forget, has_bias ? grad_gates.sum(0) : at::Tensor()};
}

// gates: [batch, 3 * hidden], in the order reset, update, new. Returns (hy, workspace: reset, update, new,
// hx, the hidden part of new).
std::tuple<at::Tensor, at::Tensor> gruCell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                           const at::Tensor& hx, const OptionalTensor& input_bias,
                                           const OptionalTensor& hidden_bias) {
  const auto in = (given(input_bias) ? input_gates + *input_bias : input_gates).chunk(3, 1);
  const auto hidden = (given(hidden_bias) ? hidden_gates + *hidden_bias : hidden_gates).chunk(3, 1);
  const at::Tensor reset = (in[0] + hidden[0]).sigmoid();
  const at::Tensor update = (in[1] + hidden[1]).sigmoid();
  const at::Tensor fresh = (in[2] + reset * hidden[2]).tanh();
  return {fresh + update * (hx - fresh), at::cat({reset, update, fresh, hx, hidden[2]}, 1)};
}

// Returns the gradients of input gates, hidden gates, hx, input bias and hidden bias.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gruCellBackward(
    const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  const auto parts = workspace.chunk(5, 1);
  const at::Tensor &reset = parts[0], &update = parts[1], &fresh = parts[2], &hx = parts[3],
                   &hidden_new = parts[4];
  const at::Tensor grad_update = grad_hy * (hx - fresh) * update * (1 - update);
  const at::Tensor grad_new = grad_hy * (1 - update) * (1 - fresh * fresh);
  const at::Tensor grad_reset = grad_new * hidden_new * reset * (1 - reset);
  const at::Tensor grad_input_gates = at::cat({grad_reset, grad_update, grad_new}, 1);
  const at::Tensor grad_hidden_gates = at::cat({grad_reset, grad_update, grad_new * reset}, 1);
  return {grad_input_gates, grad_hidden_gates, grad_hy * update,
          has_bias ? grad_input_gates.sum(0) : at::Tensor(),
          has_bias ? grad_hidden_gates.sum(0) : at::Tensor()};
}

[[maybe_unused]] const bool composed = [] {
  registerComposed("aten::_thnn_fused_lstm_cell",
                   c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(lstmCell)));
  registerComposed("aten::_thnn_fused_lstm_cell_backward_impl",
                   c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(lstmCellBackward)));
  registerComposed("aten::_thnn_fused_gru_cell",
                   c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(gruCell)));
  registerComposed("aten::_thnn_fused_gru_cell_backward",
                   c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(gruCellBackward)));
  return true;
}();

}  // namespace

}  // namespace flagos::ops
