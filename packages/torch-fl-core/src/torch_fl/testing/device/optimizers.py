"""Optimizers: every one of torch.optim, loop, foreach and fused, trains as on CPU; gradient utilities."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torch_fl.testing.device.support import assert_same, exported

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "SGD": (torch.optim.SGD, {"lr": 0.1}),
    "SGD momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "Adam": (torch.optim.Adam, {"lr": 0.01}),
    "Adam amsgrad": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.01}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01}),
    "Adagrad": (torch.optim.Adagrad, {"lr": 0.1}),
    "Adadelta": (torch.optim.Adadelta, {"lr": 0.5}),
    "Adamax": (torch.optim.Adamax, {"lr": 0.01}),
    "ASGD": (torch.optim.ASGD, {"lr": 0.1}),
    "NAdam": (torch.optim.NAdam, {"lr": 0.01}),
    "RAdam": (torch.optim.RAdam, {"lr": 0.01}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
    "Rprop": (torch.optim.Rprop, {"lr": 0.01}),
}
FUSED = ("SGD", "SGD momentum", "Adam", "Adam amsgrad", "AdamW", "Adagrad")


def _train(
    place: torch.device | str, name: str, steps: int = 5, **options: Any
) -> tuple[list[torch.Tensor], list[Any]]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 2))
    x, y = torch.randn(9, 5), torch.randn(9, 2)
    model, x, y = model.to(place), x.to(place), y.to(place)
    kind, settings = OPTIMIZERS[name]
    optimizer = kind(model.parameters(), **settings, **options)  # type: ignore[call-arg]
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    state = [value for entry in optimizer.state.values() for value in entry.values()]
    return [parameter.detach() for parameter in model.parameters()], state


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("foreach", [False, True])
def test_optimizer_trains_as_on_cpu(device: torch.device, name: str, foreach: bool) -> None:
    wanted, _ = _train("cpu", name, foreach=foreach)
    mine, state = _train(device, name, foreach=foreach)
    assert_same(mine, wanted, rtol=1e-5, atol=1e-6)
    assert any(isinstance(value, torch.Tensor) and value.device == device for value in state) or name == "SGD"


@pytest.mark.parametrize("name", FUSED)
def test_fused_optimizer_trains_as_on_cpu(device: torch.device, name: str) -> None:
    wanted, _ = _train("cpu", name, fused=True)
    mine, _ = _train(device, name, fused=True)
    assert_same(mine, wanted, rtol=1e-5, atol=1e-6)


def test_default_choice_is_foreach_or_fused_without_a_warning(device: torch.device) -> None:
    wanted, _ = _train("cpu", "AdamW")
    mine, _ = _train(device, "AdamW")
    assert_same(mine, wanted, rtol=1e-5, atol=1e-6)


def test_lbfgs(device: torch.device) -> None:
    results = []
    for place in ("cpu", device):
        weight = torch.nn.Parameter(torch.tensor([3.0, -2.0], device=place))
        optimizer = torch.optim.LBFGS([weight], max_iter=10)

        def closure(w: torch.nn.Parameter = weight, o: torch.optim.Optimizer = optimizer) -> torch.Tensor:
            o.zero_grad()
            loss = ((w - 1) ** 4).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimizer.step(closure)
        results.append(weight.detach())
    assert_same(results[1], results[0], rtol=1e-4, atol=1e-5)


@pytest.mark.xfail(
    raises=NotImplementedError, reason="core has no sparse layouts on the device yet (issue 5)", strict=True
)
def test_sparse_gradients_of_an_embedding(device: torch.device) -> None:
    results = []
    for place in ("cpu", device):
        torch.manual_seed(2)
        embedding = torch.nn.Embedding(10, 4, sparse=True).to(place)
        optimizer = torch.optim.SparseAdam(list(embedding.parameters()), lr=0.1)
        embedding(torch.tensor([1, 3, 3], device=place)).sum().backward()
        assert embedding.weight.grad is not None
        assert embedding.weight.grad.is_sparse
        optimizer.step()
        results.append(embedding.weight.detach())
    assert_same(results[1], results[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("foreach", [False, True])
def test_gradient_clipping(device: torch.device, foreach: bool) -> None:
    results = []
    for place in ("cpu", device):
        weights = [torch.nn.Parameter(torch.ones(n, device=place)) for n in (3, 70)]
        for index, weight in enumerate(weights):
            weight.grad = torch.full_like(weight, index + 1.0)
        norm = torch.nn.utils.clip_grad_norm_(weights, 2.0, foreach=foreach)
        torch.nn.utils.clip_grad_value_(weights, 0.05, foreach=foreach)
        results.append([norm, *(weight.grad for weight in weights)])
    assert_same(results[1], results[0], rtol=1e-6, atol=1e-7)


def test_learning_rate_as_a_tensor(device: torch.device) -> None:
    weight = torch.nn.Parameter(torch.ones(3, device=device))
    optimizer = torch.optim.Adam([weight], lr=torch.tensor(0.1))
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert weight.tolist() == pytest.approx([0.9] * 3, abs=1e-5)


def test_scheduler_and_swa(device: torch.device) -> None:
    model = torch.nn.Linear(2, 1).to(device)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    for _ in range(3):
        model(torch.ones(1, 2, device=device)).sum().backward()
        optimizer.step()
        scheduler.step()
        averaged.update_parameters(model)
    assert averaged.module.weight.device == device
    assert averaged.n_averaged.item() == 3


FOREACH_LISTS = ("_foreach_add_", "_foreach_mul_", "_foreach_sub_", "_foreach_div_", "_foreach_copy_")


@pytest.mark.parametrize("name", FOREACH_LISTS)
def test_foreach_over_mixed_shapes_and_types(device: torch.device, name: str) -> None:
    def lists(place: torch.device | str, shift: float) -> list[torch.Tensor]:
        made = [torch.arange(1.0, 1.0 + n) + shift for n in (1, 7, 300)]
        made += [torch.ones(2, 3).t() + shift, torch.ones((), dtype=torch.float64) + shift, torch.empty(0)]
        return [tensor.to(place) for tensor in made]

    results = []
    for place in ("cpu", device):
        target = lists(place, 0)
        getattr(torch, name)(target, lists(place, 1))
        results.append(target)
    assert_same(results[1], results[0])


def test_foreach_of_many_tensors_and_devices(device: torch.device, second_device: torch.device) -> None:
    target = [torch.zeros(3, device=(device, second_device)[i % 2]) for i in range(60)]
    torch._foreach_add_(target, 1.5)
    torch._foreach_mul_(target, [float(i) for i in range(60)])
    assert [tensor[0].item() for tensor in target] == [1.5 * i for i in range(60)]
    norms = torch._foreach_norm(target)
    assert [norm.device for norm in norms] == [tensor.device for tensor in target]


__all__ = exported(globals())
