"""Generators: 16 bytes of Philox state, seeds from before the device, disjoint reservations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Evaluate = Callable[..., Any]


def test_the_state_is_seed_and_offset(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        generator = torch.Generator("flagos:1")
        generator.manual_seed(2**63 + 5)
        native.generators.reserve(generator, 9)
        state = generator.get_state()
        answer = {
            "device": str(generator.device), "seed": generator.initial_seed(),
            "offset": generator.get_offset(),
            "dtype": str(state.dtype), "place": str(state.device), "size": state.numel(),
            "first": int.from_bytes(bytes(state[:8].tolist()), "little"),
            "second": int.from_bytes(bytes(state[8:].tolist()), "little"),
        }
        """
    )
    assert answer == {
        "device": "flagos:1",
        "seed": 2**63 + 5,
        "offset": 12,
        "dtype": "torch.uint8",
        "place": "cpu",
        "size": 16,
        "first": 2**63 + 5,
        "second": 12,
    }


def test_state_goes_round_and_clones_are_independent(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        reserve = native.generators.reserve
        first = torch.Generator("flagos:0").manual_seed(7)
        reserve(first, 100)
        kept = first.get_state()
        clone = first.clone_state()
        shared = first.graphsafe_get_state()
        drawn = [reserve(first, 4), reserve(clone, 4), reserve(shared, 4), reserve(first, 4)]
        first.set_state(kept)
        second = torch.Generator("flagos:0"); second.set_state(kept)
        answer = [drawn, reserve(first, 1), reserve(second, 1)]
        """
    )
    drawn, again, copied = answer
    assert drawn == [[7, 100], [7, 100], [7, 104], [7, 108]]
    assert again == [7, 100]
    assert copied == [7, 100]


def test_a_seed_from_before_the_devices_reaches_all_of_them(evaluate_bare: Evaluate) -> None:
    answer = evaluate_bare(
        """
        torch.manual_seed(1234)
        opened = devices.activated()
        devices.activate()
        seeds = [generators.default_generator(i).initial_seed() for i in range(2)]
        torch.manual_seed(5)
        answer = [opened, seeds, [generators.default_generator(i).initial_seed() for i in range(2)]]
        """
    )
    assert answer == [False, [1234, 1234], [5, 5]]


def test_without_a_seed_two_processes_differ(evaluate: Evaluate) -> None:
    program = "answer = native.generators.default_generator(0).initial_seed()"
    assert evaluate(program) != evaluate(program)


def test_default_generators_are_one_object_each(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        get = native.generators.default_generator
        found = []
        threads = [threading.Thread(target=lambda: found.append(get(1))) for _ in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        native.devices.set_device(1)
        answer = [all(g is found[0] for g in found), get(-1) is get(1), get(0) is get(1), str(get(1).device)]
        """
    )
    assert answer == [True, True, False, "flagos:1"]


def test_threads_reserve_disjoint_ranges(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        generator = native.generators.default_generator(0)
        generator.manual_seed(1)
        taken = [[] for _ in range(8)]
        def work(mine):
            for step in range(500):
                count = step % 11 + 1
                seed, offset = native.generators.reserve(generator, count)
                mine.append((offset, -(-count // 4) * 4))
        threads = [threading.Thread(target=work, args=(mine,)) for mine in taken]
        [t.start() for t in threads]; [t.join() for t in threads]
        ranges = sorted(sum(taken, []))
        answer = [ranges[0][0], all(a[0] + a[1] == b[0] for a, b in zip(ranges, ranges[1:])),
                  sum(ranges[-1]) == generator.get_offset()]
        """
    )
    assert answer == [0, True, True]


def test_bad_states_and_generators_are_refused(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        generator = torch.Generator("flagos:0").manual_seed(3)
        odd = torch.zeros(16, dtype=torch.uint8); odd[8] = 3
        answer = {
            "cpu state": caught(generator.set_state, torch.get_rng_state()),
            "floats": caught(generator.set_state, torch.zeros(16)),
            "strided": caught(generator.set_state, torch.zeros(32, dtype=torch.uint8)[::2]),
            "odd offset": caught(generator.set_state, odd),
            "set_offset": caught(generator.set_offset, 6),
            "other kind": caught(generator.graphsafe_set_state, torch.Generator()),
            "no device": caught(torch.Generator, "flagos:9"),
            "unchanged": [generator.initial_seed(), generator.get_offset()],
        }
        """
    )
    assert "set from 5056 bytes; it has 16" in answer["cpu state"][1]
    assert "CPU generator" in answer["cpu state"][1]
    assert "torch.ByteTensor" in answer["floats"][1]
    assert "contiguous" in answer["strided"][1]
    assert "offset was set to 3" in answer["odd offset"][1]
    assert "multiple of 4" in answer["set_offset"][1]
    assert answer["other kind"] is not None
    assert "device index 9 is out of range" in answer["no device"][1]
    assert answer["unchanged"] == [3, 0]


def test_seed_draws_from_the_system(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        generator = torch.Generator("flagos:0")
        seeds = [generator.seed() for _ in range(3)]
        answer = [len(set(seeds)), generator.initial_seed() == seeds[-1], generator.get_offset(),
                  max(seeds) < 2**53]
        """
    )
    assert answer == [3, True, 0, True]
