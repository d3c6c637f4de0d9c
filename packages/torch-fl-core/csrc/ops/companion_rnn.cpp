// LSTM, GRU and RNN layers by the companion's fused operator (_cudnn_rnn). PyTorch asks
// cudnn_is_acceptable (companion_choices.cpp), then calls these stubs by device type.
#include <ATen/core/Tensor.h>
#include <ATen/native/RNN.h>
#include <ATen/ops/_cudnn_init_dropout_state.h>
#include <ATen/ops/_cudnn_rnn.h>
#include <ATen/ops/empty.h>

#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "csrc/runtime/devices.h"

namespace flagos::ops {

namespace {

// As cudnnRNNMode_t numbers them.
enum class Mode : int64_t { Relu = 0, Tanh = 1, Lstm = 2, Gru = 3 };

// The state of the dropout between layers, made once per device, as PyTorch does for CUDA.
at::Tensor dropoutState(double dropout, bool train, const at::Tensor& like) {
  if (dropout == 0 || !train) return {};
  static std::mutex mutex;
  static auto* states = new std::map<c10::DeviceIndex, at::Tensor>;  // guarded by mutex
  const std::lock_guard<std::mutex> lock(mutex);
  at::Tensor& state = (*states)[like.device().index()];
  if (!state.defined()) {
    const auto seed = at::empty({}, at::TensorOptions(at::kLong)).random_().item<int64_t>();
    state = at::_cudnn_init_dropout_state(dropout, train, seed, like.options().dtype(at::kByte));
  }
  return state;
}

struct Layer {
  at::TensorList params;
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train;
  bool bidirectional;
};

// Returns (output, hy, cy). Weights need not lie in one buffer: the operator packs them.
std::array<at::Tensor, 3> run(Mode mode, const at::Tensor& input, at::IntArrayRef batch_sizes,
                              const at::Tensor& hx, const at::Tensor& cx, const Layer& layer,
                              bool batch_first) {
  int64_t hidden_size = hx.size(2);
  int64_t proj_size = 0;
  if (mode == Mode::Lstm && cx.defined() && cx.size(2) != hx.size(2)) {  // hy is smaller by the projection
    proj_size = hx.size(2);
    hidden_size = cx.size(2);
  }
  const int64_t weights = (layer.has_biases ? 4 : 2) + (proj_size != 0 ? 1 : 0);
  auto result =
      at::_cudnn_rnn(input, layer.params, weights, std::nullopt, hx,
                     cx.defined() ? std::optional<at::Tensor>(cx) : std::nullopt, static_cast<int64_t>(mode),
                     hidden_size, proj_size, layer.num_layers, batch_first, layer.dropout, layer.train,
                     layer.bidirectional, batch_sizes, dropoutState(layer.dropout, layer.train, input));
  return {std::get<0>(result), std::get<1>(result), std::get<2>(result)};
}

void lstm(at::Tensor& output, at::Tensor& hy, at::Tensor& cy, const at::Tensor& input, at::TensorList hx,
          at::TensorList params, bool has_biases, int64_t num_layers, double dropout, bool train,
          bool bidirectional, bool batch_first) {
  auto result = run(Mode::Lstm, input, {}, hx[0], hx[1],
                    {params, has_biases, num_layers, dropout, train, bidirectional}, batch_first);
  output = result[0];
  hy = result[1];
  cy = result[2];
}

std::vector<int64_t> lengths(const at::Tensor& batch_sizes) {
  const auto* data = batch_sizes.const_data_ptr<int64_t>();  // on the host, as PyTorch packs them
  return {data, data + batch_sizes.numel()};
}

void lstmPacked(at::Tensor& output, at::Tensor& hy, at::Tensor& cy, const at::Tensor& data,
                const at::Tensor& batch_sizes, at::TensorList hx, at::TensorList params, bool has_biases,
                int64_t num_layers, double dropout, bool train, bool bidirectional) {
  auto result = run(Mode::Lstm, data, lengths(batch_sizes), hx[0], hx[1],
                    {params, has_biases, num_layers, dropout, train, bidirectional}, false);
  output = result[0];
  hy = result[1];
  cy = result[2];
}

template <Mode mode>
void layer(at::Tensor& output, at::Tensor& hy, const at::Tensor& input, const at::Tensor& hx,
           at::TensorList params, bool has_biases, int64_t num_layers, double dropout, bool train,
           bool bidirectional, bool batch_first) {
  auto result = run(mode, input, {}, hx, {}, {params, has_biases, num_layers, dropout, train, bidirectional},
                    batch_first);
  output = result[0];
  hy = result[1];
}

template <Mode mode>
void layerPacked(at::Tensor& output, at::Tensor& hy, const at::Tensor& data, const at::Tensor& batch_sizes,
                 const at::Tensor& hx, at::TensorList params, bool has_biases, int64_t num_layers,
                 double dropout, bool train, bool bidirectional) {
  auto result = run(mode, data, lengths(batch_sizes), hx, {},
                    {params, has_biases, num_layers, dropout, train, bidirectional}, false);
  output = result[0];
  hy = result[1];
}

constexpr auto kGru = &layer<Mode::Gru>;
constexpr auto kGruPacked = &layerPacked<Mode::Gru>;
constexpr auto kTanh = &layer<Mode::Tanh>;
constexpr auto kTanhPacked = &layerPacked<Mode::Tanh>;
constexpr auto kRelu = &layer<Mode::Relu>;
constexpr auto kReluPacked = &layerPacked<Mode::Relu>;

}  // namespace

}  // namespace flagos::ops

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(lstm_cudnn_stub, &flagos::ops::lstm)
REGISTER_PRIVATEUSE1_DISPATCH(lstm_packed_cudnn_stub, &flagos::ops::lstmPacked)
REGISTER_PRIVATEUSE1_DISPATCH(gru_cudnn_stub, flagos::ops::kGru)
REGISTER_PRIVATEUSE1_DISPATCH(gru_packed_cudnn_stub, flagos::ops::kGruPacked)
REGISTER_PRIVATEUSE1_DISPATCH(rnn_tanh_cudnn_stub, flagos::ops::kTanh)
REGISTER_PRIVATEUSE1_DISPATCH(rnn_tanh_packed_cudnn_stub, flagos::ops::kTanhPacked)
REGISTER_PRIVATEUSE1_DISPATCH(rnn_relu_cudnn_stub, flagos::ops::kRelu)
REGISTER_PRIVATEUSE1_DISPATCH(rnn_relu_packed_cudnn_stub, flagos::ops::kReluPacked)
}  // namespace at::native
