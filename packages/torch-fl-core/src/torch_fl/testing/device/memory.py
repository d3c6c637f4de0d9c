"""Device memory: counters, caching, limits, the functions of torch.accelerator.memory."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch

from torch_fl.testing.device.support import exported, module

MIB = 1 << 20


def _allocated() -> int:
    gc.collect()
    module().synchronize()
    return int(module().memory_allocated())


def test_allocation_is_counted_and_given_back(device: torch.device) -> None:
    before = _allocated()
    block = torch.empty(8 * MIB, dtype=torch.uint8, device=device)
    assert module().memory_allocated() - before == 8 * MIB
    assert module().memory_reserved() >= module().memory_allocated()
    del block
    assert _allocated() == before


def test_peak_is_kept_until_reset(device: torch.device) -> None:
    before = _allocated()
    module().reset_peak_memory_stats()
    block = torch.empty(8 * MIB, dtype=torch.uint8, device=device)
    del block
    assert module().max_memory_allocated() >= before + 8 * MIB
    module().reset_peak_memory_stats()
    assert module().max_memory_allocated() == _allocated()


def test_freed_memory_is_cached_and_reused(device: torch.device) -> None:
    block = torch.empty(8 * MIB, dtype=torch.uint8, device=device)
    address = block.data_ptr()
    del block
    again = torch.empty(8 * MIB, dtype=torch.uint8, device=device)
    assert again.data_ptr() == address


def test_empty_cache_gives_memory_back(device: torch.device) -> None:
    block = torch.empty(64 * MIB, dtype=torch.uint8, device=device)
    del block
    gc.collect()
    module().synchronize()
    reserved = module().memory_reserved()
    free, _ = module().mem_get_info()
    module().empty_cache()
    assert module().memory_reserved() <= reserved - 64 * MIB
    assert module().mem_get_info()[0] >= free + 64 * MIB
    assert module().memory_reserved() >= module().memory_allocated()


def test_statistics_have_pytorchs_keys(device: torch.device) -> None:
    torch.ones(10, device=device)
    stats = module().memory_stats()
    for key in ("allocated_bytes.all.current", "reserved_bytes.all.peak", "num_alloc_retries", "num_ooms"):
        assert key in stats, key
    for key in ("active_bytes.all.current", "allocation.all.allocated", "segment.all.current"):
        assert key in stats, key
    assert stats["allocated_bytes.all.current"] == module().memory_allocated()
    nested = module().memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == stats["allocated_bytes.all.current"]


def test_accelerator_memory_functions_agree(device: torch.device) -> None:
    memory = torch.accelerator.memory
    block = torch.ones(1000, device=device)
    assert memory.memory_allocated() == module().memory_allocated() > 0
    assert memory.memory_reserved() == module().memory_reserved()
    assert memory.max_memory_allocated() == module().max_memory_allocated()
    assert memory.memory_stats()["num_ooms"] == module().memory_stats()["num_ooms"]
    memory.reset_peak_memory_stats()
    memory.empty_cache()
    assert block.sum().item() == 1000.0


def test_counters_are_per_device(device: torch.device, second_device: torch.device) -> None:
    before = module().memory_allocated(device), module().memory_allocated(second_device)
    block = torch.empty(4 * MIB, dtype=torch.uint8, device=second_device)
    assert module().memory_allocated(device) == before[0]
    assert module().memory_allocated(second_device) == before[1] + 4 * MIB
    assert block.device == second_device


def test_fraction_limits_and_is_lifted(device: torch.device) -> None:
    module().empty_cache()
    _, total = module().mem_get_info()
    module().set_per_process_memory_fraction(0.25)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(total // 2, dtype=torch.uint8, device=device)
    finally:
        module().set_per_process_memory_fraction(1.0)
    assert torch.empty(total // 2, dtype=torch.uint8, device=device).numel() == total // 2
    for bad in (-0.1, 1.1):
        with pytest.raises((ValueError, RuntimeError)):
            module().set_per_process_memory_fraction(bad)


def test_snapshot_covers_what_is_allocated(device: torch.device) -> None:
    block = torch.empty(4 * MIB, dtype=torch.uint8, device=device)
    segments = module().memory_snapshot()
    address = block.data_ptr()
    around = [s for s in segments if s["address"] <= address < s["address"] + s["total_size"]]
    assert len(around) == 1
    assert sum(s["allocated_size"] for s in segments if s["device"] == 0) == module().memory_allocated(0)
    assert "flagos" in module().memory_summary() or "memory" in module().memory_summary().lower()


def test_out_of_memory_is_counted_and_retried(device: torch.device) -> None:
    before = module().memory_stats()
    _, total = module().mem_get_info()
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(4 * total, dtype=torch.uint8, device=device)
    after = module().memory_stats()
    assert after["num_ooms"] == before["num_ooms"] + 1
    assert after["num_alloc_retries"] >= before["num_alloc_retries"]


def test_small_allocations_are_rounded_but_separate(device: torch.device) -> None:
    tensors = [torch.full((1,), float(i), device=device) for i in range(500)]
    assert len({tensor.data_ptr() for tensor in tensors}) == 500
    assert [tensor.item() for tensor in tensors[::50]] == [float(i) for i in range(0, 500, 50)]


def test_tensors_are_aligned(device: torch.device) -> None:
    for size in (1, 3, 100, 5000, 3_000_000):
        assert torch.empty(size, dtype=torch.uint8, device=device).data_ptr() % 64 == 0


def test_operators_allocate_on_the_device_and_leave_nothing(device: torch.device) -> None:
    a = torch.randn(300, 300, device=device)
    before = _allocated()
    for function in (
        lambda: a @ a,
        lambda: a.sort(),
        lambda: a.softmax(-1),
        lambda: torch.linalg.inv(a @ a.t() + 300),
    ):
        result = function()
        assert module().memory_allocated() > before
        del result
        assert _allocated() == before


def test_large_block_is_not_touched_on_the_host(device: torch.device) -> None:
    _, total = module().mem_get_info()
    block = torch.empty(min(total // 4, 4 << 30), dtype=torch.uint8, device=device)
    block[-1:].fill_(5)
    assert block[-1].item() == 5


def test_failing_driver_allocation_frees_the_cache_and_tries_again(faults: Callable[..., str]) -> None:
    printed = faults(
        """
        import torch, torch_fl
        first = torch.empty(8 << 20, dtype=torch.uint8, device="flagos")
        second = torch.empty(64 << 20, dtype=torch.uint8, device="flagos")
        print(second.numel() >> 20, torch.flagos.memory_stats()["num_alloc_retries"] > 0)
        """,
        "memory.allocate:2",
    )
    assert printed.split() == ["64", "True"]


__all__ = exported(globals())
