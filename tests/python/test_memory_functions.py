"""torch.flagos.memory: numbers that follow what is allocated, PyTorch's own keys, and errors."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_fl  # noqa: F401

flagos = torch.flagos
MIB = 1 << 20
POOLS = ("all", "large_pool", "small_pool")
METRICS = ("current", "peak", "allocated", "freed")
COUNTS = ("allocation", "segment", "active", "inactive_split")
BYTES = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes")


def test_keys_are_those_of_torch_cuda() -> None:
    torch.empty(1, device="flagos")
    stats = flagos.memory_stats()
    wanted = {f"{stat}.{pool}.{metric}" for stat in COUNTS + BYTES for pool in POOLS for metric in METRICS}
    assert wanted <= set(stats)
    assert {
        "num_alloc_retries",
        "num_ooms",
        "num_sync_all_streams",
        "num_device_alloc",
        "num_device_free",
    } <= set(stats)
    assert list(stats) == sorted(stats)
    nested = flagos.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == stats["allocated_bytes.all.current"]


def test_torch_accelerator_answers_the_same() -> None:
    kept = torch.empty(MIB, dtype=torch.uint8, device="flagos")
    assert torch.accelerator.memory_stats() == flagos.memory_stats()
    assert torch.accelerator.memory_allocated() == flagos.memory_allocated() >= MIB
    assert torch.accelerator.max_memory_allocated() == flagos.max_memory_allocated()
    assert torch.accelerator.memory_reserved() == flagos.memory_reserved()
    assert torch.accelerator.max_memory_reserved() == flagos.max_memory_reserved()
    assert torch.accelerator.get_memory_info() == flagos.mem_get_info()
    del kept


def test_numbers_follow_a_tensor() -> None:
    before = flagos.memory_allocated(1)
    tensor = torch.empty(3 * MIB, dtype=torch.uint8, device="flagos:1")
    assert flagos.memory_allocated(1) == before + 3 * MIB
    assert flagos.memory_reserved(1) >= flagos.memory_allocated(1)
    del tensor
    assert flagos.memory_allocated(1) == before
    assert flagos.max_memory_allocated(1) >= before + 3 * MIB
    flagos.reset_peak_memory_stats(1)
    assert flagos.max_memory_allocated(1) == before


def test_accumulated_numbers_start_again() -> None:
    torch.empty(MIB, device="flagos")
    flagos.reset_accumulated_memory_stats()
    assert flagos.memory_stats()["allocation.all.allocated"] == 0
    torch.empty(MIB, device="flagos")
    assert flagos.memory_stats()["allocation.all.allocated"] == 1


def test_empty_cache_gives_memory_back() -> None:
    torch.empty(64 * MIB, dtype=torch.uint8, device="flagos")
    held = flagos.memory_reserved()
    free = flagos.mem_get_info()[0]
    flagos.empty_cache()
    assert flagos.memory_reserved() <= held - 64 * MIB
    assert flagos.mem_get_info()[0] >= free + 64 * MIB
    assert flagos.device_memory_used() == flagos.mem_get_info()[1] - flagos.mem_get_info()[0]


def test_fraction_limits_and_can_be_lifted() -> None:
    total = flagos.mem_get_info()[1]
    assert flagos.get_per_process_memory_fraction() == 1.0
    flagos.set_per_process_memory_fraction(64 * MIB / total)
    try:
        with pytest.raises(flagos.OutOfMemoryError, match="flagos"):
            torch.empty(128 * MIB, dtype=torch.uint8, device="flagos")
    finally:
        flagos.set_per_process_memory_fraction(1.0)
    torch.empty(128 * MIB, dtype=torch.uint8, device="flagos")
    for bad in (-0.1, 1.5):
        with pytest.raises(ValueError, match="between 0 and 1"):
            flagos.set_per_process_memory_fraction(bad)


def test_out_of_memory_is_torchs_error_and_leaves_the_device_usable() -> None:
    ooms = flagos.memory_stats().get("num_ooms", 0)
    assert flagos.OutOfMemoryError is torch.OutOfMemoryError
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(1 << 50, dtype=torch.uint8, device="flagos")
    assert "free" in str(caught.value)
    assert "flagos:0" in str(caught.value)
    assert flagos.memory_stats()["num_ooms"] == ooms + 1
    assert torch.ones(2, device="flagos").sum().item() == 2


def test_raw_memory_is_counted_and_given_back() -> None:
    before = flagos.memory_allocated()
    pointer = flagos.caching_allocator_alloc(MIB, stream=flagos.current_stream())
    assert pointer != 0
    assert flagos.memory_allocated() == before + MIB
    flagos.caching_allocator_delete(pointer)
    assert flagos.memory_allocated() == before
    with pytest.raises(ValueError, match="-1 bytes"):
        flagos.caching_allocator_alloc(-1)
    with pytest.raises(ValueError, match="flagos"):
        flagos.caching_allocator_delete(12345)
    with pytest.raises(ValueError, match="belongs to flagos:1"):
        flagos.caching_allocator_alloc(8, 0, flagos.Stream(1))


def test_snapshot_shows_the_block_of_a_tensor() -> None:
    tensor = torch.empty(5 * MIB, dtype=torch.uint8, device="flagos")
    segment = next(
        s
        for s in flagos.memory_snapshot()
        if s["device"] == 0 and s["address"] <= tensor.data_ptr() < s["address"] + s["total_size"]
    )
    assert segment["segment_type"] == "large"
    assert segment["allocated_size"] >= 5 * MIB
    block = next(b for b in segment["blocks"] if b["address"] == tensor.data_ptr())
    assert (block["state"], block["requested_size"]) == ("active_allocated", 5 * MIB)
    assert sum(b["size"] for b in segment["blocks"]) == segment["total_size"]


def test_summary_is_a_table_of_the_numbers() -> None:
    kept = torch.empty(2 * MIB, dtype=torch.uint8, device="flagos")
    text = flagos.memory_summary()
    assert "Memory of flagos:0" in text
    assert "memory of tensors" in text
    assert "large pool" in text
    assert len(flagos.memory_summary(abbreviated=True)) < len(text)
    del kept


def test_pinned_memory_is_counted() -> None:
    pinned = torch.empty(MIB).pin_memory()
    stats = flagos.host_memory_stats()
    assert stats["allocated_bytes.current"] >= 4 * MIB
    assert (
        flagos.host_memory_stats_as_nested_dict()["allocated_bytes"]["current"]
        == stats["allocated_bytes.current"]
    )
    del pinned
    flagos.reset_peak_host_memory_stats()
    flagos.reset_accumulated_host_memory_stats()
    flagos.empty_host_cache()
    assert flagos.host_memory_stats()["allocated_bytes.current"] <= stats["allocated_bytes.current"]


def test_history_is_recorded_and_dumped(tmp_path: Path) -> None:
    flagos.memory._record_memory_history()
    try:
        tensor = torch.empty(MIB, device="flagos")
        file = tmp_path / "snapshot.pickle"
        flagos.memory._dump_snapshot(str(file))
    finally:
        flagos.memory._record_memory_history(None)
    snapshot = pickle.loads(file.read_bytes())
    traces = snapshot["device_traces"][0]
    assert any(entry["action"] == "alloc" and entry["addr"] == tensor.data_ptr() for entry in traces)
    assert snapshot["segments"]


def test_cache_can_be_switched_off_for_a_block() -> None:
    with flagos.memory.caching_allocator_disabled():
        assert flagos.get_allocator_backend() == "direct"
        before = flagos.memory_reserved()
        tensor = torch.empty(MIB, device="flagos")
        del tensor
        assert flagos.memory_reserved() == before
    assert flagos.get_allocator_backend() == "caching"


def test_everything_answers_before_the_first_use(evaluate: Any) -> None:
    answer = evaluate(
        """
        import torch, torch_fl
        f = torch.flagos
        answer = [
            f.memory_stats(), f.memory_allocated(), f.max_memory_reserved(), f.memory_snapshot(),
            f.host_memory_stats(), f.empty_cache(), f.reset_peak_memory_stats(), f.is_initialized(),
        ]
        """,
        FLAGOS_REFERENCE_DEVICES="0",
    )
    assert answer == [{}, 0, 0, [], {}, None, None, False]


def test_allocator_is_named(evaluate: Any) -> None:
    assert flagos.get_allocator_backend() == "caching"
    program = "import torch_fl, torch; answer = torch.flagos.get_allocator_backend()"
    assert evaluate(program, FLAGOS_ALLOCATOR="direct") == "direct"
