"""Autograd's kernel is left out where there is nothing to record, and only there."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import torch_fl  # noqa: F401

DEVICE = "flagos"


def _values(**options: bool) -> torch.Tensor:
    return torch.arange(1.0, 5.0).to(DEVICE).requires_grad_(options.get("requires_grad", False))


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "add": lambda x: x + x,
    "mul": lambda x: x * 3,
    "softmax": lambda x: torch.softmax(x, 0),
    "sum": lambda x: x.sum(),
    "cat": lambda x: torch.cat([x, x]),
    "where": lambda x: torch.where(x > 2, x, -x),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (4,), x, x),
    "index": lambda x: x[torch.tensor([0, 2, 2], device=x.device)],
    "foreach": lambda x: torch._foreach_mul([x, x], 2.0)[1],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_recorded_where_one_is_wanted(name: str) -> None:
    x, host = _values(requires_grad=True), torch.arange(1.0, 5.0).requires_grad_()
    result, wanted = FUNCTIONS[name](x), FUNCTIONS[name](host)
    assert result.requires_grad
    result.square().sum().backward()
    wanted.square().sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad.cpu(), host.grad)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_is_recorded_without(name: str) -> None:
    assert FUNCTIONS[name](_values()).grad_fn is None
    with torch.no_grad():
        result = FUNCTIONS[name](_values(requires_grad=True))
    assert not result.requires_grad
    with torch.inference_mode():
        assert FUNCTIONS[name](_values()).is_inference()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, at the first use of forward mode
@pytest.mark.parametrize("name", FUNCTIONS)
def test_tangents_pass_without_a_gradient_being_recorded(name: str) -> None:
    tangents = []
    for device in (DEVICE, "cpu"):
        with torch.no_grad(), forward_ad.dual_level():
            dual = forward_ad.make_dual(torch.arange(1.0, 5.0).to(device), torch.ones(4).to(device))
            tangents.append(forward_ad.unpack_dual(FUNCTIONS[name](dual)).tangent)
    assert torch.equal(tangents[0].cpu(), tangents[1])


def test_changes_in_place_are_counted() -> None:
    x, y = _values(), _values()
    versions = []
    changes: list[Callable[[], object]] = [
        lambda: x.add_(y),
        lambda: x.mul_(2),
        lambda: x.index_put_((torch.tensor([0], device=DEVICE),), y[:1]),
        lambda: torch._foreach_add_([x, y], 1.0),
        lambda: x[1:].zero_(),
        lambda: torch.add(y, y, out=x),
        lambda: x + y,
    ]
    for change in changes:
        before = x._version
        change()
        versions.append(x._version - before)
    assert versions == [1, 1, 1, 1, 1, 1, 0]


def test_a_change_of_what_was_saved_is_found_out() -> None:
    x = _values(requires_grad=True)
    y = x.exp()
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.mul_(2)


def test_inference_tensors_keep_their_rules() -> None:
    left = []
    for device in (DEVICE, "cpu"):
        with torch.inference_mode():
            x = torch.arange(4.0).to(device)
            x.add_(1)
        with pytest.raises(RuntimeError, match=r"[Ii]nference tensor"):
            x.add_(1)
        left.append((x + 1).tolist())
    assert left[0] == left[1]


def test_modes_and_subclasses_see_every_call() -> None:
    seen = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = _values()
    with Watching():
        y = x + x
        y.mul_(2)
        torch._foreach_add_([y], 1.0)
    assert seen == ["aten.add.Tensor", "aten.mul_.Tensor", "aten._foreach_add_.Scalar"]
    assert y.tolist() == [5.0, 9.0, 13.0, 17.0]


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_fake_tensors_pass_under_pythons_dispatcher(name: str, requires_grad: bool) -> None:
    """As torch.compile runs them."""
    with FakeTensorMode() as mode:
        x = torch.empty(4, device=DEVICE, requires_grad=requires_grad)
        with enable_python_dispatcher():
            result = FUNCTIONS[name](x)
    assert result.device.type == DEVICE
    assert result.fake_mode is mode
    assert result.requires_grad == requires_grad


def test_compiled_functions_run_and_train() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2 + 1, 0).square().sum()

    grads = []
    for function in (step, torch.compile(step, backend="aot_eager", fullgraph=True)):
        x = _values(requires_grad=True)
        function(x).backward()
        grads.append(x.grad)
    assert torch.equal(grads[0].cpu(), grads[1].cpu())


def test_lists_of_inference_tensors_are_refused_as_on_the_host() -> None:
    for device in (DEVICE, "cpu"):
        with torch.inference_mode():
            x = torch.ones(2).to(device)
            torch._foreach_add_([x], 1.0)
        with pytest.raises(RuntimeError, match=r"[Ii]nference tensor"):
            torch._foreach_add_([x], 1.0)


def test_results_have_the_keys_of_any_tensor_of_the_device() -> None:
    wanted = torch._C._dispatch_keys(torch.empty(2, device=DEVICE))
    for name, function in FUNCTIONS.items():
        keys = torch._C._dispatch_keys(function(_values()))
        assert keys.raw_repr() == wanted.raw_repr(), (name, keys, wanted)


def test_conjugate_bits_are_resolved() -> None:
    x = torch.tensor([1 + 2j, 3 - 1j], device=DEVICE)
    assert (x.conj() * x).tolist() == [5 + 0j, 10 + 0j]
    assert torch._neg_view(x.real).add(1).tolist() == [0.0, -2.0]


def test_a_kernel_of_the_programs_own_is_met_with_and_without_a_gradient() -> None:
    seen = []

    def mine(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append(x.device.type)
        return x.clone()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of a kernel that stands before another
        with torch.library._scoped_library("aten", "IMPL") as library:
            library.impl("maximum", mine, "PrivateUse1")
            x = _values()
            torch.maximum(x, x)
            torch.maximum(_values(requires_grad=True), x)
            with torch.no_grad():
                torch.maximum(_values(requires_grad=True), x)
            with torch.inference_mode():
                torch.maximum(x, x)
    assert seen == ["flagos"] * 4
    assert torch.maximum(x, x + 1).tolist() == [2.0, 3.0, 4.0, 5.0]
