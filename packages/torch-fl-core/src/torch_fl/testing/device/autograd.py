"""Autograd: graphs that cross devices, hooks, checkpointing, custom functions, several threads, streams,
anomaly mode."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from torch_fl.testing.device.support import assert_same, exported, module


def test_gradients_are_on_the_leafs_device(device: torch.device) -> None:
    leaf = torch.randn(3, 3, device=device, requires_grad=True)
    (leaf @ leaf).tanh().sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.device == device
    host = leaf.detach().cpu().requires_grad_()
    (host @ host).tanh().sum().backward()
    assert_same(leaf.grad, host.grad)


def test_gradients_accumulate(device: torch.device) -> None:
    leaf = torch.ones(3, device=device, requires_grad=True)
    for _ in range(3):
        (leaf * 2).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [6.0] * 3


def test_graph_across_devices(device: torch.device, second_device: torch.device) -> None:
    a = torch.ones(3, device=device, requires_grad=True)
    b = torch.ones(3, device=second_device, requires_grad=True)
    host = torch.ones(3, requires_grad=True)
    total = (a * 2).to(second_device) * b + host.to(second_device) * 5
    total.sum().backward()
    assert (a.grad.device, b.grad.device, host.grad.device) == (device, second_device, torch.device("cpu"))  # type: ignore[union-attr]
    assert a.grad.tolist() == [2.0] * 3  # type: ignore[union-attr]
    assert b.grad.tolist() == [2.0] * 3  # type: ignore[union-attr]
    assert host.grad.tolist() == [5.0] * 3  # type: ignore[union-attr]


def test_hooks_run_with_device_tensors(device: torch.device) -> None:
    seen: list[torch.device] = []
    leaf = torch.ones(3, device=device, requires_grad=True)
    middle = leaf * 3
    middle.register_hook(lambda grad: seen.append(grad.device) or grad * 2)
    leaf.register_post_accumulate_grad_hook(lambda tensor: seen.append(tensor.grad.device))
    middle.sum().backward()
    assert seen == [device, device]
    assert leaf.grad.tolist() == [6.0] * 3  # type: ignore[union-attr]


def test_custom_function(device: torch.device) -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            assert x.device == grad.device == device
            return 3 * x**2 * grad

    leaf = torch.tensor([2.0, 3.0], device=device, requires_grad=True)
    Cube.apply(leaf).sum().backward()
    assert leaf.grad.tolist() == [12.0, 27.0]  # type: ignore[union-attr]


def test_saved_tensor_hooks_can_offload(device: torch.device) -> None:
    packed: list[torch.device] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor.device)
        return tensor.cpu()

    leaf = torch.tensor([0.5, 1.0], device=device, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor.to(device)):
        result = leaf.exp() * leaf
    result.sum().backward()
    assert set(packed) == {device}
    host = leaf.detach().cpu()
    assert_same(leaf.grad, host.exp() * (1 + host))


def test_save_on_cpu_offloads_and_restores(device: torch.device) -> None:
    leaf = torch.randn(50, device=device, requires_grad=True)
    with torch.autograd.graph.save_on_cpu():
        result = (leaf * leaf).sin()
    result.sum().backward()
    assert_same(leaf.grad, 2 * leaf.detach().cpu() * (leaf.detach().cpu() ** 2).cos(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_repeats_random_numbers(device: torch.device, reentrant: bool) -> None:
    module_ = torch.nn.Sequential(torch.nn.Linear(20, 20), torch.nn.Dropout(0.5), torch.nn.Tanh()).to(device)
    results = []
    for wrapped in (False, True):
        leaf = torch.linspace(-1, 1, 200, device=device).view(10, 20).requires_grad_()
        torch.manual_seed(5)
        output = checkpoint(module_, leaf, use_reentrant=reentrant) if wrapped else module_(leaf)
        output.sum().backward()
        assert leaf.grad is not None
        results.append((output.detach().cpu(), leaf.grad.cpu()))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1]), "the recomputed dropout drew other numbers"


def test_second_derivatives(device: torch.device) -> None:
    leaf = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, device=device, requires_grad=True)
    (grad,) = torch.autograd.grad((leaf**4).sum(), leaf, create_graph=True)
    (again,) = torch.autograd.grad(grad.sum(), leaf)
    assert again.tolist() == [12.0, 48.0, 108.0]


def test_gradcheck_passes(device: torch.device) -> None:
    leaf = torch.randn(4, 3, dtype=torch.float64, device=device, requires_grad=True)
    weight = torch.randn(5, 3, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: torch.nn.functional.linear(x, w).sigmoid(), (leaf, weight))
    assert torch.autograd.gradgradcheck(lambda x: x.tanh() * x, (leaf,))


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_forward_mode_and_vmap(device: torch.device) -> None:
    x = torch.linspace(0.1, 1, 6, device=device)
    _, tangent = torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))
    assert_same(tangent, x.cpu().cos())
    assert_same(
        torch.func.vmap(torch.dot)(x.view(2, 3), x.view(2, 3)),
        (x.cpu().view(2, 3) ** 2).sum(1),
        rtol=1e-6,
        atol=1e-6,
    )
    assert_same(torch.func.grad(lambda t: (t**2).sum())(x), 2 * x.cpu())
    jacobian = torch.func.jacrev(lambda t: t * t)(x)
    assert_same(jacobian, torch.diag(2 * x.cpu()))


def test_backward_in_several_threads(device: torch.device) -> None:
    shared = torch.ones(64, 64, device=device, requires_grad=True)
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for _ in range(5):
                (shared * (index + 1)).sum().backward()
                own = torch.full((16,), float(index), device=device, requires_grad=True)
                (own**2).sum().backward()
                assert own.grad is not None
                assert own.grad.cpu().tolist() == [2.0 * index] * 16
        except BaseException as error:  # noqa: BLE001  handed to the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert shared.grad is not None
    assert shared.grad.unique().tolist() == [5.0 * sum(range(1, 9))]


def test_backward_runs_on_the_stream_of_the_forward(device: torch.device) -> None:
    stream = module().Stream()
    leaf = torch.ones(4, device=device, requires_grad=True)
    seen: list[int] = []
    stream.wait_stream(module().current_stream())
    with module().stream(stream):
        middle = leaf * 2
        middle.register_hook(lambda grad: seen.append(module().current_stream().stream_id))
        total = middle.sum()
    module().current_stream().wait_stream(stream)
    total.backward()
    assert seen == [stream.stream_id]
    assert leaf.grad.tolist() == [2.0] * 4  # type: ignore[union-attr]


def test_modified_saved_tensor_is_found(device: torch.device) -> None:
    leaf = torch.ones(3, device=device, requires_grad=True)
    middle = leaf.exp()
    result = middle.sum()
    middle.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_anomaly_mode_names_the_forward(device: torch.device) -> None:
    leaf = torch.tensor([0.0], device=device, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="returned nan values"):
            (leaf.sqrt() * 0).sum().backward()


def test_no_grad_and_inference_mode(device: torch.device) -> None:
    leaf = torch.ones(3, device=device, requires_grad=True)
    with torch.no_grad():
        assert not (leaf * 2).requires_grad
    with torch.inference_mode():
        made = leaf * 2
        assert made.is_inference()
        made.add_(1)
        assert made.view(3, 1).shape == (3, 1)
        assert torch.zeros(2, device=device).is_inference()
    with pytest.raises(RuntimeError, match=r"[Ii]nference"):
        made.requires_grad_()


def test_graph_dies_without_leaking_memory(device: torch.device) -> None:
    def once() -> None:
        leaf = torch.ones(256, 256, device=device, requires_grad=True)
        (leaf @ leaf).relu().sum().backward()

    once()
    module().synchronize()
    before = module().memory_allocated()
    for _ in range(5):
        once()
    module().synchronize()
    assert module().memory_allocated() == before


__all__ = exported(globals())
