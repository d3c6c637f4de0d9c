// Autocast on flagos: PyTorch's own lists, so the policy equals CUDA's in every minor.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace at::autocast {

namespace {

at::Tensor refuseBinaryCrossEntropy(const Tensor& /*input*/, const Tensor& /*target*/,
                                    const std::optional<Tensor>& /*weight*/, int64_t /*reduction*/) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: in a low "
      "precision the "
      "logarithm overflows. Use binary_cross_entropy_with_logits or BCEWithLogitsLoss, which are safe.");
}

// As for CUDA, the fused recurrent operator casts where autocast meets it: the layers above it have no entry in
// the lists. To half, whatever the precision of the region, as CUDA's does.
using RecurrentResult = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

RecurrentResult castRecurrent(const Tensor& input, TensorList weight, int64_t weights_per_layer,
                              const std::optional<Tensor>& /*buffer: of the weights before the cast*/,
                              const Tensor& hx, const std::optional<Tensor>& cx, int64_t mode,
                              int64_t hidden_size, int64_t proj_size, int64_t num_layers, bool batch_first,
                              double dropout, bool train, bool bidirectional, IntArrayRef batch_sizes,
                              const std::optional<Tensor>& dropout_state) {
  constexpr auto kDevice = c10::DeviceType::PrivateUse1;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  constexpr ScalarType dtype = kHalf;
  return at::_cudnn_rnn(cached_cast(dtype, input, kDevice), cached_cast(dtype, weight, kDevice),
                        weights_per_layer, std::nullopt, cached_cast(dtype, hx, kDevice),
                        cached_cast(dtype, cx, kDevice), mode, hidden_size, proj_size, num_layers,
                        batch_first, dropout, train, bidirectional, batch_sizes, dropout_state);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define FLAGOS_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FLAGOS_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define FLAGOS_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define FLAGOS_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(FLAGOS_LOWER_PRECISION)
  AT_FORALL_FP32(FLAGOS_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(FLAGOS_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(FLAGOS_PROMOTE)
  m.impl(TORCH_SELECTIVE_NAME("aten::_cudnn_rnn"), TORCH_FN(castRecurrent));
  m.impl(TORCH_SELECTIVE_NAME("aten::binary_cross_entropy"), TORCH_FN(refuseBinaryCrossEntropy));
#undef FLAGOS_LOWER_PRECISION
#undef FLAGOS_FP32
#undef FLAGOS_FP32_SET_OPT_DTYPE
#undef FLAGOS_PROMOTE
}

}  // namespace at::autocast
