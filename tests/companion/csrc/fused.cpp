// Kernels that CUDA has and the CPU lacks (the LSTM cell, attention), and dropout, which draws from the
// device's default generator. Written in operators on the device.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <cmath>
#include <limits>
#include <tuple>

#include "generator.h"
#include "host_call.h"
#include "kernels.h"
#include "streams.h"

namespace standin {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool given(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

// A kernel over operators: its arguments are checked, its inner operators are logged one deeper.
class Composed {
 public:
  Composed(const OpInfo& info, std::initializer_list<OptionalTensor> tensors) : call_(info) {
    static const Argument argument{"of a fused kernel", ArgumentKind::Tensor, false};
    for (const OptionalTensor& tensor : tensors) {
      if (given(tensor)) call_.see(*tensor, argument);
    }
    call_.begin();
  }
  void finish() { call_.finishWrites(); }

 private:
  HostCall call_;
};

// gates: [batch, 4 * hidden]: input, forget, cell, output. Returns (hy, cy, the activated gates).
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstmCell(const at::Tensor& input_gates,
                                                        const at::Tensor& hidden_gates, const at::Tensor& cx,
                                                        const OptionalTensor& input_bias,
                                                        const OptionalTensor& hidden_bias) {
  static const OpInfo& info = opInfo("aten::_thnn_fused_lstm_cell");
  Composed kernel(info, {input_gates, hidden_gates, cx, input_bias, hidden_bias});
  at::Tensor gates = input_gates + hidden_gates;
  if (given(input_bias)) gates = gates + *input_bias + *hidden_bias;
  const auto parts = gates.chunk(4, 1);
  const at::Tensor in = at::sigmoid(parts[0]), forget = at::sigmoid(parts[1]), cell = at::tanh(parts[2]),
                   out = at::sigmoid(parts[3]);
  const at::Tensor cy = forget * cx + in * cell;
  kernel.finish();
  return {out * at::tanh(cy), cy, at::cat({in, forget, cell, out}, 1)};
}

// Returns the gradients of the gates, of cx and of a bias.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstmCellBackward(const OptionalTensor& grad_hy,
                                                                const OptionalTensor& grad_cy,
                                                                const at::Tensor& cx, const at::Tensor& cy,
                                                                const at::Tensor& workspace, bool has_bias) {
  static const OpInfo& info = opInfo("aten::_thnn_fused_lstm_cell_backward_impl");
  if (!given(grad_hy) && !given(grad_cy)) return {};
  Composed kernel(info, {grad_hy, grad_cy, cx, cy, workspace});
  const auto parts = workspace.chunk(4, 1);
  const at::Tensor &in = parts[0], &forget = parts[1], &cell = parts[2], &out = parts[3];
  const at::Tensor squashed = at::tanh(cy);
  const at::Tensor from_hy = given(grad_hy) ? *grad_hy : at::zeros_like(cy);
  at::Tensor state = from_hy * out * (1 - squashed * squashed);
  if (given(grad_cy)) state = state + *grad_cy;
  const at::Tensor grads = at::cat({state * cell * in * (1 - in), state * cx * forget * (1 - forget),
                                    state * in * (1 - cell * cell), from_hy * squashed * out * (1 - out)},
                                   1);
  kernel.finish();
  return {grads, state * forget, has_bias ? grads.sum(0) : at::Tensor()};
}

// The mask is drawn from the default generator of the device, and returned as CUDA does: of dtype bool.
std::tuple<at::Tensor, at::Tensor> nativeDropout(const at::Tensor& input, double p,
                                                 std::optional<bool> train) {
  static const OpInfo& info = opInfo("aten::native_dropout");
  Composed kernel(info, {input});
  at::Tensor mask = at::ones_like(input, input.options().dtype(at::kBool));
  if (!train.value_or(true) || input.numel() == 0) return {input.clone(), mask};
  mask.bernoulli_(1 - p);
  kernel.finish();
  return {input * mask * (p == 1 ? 0.0 : 1 / (1 - p)), mask};
}

// The numbers of at::SDPBackend.
enum : int64_t { kMath = 0, kEfficient = 2 };

// Where PyTorch asks which kernel attention takes.
int64_t fusedSdpChoice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const OptionalTensor& /*mask*/, double dropout_p, bool /*is_causal*/,
                       std::optional<double> /*scale*/, bool enable_gqa) {
  static const OpInfo& info = opInfo("aten::_fused_sdp_choice");
  ++info.calls;
  const bool served = query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && dropout_p == 0 && !enable_gqa;
  return served ? kEfficient : kMath;
}

