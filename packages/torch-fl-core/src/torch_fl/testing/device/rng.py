"""Random numbers: seeds, states, generators, distributions, independence of devices and of CPU's."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from torch_fl.testing.device.support import exported, module

N = 40_000
Draw = Callable[..., torch.Tensor]

DRAWS: dict[str, Draw] = {
    "rand": lambda **k: torch.rand(64, **k),
    "randn": lambda **k: torch.randn(64, **k),
    "randint": lambda **k: torch.randint(0, 1000, (64,), **k),
    "randperm": lambda **k: torch.randperm(64, **k),
    "normal": lambda **k: torch.normal(0.0, 1.0, (64,), **k),
    "bernoulli": lambda device, **k: torch.bernoulli(torch.full((64,), 0.5, device=device), **k),
    "multinomial": lambda device, **k: torch.multinomial(torch.ones(50, device=device), 30, **k),
    "poisson": lambda device, **k: torch.poisson(torch.full((64,), 9.0, device=device), **k),
    "uniform_": lambda device, **k: torch.empty(64, device=device).uniform_(**k),
    "normal_": lambda device, **k: torch.empty(64, device=device).normal_(**k),
    "exponential_": lambda device, **k: torch.empty(64, device=device).exponential_(**k),
    "geometric_": lambda device, **k: torch.empty(64, device=device).geometric_(0.1, **k),
    "cauchy_": lambda device, **k: torch.empty(64, device=device).cauchy_(**k),
    "log_normal_": lambda device, **k: torch.empty(64, device=device).log_normal_(**k),
    "random_": lambda device, **k: torch.empty(64, dtype=torch.int64, device=device).random_(**k),
    "dropout": lambda device: torch.nn.functional.dropout(torch.ones(64, device=device)),
    "rand_like": lambda device: torch.rand_like(torch.ones(64, device=device)),
    "rrelu": lambda device: torch.nn.functional.rrelu(-torch.ones(64, device=device), training=True),
    "gumbel_softmax": lambda device: torch.nn.functional.gumbel_softmax(torch.ones(8, 8, device=device)),
}
WITH_GENERATOR = [name for name in DRAWS if name not in ("dropout", "rand_like", "rrelu", "gumbel_softmax")]


@pytest.mark.parametrize("name", DRAWS)
def test_seed_decides_the_numbers(device: torch.device, name: str) -> None:
    draw = DRAWS[name]
    torch.manual_seed(11)
    first, second = draw(device=device).cpu(), draw(device=device).cpu()
    torch.manual_seed(11)
    assert torch.equal(draw(device=device).cpu(), first)
    assert torch.equal(draw(device=device).cpu(), second)
    assert not torch.equal(first, second), "the second call repeats the first"
    torch.manual_seed(12)
    assert not torch.equal(draw(device=device).cpu(), first)


@pytest.mark.parametrize("name", DRAWS)
def test_cpus_generator_is_left_alone(device: torch.device, name: str) -> None:
    before = torch.get_rng_state()
    DRAWS[name](device=device)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_own_generator_is_used_and_advances(device: torch.device, name: str) -> None:
    generator = torch.Generator(device)
    generator.manual_seed(3)
    default = module().get_rng_state(device)
    first = DRAWS[name](device=device, generator=generator).cpu()
    second = DRAWS[name](device=device, generator=generator).cpu()
    assert not torch.equal(first, second)
    assert torch.equal(module().get_rng_state(device), default), "the default generator advanced as well"
    generator.manual_seed(3)
    assert torch.equal(DRAWS[name](device=device, generator=generator).cpu(), first)


def test_generator_of_another_device_is_refused(device: torch.device, second_device: torch.device) -> None:
    for generator in (torch.Generator(), torch.Generator(second_device)):
        with pytest.raises(RuntimeError, match=r"[Ee]xpected a '?flagos|device"):
            torch.randn(3, device=device, generator=generator)
    with pytest.raises(RuntimeError, match="device"):
        torch.randn(3, generator=torch.Generator(device))


def test_state_can_be_kept_and_put_back(device: torch.device) -> None:
    state = module().get_rng_state(device)
    assert (state.dtype, state.device.type) == (torch.uint8, "cpu")
    first = torch.randn(100, device=device).cpu()
    module().set_rng_state(state, device)
    assert torch.equal(torch.randn(100, device=device).cpu(), first)
    generator = torch.Generator(device).manual_seed(8)
    torch.rand(7, device=device, generator=generator)
    twin = torch.Generator(device)
    twin.set_state(generator.get_state())
    assert torch.equal(
        torch.rand(9, device=device, generator=generator).cpu(),
        torch.rand(9, device=device, generator=twin).cpu(),
    )
    assert twin.initial_seed() == 8
    clone = generator.clone_state()
    assert torch.equal(
        torch.rand(9, device=device, generator=generator).cpu(),
        torch.rand(9, device=device, generator=clone).cpu(),
    )


def test_bad_states_are_refused(device: torch.device) -> None:
    for bad in (torch.zeros(3, dtype=torch.uint8), torch.zeros(16), torch.zeros(5000, dtype=torch.uint8)):
        with pytest.raises((RuntimeError, TypeError)):
            module().set_rng_state(bad, device)


def test_manual_seed_covers_all_devices(device: torch.device, second_device: torch.device) -> None:
    torch.manual_seed(4)
    first = [torch.rand(5, device=place).cpu() for place in (device, second_device)]
    torch.manual_seed(4)
    again = [torch.rand(5, device=place).cpu() for place in (device, second_device)]
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])


def test_devices_draw_independently(device: torch.device, second_device: torch.device) -> None:
    torch.manual_seed(4)
    alone = torch.rand(5, device=second_device).cpu()
    torch.manual_seed(4)
    torch.rand(1000, device=device)
    assert torch.equal(torch.rand(5, device=second_device).cpu(), alone)


def test_seed_functions(device: torch.device, second_device: torch.device) -> None:
    module().manual_seed(21)
    assert module().initial_seed() == 21
    module().manual_seed_all(22)
    with module().device(second_device):
        assert module().initial_seed() == 22
    module().seed_all()
    first = module().initial_seed()
    module().seed()
    assert module().initial_seed() != first
    states = module().get_rng_state_all()
    assert len(states) == module().device_count()
    module().set_rng_state_all(states)


def test_fork_rng_restores_the_device(device: torch.device) -> None:
    torch.manual_seed(1)
    state = module().get_rng_state(device)
    with torch.random.fork_rng(devices=[0], device_type="flagos"):
        torch.randn(10, device=device)
        torch.manual_seed(99)
        assert not torch.equal(module().get_rng_state(device), state)
    assert torch.equal(module().get_rng_state(device), state)


def test_seed_before_first_use_counts() -> None:
    from torch_fl.testing.device.support import run_quietly

    program = "import torch, torch_fl; torch.manual_seed(5); print(torch.rand(4, device='flagos').tolist())"
    assert run_quietly(program) == run_quietly(program)


def _moments(values: torch.Tensor, mean: float, deviation: float) -> None:
    numbers = values.double().cpu()
    spread = 6 * deviation / math.sqrt(numbers.numel())
    assert abs(numbers.mean().item() - mean) < spread, "mean"
    assert numbers.std().item() == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_uniform_and_normal_moments_and_bounds(device: torch.device, dtype: torch.dtype) -> None:
    uniform = torch.rand(N, dtype=dtype, device=device)
    assert uniform.min().item() >= 0.0
    assert uniform.max().item() < 1.0
    _moments(uniform, 0.5, math.sqrt(1 / 12))
    _moments(torch.randn(N, dtype=dtype, device=device), 0.0, 1.0)
    _moments(torch.empty(N, dtype=dtype, device=device).normal_(3, 2), 3.0, 2.0)


def test_moments_of_the_other_distributions(device: torch.device) -> None:
    _moments(torch.empty(N, device=device).exponential_(2.0), 0.5, 0.5)
    _moments(torch.empty(N, device=device).geometric_(0.25), 4.0, math.sqrt(0.75) / 0.25)
    _moments(torch.poisson(torch.full((N,), 6.0, device=device)), 6.0, math.sqrt(6.0))
    _moments(torch.bernoulli(torch.full((N,), 0.3, device=device)), 0.3, math.sqrt(0.21))
    _moments(torch.randint(-5, 6, (N,), device=device), 0.0, math.sqrt(10.0))
    _moments(
        torch.empty(N, device=device).log_normal_(0, 0.25),
        math.exp(1 / 32),
        math.sqrt(math.exp(1 / 16) * (math.exp(1 / 16) - 1)),
    )
    kept = torch.nn.functional.dropout(torch.ones(N, device=device), 0.25)
    assert sorted(set(kept.unique().tolist())) == pytest.approx([0.0, 4 / 3])
    _moments((kept > 0).float(), 0.75, math.sqrt(0.1875))


def test_numbers_of_one_call_are_not_related(device: torch.device) -> None:
    x = torch.randn(N, device=device).cpu().double()
    for lag in (1, 2, 4, 1000):
        assert abs((x[:-lag] * x[lag:]).mean().item()) < 6 / math.sqrt(N)
    a, b = torch.rand(N, device=device).cpu(), torch.rand(N, device=device).cpu()
    assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1].item()) < 6 / math.sqrt(N)
    assert torch.rand(N, dtype=torch.float64, device=device).unique().numel() == N


def test_permutation_is_one(device: torch.device) -> None:
    for count in (0, 1, 2, 1000):
        permutation = torch.randperm(count, device=device)
        assert permutation.device == device
        assert sorted(permutation.tolist()) == list(range(count))


def test_multinomial_without_replacement_has_no_repeats(device: torch.device) -> None:
    drawn = torch.multinomial(torch.ones(4, 20, device=device), 20)
    assert [sorted(row) for row in drawn.tolist()] == [list(range(20))] * 4
    with pytest.raises(RuntimeError):
        torch.multinomial(torch.ones(3, device=device), 4)


def test_module_initialisation_is_reproducible_on_the_device(device: torch.device) -> None:
    weights = []
    for _ in range(2):
        torch.manual_seed(3)
        weights.append(torch.nn.Linear(20, 20, device=device).weight.detach().cpu())
    assert torch.equal(*weights)


__all__ = exported(globals())
