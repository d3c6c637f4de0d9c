"""Scaled dot product attention: CPU's results and gradients for every mask, shape and backend choice."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_fl.testing.device.support import assert_same, companion_of, exported

F = torch.nn.functional
TOLERANCE = {"rtol": 2e-5, "atol": 2e-5}


def _inputs(dtype: torch.dtype = torch.float32, heads: int = 3, width: int = 16) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    shapes = [(2, heads, 9, width), (2, heads, 7, width), (2, heads, 7, width)]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def _masks() -> dict[str, torch.Tensor | None]:
    keep = torch.ones(9, 7, dtype=torch.bool).tril(1)
    return {
        "none": None,
        "boolean": keep,
        "added": torch.linspace(-1, 1, 63).view(9, 7),
        "added per head": torch.linspace(-1, 1, 2 * 3 * 63).view(2, 3, 9, 7),
        "infinite": torch.zeros(9, 7).masked_fill(~keep, float("-inf")),
    }


@pytest.mark.parametrize("mask", _masks())
@pytest.mark.parametrize("backward", [False, True])
def test_attention_equals_cpu(device: torch.device, mask: str, backward: bool) -> None:
    results = []
    for place in ("cpu", device):
        tensors = [tensor.to(place).requires_grad_(backward) for tensor in _inputs()]
        bias = _masks()[mask]
        output = F.scaled_dot_product_attention(*tensors, attn_mask=None if bias is None else bias.to(place))
        results.append([output])
        if backward:
            output.backward(torch.linspace(-1, 1, output.numel()).view(output.shape).to(place))
            results[-1] += [tensor.grad for tensor in tensors]
    assert_same(results[1], results[0], **TOLERANCE)


@pytest.mark.parametrize(
    ("width", "causal", "scale"), list(itertools.product([8, 13, 64], [False, True], [None, 0.3]))
)
def test_widths_causal_and_scale(device: torch.device, width: int, causal: bool, scale: float | None) -> None:
    results = []
    for place in ("cpu", device):
        tensors = [tensor.to(place).requires_grad_() for tensor in _inputs(width=width)]
        output = F.scaled_dot_product_attention(*tensors, is_causal=causal, scale=scale)
        output.square().sum().backward()
        results.append([output, *(tensor.grad for tensor in tensors)])
    tolerance = TOLERANCE if companion_of(0) is None else {"rtol": 1e-3, "atol": 1e-3}
    assert_same(results[1], results[0], **tolerance)


def test_grouped_queries(device: torch.device) -> None:
    q, k, v = _inputs(heads=4)
    k, v = k[:, :2], v[:, :2]
    wanted = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    mine = F.scaled_dot_product_attention(q.to(device), k.to(device), v.to(device), enable_gqa=True)
    assert_same(mine, wanted, **TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_types(device: torch.device, dtype: torch.dtype) -> None:
    tensors = _inputs(dtype)
    wanted = F.scaled_dot_product_attention(*tensors)
    mine = F.scaled_dot_product_attention(*(tensor.to(device) for tensor in tensors))
    assert mine.dtype == dtype
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float64: 1e-12}[dtype]
    assert_same(mine, wanted, rtol=tolerance, atol=tolerance)


def test_math_backend_can_be_asked_for(device: torch.device) -> None:
    tensors = [tensor.to(device) for tensor in _inputs()]
    with sdpa_kernel(SDPBackend.MATH):
        assert_same(
            F.scaled_dot_product_attention(*tensors), F.scaled_dot_product_attention(*_inputs()), **TOLERANCE
        )


def test_choice_is_an_answer_and_not_an_error(device: torch.device) -> None:
    tensors = [tensor.to(device) for tensor in _inputs()]
    assert SDPBackend(torch._fused_sdp_choice(*tensors)) is not SDPBackend.ERROR


def test_dropout_is_reproducible_and_drops(device: torch.device) -> None:
    tensors = [tensor.to(device) for tensor in _inputs()]
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(F.scaled_dot_product_attention(*tensors, dropout_p=0.5).cpu())
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_strided_and_three_dimensional_inputs(device: torch.device) -> None:
    qkv = torch.randn(2, 9, 3, 4, 8)
    wanted = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4))
    assert_same(F.scaled_dot_product_attention(*qkv.to(device).permute(2, 0, 3, 1, 4)), wanted, **TOLERANCE)
    flat = torch.randn(3, 5, 8)
    assert_same(
        F.scaled_dot_product_attention(*[flat.to(device)] * 3),
        F.scaled_dot_product_attention(flat, flat, flat),
        **TOLERANCE,
    )


def test_multihead_attention_and_transformer_layer(device: torch.device) -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    x = torch.randn(2, 6, 16)
    wanted = layer(x)
    mine = layer.to(device)(x.to(device))
    assert_same(mine, wanted, **TOLERANCE)
    layer.eval()
    with torch.no_grad():
        assert_same(layer(x.to(device)), wanted, **TOLERANCE)


def test_empty_sequence(device: torch.device) -> None:
    q = torch.empty(2, 3, 0, 8, device=device)
    k = torch.ones(2, 3, 4, 8, device=device)
    assert F.scaled_dot_product_attention(q, k, k).shape == (2, 3, 0, 8)


__all__ = exported(globals())