at::Tensor attentionScores(const at::Tensor& query, const at::Tensor& key, const OptionalTensor& bias,
                           bool is_causal, double scale) {
  at::Tensor scores = at::matmul(query, key.transpose(-2, -1)) * scale;
  if (given(bias)) scores = scores + *bias;
  if (!is_causal) return scores;
  const at::Tensor seen = at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).tril();
  return scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
}

double scaleOf(const at::Tensor& query, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
}

using FourTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// Returns (output, log of the sums of exponentials, seed, offset). The last two are numbers on the host, as
// CUDA returns them.
FourTensors efficientAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                               const OptionalTensor& bias, bool compute_log_sumexp, double dropout_p,
                               bool is_causal, std::optional<double> scale) {
  static const OpInfo& info = opInfo("aten::_scaled_dot_product_efficient_attention");
  TORCH_CHECK(dropout_p == 0, "standin: attention with dropout is not served.");
  Composed kernel(info, {query, key, value, bias});
  const at::Tensor scores = attentionScores(query, key, bias, is_causal, scaleOf(query, scale));
  const at::Tensor sums = at::logsumexp(scores, {-1});
  const StandinGenerator& generator = generatorFor(std::nullopt, query.device().index());
  const auto number = [](uint64_t word) {
    return at::scalar_tensor(static_cast<int64_t>(word), at::TensorOptions().dtype(at::kLong));
  };
  kernel.finish();
  return {at::matmul(scores.softmax(-1), value), compute_log_sumexp ? sums : sums.slice(-1, 0, 0).clone(),
          number(generator.current_seed()), number(generator.get_offset())};
}

FourTensors efficientAttentionBackward(const at::Tensor& grad_out, const at::Tensor& query,
                                       const at::Tensor& key, const at::Tensor& value, const at::Tensor& bias,
                                       const at::Tensor& out, const at::Tensor& log_sumexp,
                                       const at::Tensor& /*seed*/, const at::Tensor& /*offset*/,
                                       double /*dropout_p*/, std::array<bool, 4> wanted, bool is_causal,
                                       std::optional<double> scale) {
  static const OpInfo& info = opInfo("aten::_scaled_dot_product_efficient_attention_backward");
  if (!grad_out.defined()) return {};
  Composed kernel(info, {grad_out, query, key, value, bias, out, log_sumexp});
  const double factor = scaleOf(query, scale);
  const at::Tensor scores = attentionScores(query, key, bias, is_causal, factor);
  const at::Tensor weights = (scores - log_sumexp.unsqueeze(-1)).exp();
  const at::Tensor grad_weights = at::matmul(grad_out, value.transpose(-2, -1));
  const at::Tensor grad_scores = weights * (grad_weights - (grad_out * out).sum(-1, /*keepdim=*/true));
  kernel.finish();
  return {at::matmul(grad_scores, key) * factor, at::matmul(grad_scores.transpose(-2, -1), query) * factor,
          at::matmul(weights.transpose(-2, -1), grad_out),
          wanted[3] && bias.defined() ? at::sum_to(grad_scores, bias.sizes()) : at::Tensor()};
}

}  // namespace

void registerFused(torch::Library& library) {
  library.impl("_thnn_fused_lstm_cell", TORCH_FN(lstmCell));
  library.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstmCellBackward));
  library.impl("native_dropout", TORCH_FN(nativeDropout));
  library.impl("_fused_sdp_choice", TORCH_FN(fusedSdpChoice));
  library.impl("_scaled_dot_product_efficient_attention", TORCH_FN(efficientAttention));
  library.impl("_scaled_dot_product_efficient_attention_backward", TORCH_FN(efficientAttentionBackward));
}

}  // namespace standin
