// Scaled dot product attention: which of PyTorch's roads a call takes.
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice.h>

#include "csrc/runtime/devices.h"

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

// Asks the CPU's own chooser. Its answers hold for us as they are: `flash` leads a device that is not CUDA to
// _scaled_dot_product_flash_attention_for_cpu, an operator of the source cpu with its own backward.
int64_t chooseAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const std::optional<at::Tensor>& mask, double dropout, bool causal,
                        std::optional<double> scale, bool enable_gqa) {
  const std::optional<at::Tensor> host_mask =
      mask.has_value() ? std::optional<at::Tensor>(shadow(*mask)) : std::nullopt;
  return at::_fused_sdp_choice(shadow(query), shadow(key), shadow(value), host_mask, dropout, causal, scale,
                               enable_gqa);
}

}  // namespace

}  // namespace flagos::ops

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &flagos::ops::chooseAttention)
}  // namespace at::native
