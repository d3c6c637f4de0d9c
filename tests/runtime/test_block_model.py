"""The caching allocator against a model: random allocations and frees, with the block structure checked."""

from __future__ import annotations

import gc
import itertools
import random
import threading
from typing import Any

import pytest
import torch

import torch_fl  # noqa: F401
from torch_fl_base import _native

memory = _native.load().memory
KIB, MIB = 1 << 10, 1 << 20
DEVICE = 1  # the other tests use device 0


@pytest.fixture(autouse=True)
def empty_device() -> None:
    """Leave out what earlier tests of this process hold: a failure's traceback keeps its tensors."""
    gc.collect()
    torch.flagos.empty_cache()
    if memory.stats(DEVICE)["allocated_bytes"]["all"]["current"]:
        pytest.skip(f"flagos:{DEVICE} holds tensors of earlier tests that failed")
    torch.flagos.reset_accumulated_memory_stats(DEVICE)  # others may have, with tensors alive
    torch.flagos.reset_peak_memory_stats(DEVICE)


def segments() -> list[dict[str, Any]]:
    return [segment for segment in memory.snapshot() if segment["device"] == DEVICE]


def check(live: dict[int, tuple[int, int]]) -> None:
    """Compare what the allocator says with what the test knows: address → (size asked for, stream)."""
    seen: dict[int, tuple[int, int]] = {}
    split_bytes = split_count = allocated = requested = reserved = 0
    spans = []
    for segment in segments():
        blocks = segment["blocks"]
        spans.append((segment["address"], segment["total_size"]))
        reserved += segment["total_size"]
        # Blocks tile their segment, and free neighbours have been joined.
        at = segment["address"]
        for block in blocks:
            assert block["address"] == at
            assert block["size"] > 0
            assert block["size"] % 512 == 0
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]
        states = [block["state"] for block in blocks]
        assert ("inactive", "inactive") not in itertools.pairwise(states)
        for block in blocks:
            if block["state"] == "active_allocated":
                seen[block["address"]] = (block["requested_size"], segment["stream"])
                assert block["size"] >= block["requested_size"]
                allocated += block["size"]
                requested += block["requested_size"]
                assert (block["requested_size"] > MIB) == (segment["segment_type"] == "large")
            elif len(blocks) > 1:
                split_count += 1
                split_bytes += block["size"]
    assert seen == live
    spans.sort()
    for (start, size), (following, _) in itertools.pairwise(spans):
        assert start + size <= following
    stats = memory.stats(DEVICE)
    pooled = {name: values for name, values in stats.items() if isinstance(values, dict) and "all" in values}
    now = {name: values["all"]["current"] for name, values in pooled.items()}
    assert now["allocation"] == now["active"] == len(live)
    assert now["allocated_bytes"] == now["active_bytes"] == allocated
    assert now["requested_bytes"] == requested
    assert now["reserved_bytes"] == reserved
    assert now["segment"] == len(spans)
    assert (now["inactive_split"], now["inactive_split_bytes"]) == (split_count, split_bytes)
    for values in pooled.values():
        for metric in ("current", "allocated", "freed"):
            assert values["all"][metric] == values["small_pool"][metric] + values["large_pool"][metric]
        assert values["all"]["allocated"] - values["all"]["freed"] == values["all"]["current"]
        assert values["all"]["peak"] >= values["all"]["current"]


def sizes(rng: random.Random) -> int:
    kind = rng.random()
    if kind < 0.6:
        return rng.choice((1, 512, 513, 1024, 4096, 100_000, MIB))
    if kind < 0.8:
        return rng.randrange(1, MIB)
    return rng.randrange(MIB + 1, 24 * MIB)


@pytest.fixture(autouse=True)
def _empty() -> None:
    memory.empty_cache()


@pytest.mark.parametrize("seed", range(8))
def test_random_traces_keep_the_structure(seed: int) -> None:
    rng = random.Random(seed)
    streams = [0, *(torch.Stream(device=f"flagos:{DEVICE}").stream_id for _ in range(2))]
    live: dict[int, tuple[int, int]] = {}
    for step in range(600):
        if live and rng.random() < (0.3 if step % 200 < 100 else 0.7):
            address = rng.choice(list(live))
            del live[address]
            memory.release(address)
        elif sum(size for size, _ in live.values()) < 512 * MIB:
            size, stream = sizes(rng), rng.choice(streams)
            address = memory.allocate(size, DEVICE, stream)
            assert address % 512 == 0
            for start, (length, _) in live.items():
                assert address + size <= start or start + length <= address
            live[address] = (size, stream)
        if step % 50 == 0:
            check(live)
        if step % 199 == 0:
            memory.empty_cache()
            check(live)
    for address in live:
        memory.release(address)
    check({})
    # Everything has grown together again: one free block in each segment, and all of it can be given back.
    assert all(len(segment["blocks"]) == 1 for segment in segments())
    memory.empty_cache()
    assert segments() == []
    free, total = memory.info(DEVICE)
    assert free == total


def test_an_exact_size_comes_back_at_the_same_place() -> None:
    kept = memory.allocate(10 * KIB, DEVICE, 0)
    for size in (512, 3 * KIB, MIB, 3 * MIB, 64 * MIB):
        first = memory.allocate(size, DEVICE, 0)
        memory.release(first)
        again = memory.allocate(size, DEVICE, 0)
        assert again == first
        memory.release(again)
    memory.release(kept)


