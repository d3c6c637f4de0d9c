"""torch.flagos.random: seeds, states and generators."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torch_fl  # noqa: F401

flagos = torch.flagos


def draw(device: str = "flagos:0") -> list[float]:
    return torch.rand(8, device=device).tolist()


def test_same_seed_gives_the_same_numbers() -> None:
    torch.manual_seed(7)
    first = [draw(), draw("flagos:1")]
    torch.manual_seed(7)
    assert [draw(), draw("flagos:1")] == first
    assert flagos.initial_seed() == 7


def test_seed_of_one_device_leaves_the_other() -> None:
    torch.manual_seed(7)
    other = flagos.get_rng_state(1)
    flagos.manual_seed(8)
    assert flagos.initial_seed() == 8
    assert torch.equal(flagos.get_rng_state(1), other)


def test_state_is_sixteen_bytes_seed_then_offset() -> None:
    flagos.manual_seed_all(1234)
    state = flagos.get_rng_state()
    assert (state.dtype, state.shape, state.device.type) == (torch.uint8, (16,), "cpu")
    assert state.view(torch.int64).tolist() == [1234, 0]
    draw()
    offset = flagos.random._get_rng_state_offset()
    assert offset == flagos.get_rng_state().view(torch.int64)[1] > 0
    assert offset % 4 == 0


def test_state_put_back_repeats_the_numbers() -> None:
    states = flagos.get_rng_state_all()
    first = [draw(), draw("flagos:1")]
    flagos.set_rng_state_all(states)
    assert [draw(), draw("flagos:1")] == first
    flagos.set_rng_state(states[1], "flagos:1")
    assert draw("flagos:1") == first[1]
    with pytest.raises(RuntimeError):
        flagos.set_rng_state(torch.zeros(5, dtype=torch.uint8))


def test_fork_rng_keeps_the_state() -> None:
    torch.manual_seed(3)
    expected = draw()
    torch.manual_seed(3)
    with torch.random.fork_rng(devices=[0, 1], device_type="flagos"):
        draw()
    assert draw() == expected


def test_random_seeds_differ_and_cover_all_devices() -> None:
    assert flagos.seed() != flagos.seed()
    flagos.seed_all()
    one, two = flagos.get_rng_state_all()
    assert torch.equal(one, two)


def test_default_generators_are_a_sequence() -> None:
    generators = flagos.default_generators
    assert len(generators) == 2
    assert [generator.device for generator in generators] == [
        torch.device("flagos:0"),
        torch.device("flagos:1"),
    ]
    assert generators[-1].device.index == 1
    with pytest.raises(IndexError):
        generators[2]


def test_own_generator_does_not_touch_the_default_one() -> None:
    torch.manual_seed(5)
    state = flagos.get_rng_state()
    generator = torch.Generator(device="flagos:0").manual_seed(5)
    first = torch.rand(4, device="flagos:0", generator=generator)
    assert torch.equal(flagos.get_rng_state(), state)
    assert torch.equal(first, torch.rand(4, device="flagos:0"))


def test_offset_can_be_set() -> None:
    flagos.manual_seed_all(9)
    flagos.random._set_rng_state_offset(400)
    assert flagos.get_rng_state().view(torch.int64).tolist() == [9, 400]


def test_seed_before_the_first_use_holds(evaluate: Any) -> None:
    answer = evaluate(
        """
        import torch
        from torch_fl_base.autoload import autoload; autoload()
        torch.manual_seed(42)
        before = torch.flagos.is_initialized()
        torch.ones(1, device="flagos")
        state = torch.flagos.get_rng_state(1).view(torch.int64).tolist()
        answer = [before, torch.flagos.initial_seed(), state]
        """
    )
    assert answer == [False, 42, [42, 0]]
