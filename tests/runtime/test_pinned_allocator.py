"""The caching allocator of pinned host memory: reuse, queued copies, owners, failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Evaluate = Callable[..., Any]
MIB = 1 << 20

_HOST = """
host = native.memory
def pinned(size):
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)
def count(name):
    return host.host_stats()[name]["current"]
def stats_now():
    return [count(name) for name in ("active_requests", "active_bytes", "allocations", "allocated_bytes")]
"""
_SLOW = {"FLAGOS_REFERENCE_LATENCY": "copy:150000"}


def test_blocks_are_cached_by_size_class_and_counted(evaluate: Evaluate) -> None:
    answer = evaluate(
        _HOST,
        """
        first = pinned(5 * MIB)
        address = first.data_ptr()
        facts = [first.is_pinned(), first[-1:].is_pinned(), torch.empty(4).is_pinned(), stats_now()[0]]
        del first
        held = stats_now()
        again = pinned(5 * MIB - 100)
        smaller = pinned(MIB)
        reuse = [again.data_ptr() == address, host.host_stats()["num_host_alloc"], count("allocations")]
        del again, smaller
        host.host_empty_cache()
        stats = host.host_stats()
        end = [count("allocations"), count("allocated_bytes"), stats["num_host_free"],
               stats["host_alloc_time"]["count"], stats["host_free_time"]["count"]]
        answer = [facts, held, reuse, end, host.is_pinned(address)]
        """,
    )
    facts, held, reuse, end, still_pinned = answer
    assert facts == [True, True, False, 1]
    assert held == [0, 0, 1, 5 * MIB]
    assert reuse == [True, 2, 2]
    assert end == [0, 0, 2, 2, 2]
    assert still_pinned is False


def test_waste_is_at_most_a_quarter(evaluate: Evaluate) -> None:
    answer = evaluate(
        _HOST,
        """
        answer = []
        for size in (1, 4096, 4097, 5000, 100_000, MIB, MIB + 1, 3 * MIB - 1, 33 * MIB + 7):
            tensor = pinned(size)
            answer.append([size, count("active_bytes")])
            del tensor
        """,
    )
    for size, taken in answer:
        assert taken >= size
        assert taken <= max(4096, size * 1.25)


def test_a_block_under_a_copy_is_not_reused(evaluate: Evaluate) -> None:
    answer = evaluate(
        _HOST,
        """
        target = torch.zeros(MIB, dtype=torch.uint8, device="flagos:0")
        source = pinned(MIB).fill_(3)
        address = source.data_ptr()
        flagos.synchronize()
        target.copy_(source, non_blocking=True)
        del source
        busy = not flagos.current_stream().query()
        fresh = pinned(MIB).fill_(9)
        elsewhere = fresh.data_ptr() != address
        flagos.synchronize()
        again = pinned(MIB)
        answer = [busy, elsewhere, int(target.min()), int(target.max()), again.data_ptr() == address]
        """,
        **_SLOW,
    )
    assert answer == [True, True, 3, 3, True]


def test_a_use_announced_before_the_work_covers_it(evaluate: Evaluate) -> None:
    answer = evaluate(
        _HOST,
        """
        side = torch.Stream(device="flagos:0")
        block = pinned(MIB)
        address = block.data_ptr()
        known = host.record_pinned_use(address + 100, side.stream_id, 0)
        other = pinned(MIB).fill_(1)
        target = torch.zeros(MIB, dtype=torch.uint8, device="flagos:0")
        flagos.synchronize()
        with side:
            target.copy_(other, non_blocking=True)  # work on that stream, after the announcement
        del block
        fresh = pinned(MIB)
        early = fresh.data_ptr() == address
        side.synchronize()
        answer = [known, early, pinned(MIB).data_ptr() == address, host.record_pinned_use(id(known), 0, 0)]
        """,
        **_SLOW,
    )
    assert answer == [True, False, True, False]


def test_memory_pinned_by_one_backend_is_pageable_to_another(evaluate: Evaluate) -> None:
    answer = evaluate(
        _HOST,
        """
        devices = flagos.device_count()
        with flagos.device(devices - 1):
            far = pinned(4096)
        near = pinned(4096)
        answer = [[host.is_pinned_for(t.data_ptr(), d) for d in (0, devices - 1)] for t in (near, far)]
        answer.append([near.is_pinned(), far.is_pinned(), near.data_ptr() == far.data_ptr()])
        del far
        answer.append(count("allocations"))
        third = pinned(4096)  # the free block belongs to the other backend
        answer.append(count("allocations"))
        """,
        FLAGOS_BACKENDS="reference,reference:second",
    )
    assert answer == [[True, False], [False, True], [True, True, False], 2, 3]


def test_zero_bytes_take_nothing(evaluate: Evaluate) -> None:
    answer = evaluate(_HOST, "empty = pinned(0); answer = [empty.data_ptr(), count('active_requests')]")
    assert answer == [0, 0]


def test_out_of_memory_gives_the_cache_back_and_tries_again(evaluate: Evaluate) -> None:
    answer = evaluate(
        _HOST,
        """
        first = pinned(MIB)
        del first
        second = pinned(2 * MIB)  # the HAL fails once
        answer = [count("allocations"), host.host_stats()["num_host_free"]]
        """,
        FLAGOS_REFERENCE_FAIL="host.allocate:2",
    )
    assert answer == [1, 1]


def test_out_of_memory_explains_itself(evaluate: Evaluate) -> None:
    answer = evaluate(
        _HOST,
        """
        kept = pinned(MIB)
        failure = caught(pinned, 2 * MIB)
        answer = [failure, count("allocations"), count("active_requests")]
        """,
        FLAGOS_REFERENCE_FAIL="host.allocate:2+",
    )
    (kind, message), blocks, live = answer
    assert kind == "OutOfMemoryError"
    for part in (
        "backend 'reference'",
        "Asked for 2.00 MiB",
        "1024.00 KiB are in use",
        "Tried: ",
        "What to do: ",
    ):
        assert part in message
    assert (blocks, live) == (1, 1)


def test_other_failures_are_errors_and_leave_nothing(evaluate: Evaluate) -> None:
    answer = evaluate(
        _HOST,
        """
        failure = caught(pinned, 3 * MIB)
        after = pinned(3 * MIB)
        del after
        refused = caught(host.host_empty_cache)
        held = count("allocations")
        host.host_empty_cache()
        answer = [failure, refused, held, count("allocations")]
        """,
        FLAGOS_REFERENCE_FAIL="host.allocate:1=UNKNOWN,host.release:1",
    )
    failure, refused, held, end = answer
    assert "allocate 3.00 MiB of pinned host memory" in failure[1]
    assert "give pinned host memory back" in refused[1]
    assert (held, end) == (1, 0)


@pytest.mark.parametrize("function", ["event.create", "event.record", "event.query"])
def test_failing_events_keep_the_block(evaluate: Evaluate, function: str) -> None:
    answer = evaluate(
        _HOST,
        """
        target = torch.zeros(MIB, dtype=torch.uint8, device="flagos:0")
        flagos.synchronize()
        source = pinned(MIB).fill_(3)
        address = source.data_ptr()
        target.copy_(source, non_blocking=True)
        del source
        fresh = pinned(MIB)
        reused_early = fresh.data_ptr() == address and not flagos.current_stream().query()
        fresh.fill_(9)
        flagos.synchronize()
        answer = [reused_early, int(target.min()), int(target.max())]
        """,
        FLAGOS_REFERENCE_FAIL=f"{function}:1+",
        **_SLOW,
    )
    assert answer == [False, 3, 3]


def test_a_loader_pins_its_batches(evaluate: Evaluate) -> None:
    answer = evaluate(
        _HOST,
        """
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.arange(64, dtype=torch.float32).reshape(16, 4))
        sums = []
        for (batch,) in DataLoader(data, batch_size=4, pin_memory=True):
            assert batch.is_pinned()
            sums.append(float(batch.to("flagos", non_blocking=True).sum()))
        answer = sums
        """,
    )
    assert answer == [120.0, 376.0, 632.0, 888.0]


def test_resets_leave_present_values_alone(evaluate: Evaluate) -> None:
    answer = evaluate(
        _HOST,
        """
        kept, dropped = pinned(MIB), pinned(2 * MIB)
        del dropped
        host.reset_peak_host_stats()
        host.reset_accumulated_host_stats()
        stats = host.host_stats()
        answer = [stats["active_bytes"], stats["num_host_alloc"]]
        """,
    )
    assert answer == [{"current": MIB, "peak": MIB, "allocated": 0, "freed": 0}, 0]


def test_torch_accelerator_empties_the_pinned_cache(evaluate: Evaluate) -> None:
    answer = evaluate(
        _HOST,
        """
        block = pinned(MIB)
        del block
        getattr(torch.accelerator, "empty_host_cache", flagos.empty_host_cache)()
        answer = count("allocations")
        """,
    )
    assert answer == 0
