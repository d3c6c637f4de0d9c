"""Random operators draw from the flagos generator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

DEVICE = "flagos"

DRAWS: dict[str, Callable[[], Tensor]] = {
    "randn": lambda: torch.randn(64, device=DEVICE),
    "rand": lambda: torch.rand(64, device=DEVICE),
    "randint": lambda: torch.randint(0, 1 << 30, (64,), device=DEVICE),
    "randperm": lambda: torch.randperm(512, device=DEVICE),
    "bernoulli": lambda: torch.full((256,), 0.5, device=DEVICE).bernoulli(),
    "multinomial": lambda: torch.ones(64, device=DEVICE).multinomial(32),
    "exponential": lambda: torch.empty(64, device=DEVICE).exponential_(),
    "native_dropout": lambda: torch.native_dropout(torch.ones(256, device=DEVICE), 0.5, True)[0],
    "dropout": lambda: torch.nn.functional.dropout(torch.ones(256, device=DEVICE), 0.5),
    "rrelu": lambda: torch.nn.functional.rrelu(-torch.ones(64, device=DEVICE), training=True),
    "poisson": lambda: torch.poisson(torch.full((256,), 3.0, device=DEVICE)),
    "gamma": lambda: torch._standard_gamma(torch.full((64,), 3.0, device=DEVICE)),
    "normal_tensor": lambda: torch.normal(torch.zeros(64, device=DEVICE), 1.0),
}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(7)


@pytest.mark.parametrize("name", DRAWS)
def test_same_seed_gives_the_same_numbers(name: str) -> None:
    first = DRAWS[name]()
    second = DRAWS[name]()
    torch.manual_seed(7)
    assert DRAWS[name]().cpu().equal(first.cpu())
    assert not second.cpu().equal(first.cpu())


@pytest.mark.parametrize("name", DRAWS)
def test_cpu_generator_is_left_alone(name: str) -> None:
    state = torch.get_rng_state()
    DRAWS[name]()
    assert torch.get_rng_state().equal(state)


def test_each_call_moves_the_offset_by_a_fixed_step() -> None:
    generator = torch.flagos.default_generators[0]
    before = generator.get_offset()
    torch.randn(1, device=DEVICE)
    torch.randn(1 << 16, device=DEVICE)
    assert generator.get_offset() - before == 8


def test_own_generator_is_used_and_others_are_refused() -> None:
    own = torch.Generator(device=DEVICE).manual_seed(3)
    first = torch.randn(16, device=DEVICE, generator=own)
    own.manual_seed(3)
    assert torch.randn(16, device=DEVICE, generator=own).cpu().equal(first.cpu())
    with pytest.raises(RuntimeError, match="generator"):
        torch.randn(16, device=DEVICE, generator=torch.Generator())


def test_normal_numbers_are_normal() -> None:
    x = torch.randn(1 << 16, device=DEVICE)
    assert abs(x.mean().item()) < 0.02
    assert abs(x.std().item() - 1) < 0.02
