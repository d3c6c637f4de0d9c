// Scaled dot product attention: which of PyTorch's roads a call takes.
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <tuple>

#include "csrc/ops/operator_call.h"
#include "csrc/runtime/companion.h"

namespace flagos::ops {

namespace {

// A tensor of the host with the metadata of `tensor` and no memory: enough for a function that only looks.
at::Tensor shadow(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kDeviceType) return tensor;
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), 0, c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)),
      nullptr, false);
  at::Tensor host = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  host.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  if (tensor.requires_grad() && !host.is_inference()) host.set_requires_grad(true);
  return host;
}

// An alias for the companion's chooser, which looks at requires_grad as well.
at::Tensor companionShadow(const at::Tensor& tensor) {
  at::Tensor alias = aliasOnCompanion(tensor);
  if (!tensor.defined() || !tensor.requires_grad() || tensor.is_inference()) return alias;
  at::Tensor tracked = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(alias.storage()),
      alias.key_set() | c10::getAutogradRelatedKeySetFromBackend(alias.key_set().highestBackendKey()),
      alias.dtype());
  tracked.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides(),
                                                       alias.storage_offset());
  AliasTensor::setDevice(tracked.unsafeGetTensorImpl(), alias.device());
  return tracked.set_requires_grad(true);
}

// The companion's own choice, so that memory and speed are its as well. ATen sends `flash` of a device that is
// not CUDA to the CPU's kernel; `overrideable` leads to ours, which calls the companion's.
int64_t chooseAsCompanion(const DeviceEntry& device, const at::Tensor& query, const at::Tensor& key,
                          const at::Tensor& value, const std::optional<at::Tensor>& mask, double dropout,
                          bool causal, std::optional<double> scale, bool enable_gqa) {
  const std::optional<at::Tensor> alias =
      mask.has_value() ? std::optional<at::Tensor>(companionShadow(*mask)) : std::nullopt;
  const int64_t choice = at::_ops::_fused_sdp_choice::redispatch(
      device.companion->keys, companionShadow(query), companionShadow(key), companionShadow(value), alias,
      dropout, causal, scale, enable_gqa);
  const bool flash = choice == static_cast<int64_t>(at::SDPBackend::flash_attention);
  return flash ? static_cast<int64_t>(at::SDPBackend::overrideable) : choice;
}

// Asks the CPU's own chooser. Its answers hold for us as they are: `flash` leads a device that is not CUDA to
// _scaled_dot_product_flash_attention_for_cpu, an operator of the source cpu with its own backward.
int64_t chooseAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const std::optional<at::Tensor>& mask, double dropout, bool causal,
                        std::optional<double> scale, bool enable_gqa) {
  const DeviceEntry& device = deviceEntry(query.device().index());
  if (device.companion != nullptr)
    return chooseAsCompanion(device, query, key, value, mask, dropout, causal, scale, enable_gqa);
  const std::optional<at::Tensor> host_mask =
      mask.has_value() ? std::optional<at::Tensor>(shadow(*mask)) : std::nullopt;
  return at::_fused_sdp_choice(shadow(query), shadow(key), shadow(value), host_mask, dropout, causal, scale,
                               enable_gqa);
}

// The flash kernel takes head dimensions that 8 divides.
at::Tensor padHeads(const at::Tensor& tensor) {
  constexpr int64_t kMultiple = 8;
  const int64_t rest = tensor.size(-1) % kMultiple;
  if (rest == 0) return tensor;
  const std::array<int64_t, 2> padding = {0, kMultiple - rest};
  return at::constant_pad_nd(tensor, padding, 0);
}

at::Tensor cutHeads(const at::Tensor& tensor, int64_t size) {
  return !tensor.defined() || tensor.size(-1) == size ? tensor : tensor.slice(-1, 0, size);
}

double scaleOf(const at::Tensor& query, std::optional<double> scale) {
  return scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
}

using FlashResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt,
                               at::Tensor, at::Tensor, at::Tensor>;

// What ATen does around the flash kernel for CUDA tensors.
FlashResult attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                      const std::optional<at::Tensor>& bias, double dropout, bool causal, bool debug_mask,
                      std::optional<double> scale) {
  TORCH_CHECK(!bias.has_value() || !bias->defined(),
              "flagos: fused attention with a mask is another operator's; call scaled_dot_product_attention");
  FlashResult result = at::_scaled_dot_product_flash_attention(
      padHeads(query), padHeads(key), padHeads(value), dropout, causal, debug_mask, scaleOf(query, scale));
  std::get<0>(result) = cutHeads(std::get<0>(result), value.size(-1));
  return result;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attentionBackward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& /*bias*/, std::array<bool, 4> /*wanted*/, const at::Tensor& out,
    const at::Tensor& logsumexp, const at::Tensor& cum_seq_q, const at::Tensor& cum_seq_k, c10::SymInt max_q,
    c10::SymInt max_k, double dropout, bool causal, const at::Tensor& philox_seed,
    const at::Tensor& philox_offset, std::optional<double> scale) {
  if (!grad_out.defined()) return {};
  auto [grad_query, grad_key, grad_value] = at::_scaled_dot_product_flash_attention_backward_symint(
      padHeads(grad_out), padHeads(query), padHeads(key), padHeads(value), padHeads(out), logsumexp,
      cum_seq_q, cum_seq_k, std::move(max_q), std::move(max_k), dropout, causal, philox_seed, philox_offset,
      scaleOf(query, scale));
  return {cutHeads(grad_query, query.size(-1)), cutHeads(grad_key, key.size(-1)),
          cutHeads(grad_value, value.size(-1)), at::Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(attention));
  library.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(attentionBackward));
}

}  // namespace flagos::ops

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &flagos::ops::chooseAttention)
}  // namespace at::native