def test_other_streams_do_not_share_free_blocks() -> None:
    side = torch.Stream(device=f"flagos:{DEVICE}").stream_id
    first = memory.allocate(4 * KIB, DEVICE, 0)
    memory.release(first)
    other = memory.allocate(4 * KIB, DEVICE, side)
    assert other != first
    memory.release(other)


def test_a_large_block_is_not_cut_for_a_remainder_of_no_use() -> None:
    whole = memory.allocate(20 * MIB, DEVICE, 0)
    memory.release(whole)
    almost = memory.allocate(20 * MIB - 512 * KIB, DEVICE, 0)
    assert almost == whole
    [segment] = segments()
    assert [block["size"] for block in segment["blocks"]] == [20 * MIB]
    memory.release(almost)
    half = memory.allocate(5 * MIB, DEVICE, 0)
    assert half == whole
    [segment] = segments()
    assert [block["size"] for block in segment["blocks"]] == [5 * MIB, 15 * MIB]
    memory.release(half)


def test_small_requests_never_take_from_large_segments() -> None:
    large = memory.allocate(8 * MIB, DEVICE, 0)
    memory.release(large)
    small = memory.allocate(KIB, DEVICE, 0)
    kinds = {segment["segment_type"]: segment["total_size"] for segment in segments()}
    assert kinds == {"large": 20 * MIB, "small": 2 * MIB}
    memory.release(small)


def test_a_huge_segment_serves_huge_requests_only() -> None:
    huge = memory.allocate(1100 * MIB, DEVICE, 0)
    memory.release(huge)
    usual = memory.allocate(30 * MIB, DEVICE, 0)
    assert not huge <= usual < huge + 1100 * MIB
    again = memory.allocate(1090 * MIB, DEVICE, 0)
    assert again == huge
    stats = memory.stats(DEVICE)
    assert stats["oversize_segments"]["current"] == stats["oversize_allocations"]["current"] == 1
    memory.release(usual)
    memory.release(again)


@pytest.mark.parametrize("size", [1023 * MIB, 1024 * MIB - 1, 1024 * MIB, 1022 * MIB + 1])
def test_sizes_around_the_huge_limit_are_reused(size: int) -> None:
    first = memory.allocate(size, DEVICE, 0)
    memory.release(first)
    again = memory.allocate(size, DEVICE, 0)
    assert again == first
    assert len(segments()) == 1
    memory.release(again)


def test_thousands_of_free_blocks_are_joined() -> None:
    addresses = [memory.allocate(512, DEVICE, 0) for _ in range(6000)]
    check(dict.fromkeys(addresses, (512, 0)))
    random.Random(3).shuffle(addresses)
    for address in addresses:
        memory.release(address)
    check({})
    assert all(len(segment["blocks"]) == 1 for segment in segments())


def test_blocks_may_be_freed_by_another_thread() -> None:
    handed: list[int] = []
    lock = threading.Lock()
    stop = threading.Event()
    counts = [0, 0]

    def produce() -> None:
        rng = random.Random(1)
        try:
            for _ in range(3000):
                address = memory.allocate(sizes(rng) % (2 * MIB) + 1, DEVICE, 0)
                with lock:
                    handed.append(address)
                counts[0] += 1
        finally:
            stop.set()  # else the other thread would wait for ever

    def consume() -> None:
        while not stop.is_set() or handed:
            with lock:
                address = handed.pop() if handed else 0
            if address:
                memory.release(address)
                counts[1] += 1

    threads = [threading.Thread(target=produce), threading.Thread(target=consume)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [3000, 3000]
    check({})


def test_zero_bytes_and_wrong_addresses() -> None:
    assert memory.allocate(0, DEVICE, 0) == 0
    memory.release(0)
    address = memory.allocate(4096, DEVICE, 0)
    with pytest.raises(ValueError, match="not the start of memory"):
        memory.release(address + 512)
    assert memory.device_of_pointer(address + 4095) == DEVICE
    assert memory.device_of_pointer(id(address)) == -1
    memory.release(address)
    with pytest.raises(ValueError, match="not the start of memory"):
        memory.release(address)
    with pytest.raises(RuntimeError, match="no stream with id 4711"):
        memory.allocate(1, DEVICE, 4711)
    with pytest.raises(RuntimeError, match="out of range"):
        memory.allocate(1, 300, 0)


def test_resets_leave_present_values_alone() -> None:
    address = memory.allocate(3 * MIB, DEVICE, 0)
    other = memory.allocate(7 * MIB, DEVICE, 0)
    memory.release(other)
    memory.reset_accumulated_stats(DEVICE)
    memory.reset_peak_stats(DEVICE)
    stats = memory.stats(DEVICE)
    assert stats["allocated_bytes"]["all"] == {
        "current": 3 * MIB,
        "peak": 3 * MIB,
        "allocated": 0,
        "freed": 0,
    }
    assert stats["num_device_alloc"] == 0
    memory.release(address)
    stats = memory.stats(DEVICE)
    assert stats["allocated_bytes"]["all"] == {
        "current": 0,
        "peak": 3 * MIB,
        "allocated": 0,
        "freed": 3 * MIB,
    }
    assert stats["allocated_bytes"]["large_pool"]["freed"] == 3 * MIB
