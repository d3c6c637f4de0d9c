"""Autocast and gradient scaling: the same types as CUDA's lists give, on the device."""

from __future__ import annotations

import pytest
import torch

from torch_fl.testing.device.support import assert_same, exported, module

LOW = (torch.float16, torch.bfloat16)


def test_supported_types_are_told(device: torch.device) -> None:
    supported = module().get_amp_supported_dtype()
    assert torch.float16 in supported or torch.bfloat16 in supported
    assert all(isinstance(dtype, torch.dtype) for dtype in supported)


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_matrix_products_run_in_the_low_type(device: torch.device, dtype: torch.dtype) -> None:
    a, b = torch.randn(8, 8, device=device), torch.randn(8, 8, device=device)
    x, w = torch.randn(1, 2, 8, 8, device=device), torch.randn(3, 2, 3, 3, device=device)
    with torch.autocast("flagos", dtype=dtype):
        for result in (
            a @ b,
            torch.mm(a, b),
            torch.nn.functional.linear(a, b),
            torch.bmm(a[None], b[None]),
            torch.conv2d(x, w),
        ):
            assert result.dtype == dtype
        assert torch.is_autocast_enabled("flagos")
    assert (a @ b).dtype == torch.float32
    assert not torch.is_autocast_enabled("flagos")


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_sensitive_functions_run_in_float32(device: torch.device, dtype: torch.dtype) -> None:
    a = torch.rand(8, 8, device=device, dtype=dtype)
    with torch.autocast("flagos", dtype=dtype):
        functions = torch.nn.functional
        for result in (
            a.exp(),
            a.log(),
            a.softmax(-1),
            a.sum(),
            a.norm(),
            a.pow(2),
            functions.layer_norm(a, (8,)),
            functions.mse_loss(a, a),
        ):
            assert result.dtype == torch.float32


def test_mixed_types_promote_to_the_widest(device: torch.device) -> None:
    low, high = torch.rand(4, device=device, dtype=torch.float16), torch.rand(4, device=device)
    with torch.autocast("flagos", dtype=torch.float16):
        assert torch.cat([low, high]).dtype == torch.float32
        assert torch.stack([low, low]).dtype == torch.float16
        assert torch.addcmul(low, low, high).dtype == torch.float32


def test_other_operators_keep_their_type(device: torch.device) -> None:
    a = torch.rand(4, device=device)
    with torch.autocast("flagos", dtype=torch.bfloat16):
        assert (a + a).dtype == torch.float32
        assert a.relu().dtype == torch.float32
        assert torch.arange(3, device=device).sum().dtype == torch.int64


def test_binary_cross_entropy_is_refused_as_on_cuda(device: torch.device) -> None:
    a = torch.rand(4, device=device)
    with (
        torch.autocast("flagos", dtype=torch.float16),
        pytest.raises(RuntimeError, match="unsafe to autocast"),
    ):
        torch.nn.functional.binary_cross_entropy(a, a)


def test_autocast_can_be_switched_off_inside(device: torch.device) -> None:
    a = torch.randn(4, 4, device=device)
    with torch.autocast("flagos", dtype=torch.bfloat16):
        with torch.autocast("flagos", enabled=False):
            assert (a @ a).dtype == torch.float32
        assert (a @ a).dtype == torch.bfloat16


def test_autocast_of_another_device_does_not_touch_ours(device: torch.device) -> None:
    a = torch.randn(4, 4, device=device)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.float32
    with torch.autocast("flagos", dtype=torch.bfloat16):
        assert (a.cpu() @ a.cpu()).dtype == torch.float32


def test_dtype_set_for_the_device_is_the_default(device: torch.device) -> None:
    before = torch.get_autocast_dtype("flagos")
    a = torch.randn(4, 4, device=device)
    torch.set_autocast_dtype("flagos", torch.bfloat16)
    try:
        with torch.autocast("flagos"):
            assert (a @ a).dtype == torch.bfloat16
    finally:
        torch.set_autocast_dtype("flagos", before)


def test_training_step_under_autocast(device: torch.device) -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    ).to(device)
    x = torch.randn(5, 8, device=device)
    with torch.autocast("flagos", dtype=torch.bfloat16):
        output = model(x)
        loss = torch.nn.functional.cross_entropy(output.float(), torch.arange(5, device=device) % 4)
    loss.backward()
    assert output.dtype == torch.bfloat16
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all()


def test_custom_functions_take_part(device: torch.device) -> None:
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="flagos", cast_inputs=torch.float32)
        def forward(ctx: object, a: torch.Tensor) -> torch.Tensor:
            assert a.dtype == torch.float32
            assert not torch.is_autocast_enabled("flagos")
            return a @ a

        @staticmethod
        @torch.amp.custom_bwd(device_type="flagos")
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            return grad

    a = torch.randn(4, 4, device=device, dtype=torch.float16, requires_grad=True)
    with torch.autocast("flagos", dtype=torch.float16):
        assert Product.apply(a).dtype == torch.float32


def test_gradient_scaler_scales_skips_and_recovers(device: torch.device) -> None:
    weight = torch.nn.Parameter(torch.ones(4, device=device))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = torch.amp.GradScaler("flagos", init_scale=8.0, growth_interval=1)
    scaler.scale((weight * 2).sum()).backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [16.0] * 4
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0.0] * 4
    assert scaler.get_scale() == 16.0
    optimizer.zero_grad()
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0.0] * 4, "a step with infinite gradients was made"
    assert scaler.get_scale() == 8.0


def test_gradient_scaler_over_two_devices(device: torch.device, second_device: torch.device) -> None:
    weights = [torch.nn.Parameter(torch.ones(2, device=place)) for place in (device, second_device)]
    optimizer = torch.optim.SGD(weights, lr=1.0)
    scaler = torch.amp.GradScaler("flagos", init_scale=4.0)
    loss = weights[0].sum() + weights[1].to(device).sum() * float("nan")
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weights[0].tolist() == [1.0, 1.0], "the other device's NaN was not seen"
    assert scaler.get_scale() == 2.0


def test_unscale_divides_all_gradients(device: torch.device) -> None:
    weights = [torch.nn.Parameter(torch.ones(n, device=device)) for n in (3, 5)]
    optimizer = torch.optim.SGD(weights, lr=1.0)
    scaler = torch.amp.GradScaler("flagos", init_scale=1024.0)
    scaler.scale(sum((w * 3).sum() for w in weights)).backward()  # type: ignore[arg-type]
    scaler.unscale_(optimizer)
    for weight in weights:
        assert_same(weight.grad, torch.full(weight.shape, 3.0))
    norm = torch.nn.utils.clip_grad_norm_(weights, 1.0)
    assert norm.item() == pytest.approx(3 * 8**0.5)


__all__ = exported(globals())
