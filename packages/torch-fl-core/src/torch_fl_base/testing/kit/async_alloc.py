"""HAL-ASY-01 to 03."""

from __future__ import annotations

from torch_fl_base.testing.kit.bench import Bench
from torch_fl_base.testing.kit.checks import equal, expect
from torch_fl_base.testing.kit.subjects import SIZE


def test_asy_01_memory_is_usable_behind_the_call(bench: Bench) -> None:
    bench.requires("async_alloc.allocate_async")
    bench.requires_devices(1)
    for device in range(bench.hal.device.count()):
        stream = bench.stream(device)
        pointer = bench.hal.async_alloc.allocate_async(stream, SIZE)
        expect(pointer is not None, "allocate_async said OK and gave null")
        equal(pointer % bench.capability("ALIGNMENT"), 0, "the misalignment of the pointer")
        bench.hal.memory.fill_async(stream, pointer, 0x15, SIZE)
        bench.hal.stream.synchronize(stream)
        bench.holds(pointer, b"\x15" * SIZE, "memory from allocate_async", device)
        equal(
            bench.hal.memory.pointer_info(pointer).device, device, "the device of memory from allocate_async"
        )
        bench.hal.memory.release(device, pointer)


def test_asy_01_size_0_is_a_null_pointer(bench: Bench) -> None:
    bench.requires("async_alloc.allocate_async")
    equal(bench.hal.async_alloc.allocate_async(bench.stream(), 0), None, "the pointer to 0 bytes")


def test_asy_01_too_much_is_out_of_memory(bench: Bench) -> None:
    bench.requires("async_alloc.allocate_async")
    stream = bench.stream()
    before = bench.memory_of(0)
    for size in (before[1] + 1, 2**63, 2**64 - 1):
        bench.refuses("OUT_OF_MEMORY", "async_alloc.allocate_async", stream, size)
    bench.hal.stream.synchronize(stream)
    if bench.quirks.private_memory:
        equal(bench.memory_of(0), before, "free and total memory after refused allocations")


def test_asy_02_memory_lives_until_the_stream_gets_there(bench: Bench) -> None:
    bench.requires("async_alloc")
    stream, target = bench.stream(), bench.allocate(SIZE)
    from torch_fl_base.testing.kit.bench import DEVICE_TO_DEVICE

    pointer = bench.hal.async_alloc.allocate_async(stream, SIZE)
    gate = bench.gate(stream)
    bench.hal.memory.fill_async(stream, pointer, 0x16, SIZE)
    bench.hal.memory.copy_async(stream, target, pointer, SIZE, DEVICE_TO_DEVICE)
    before = bench.memory_of(0)[0]
    bench.hal.async_alloc.release_async(stream, pointer)
    bench.still_shut(gate, "release_async")
    if bench.quirks.private_memory:
        expect(bench.memory_of(0)[0] <= before, "memory that queued work still uses was given back")
    # What is allocated now must not be the memory that queued work still uses.
    others = [bench.allocate(SIZE) for _ in range(32)]
    elsewhere = bench.stream()
    for _ in range(8):
        other = bench.hal.async_alloc.allocate_async(elsewhere, SIZE)
        bench.later(lambda other=other: _release(bench, other))  # type: ignore[misc]
        expect(other != pointer, "another stream was given memory that queued work still uses")
        others.append(other)
    bench.hal.stream.synchronize(elsewhere)
    bench.still_shut(gate, "allocate_async on another stream")
    for other in others:
        bench.put(other, b"\x99" * SIZE)
    gate.open()
    bench.hal.stream.synchronize(stream)
    bench.holds(target, b"\x16" * SIZE, "a copy of memory released behind it")
    for other in others:
        bench.holds(other, b"\x99" * SIZE, "memory allocated meanwhile")


def _release(bench: Bench, pointer: int) -> None:
    bench.hal.call("memory.release", 0, pointer)


def test_asy_02_foreign_pointers_are_refused(bench: Bench) -> None:
    bench.requires("async_alloc.release_async")
    stream = bench.stream()
    bench.refuses("INVALID_HANDLE", "async_alloc.release_async", stream, bench.host(SIZE).address)
    equal(
        bench.hal.call("async_alloc.release_async", stream, None).status, "OK", "the status of releasing null"
    )


def test_asy_02_memory_comes_back(bench: Bench) -> None:
    bench.requires("async_alloc")
    stream = bench.stream()
    size = max(bench.memory_of(0)[1] // 8, 1 << 20)
    for turn in range(32):
        pointer = bench.hal.async_alloc.allocate_async(stream, size)
        expect(pointer is not None, f"no memory in round {turn}")
        bench.hal.async_alloc.release_async(stream, pointer)
        if turn % 4 == 3:  # a release that the stream has not reached yet need not count
            bench.hal.stream.synchronize(stream)


def test_asy_03_trim_gives_the_pool_back(bench: Bench) -> None:
    bench.requires("async_alloc.trim")
    stream = bench.stream()
    bench.hal.async_alloc.trim(0, 0)
    before = bench.memory_of(0)[0]
    pointer = bench.hal.async_alloc.allocate_async(stream, 1 << 20)
    bench.hal.async_alloc.release_async(stream, pointer)
    bench.hal.stream.synchronize(stream)
    bench.hal.async_alloc.trim(0, 2**64 - 1)
    bench.hal.async_alloc.trim(0, 0)
    if bench.quirks.private_memory:
        equal(bench.memory_of(0)[0], before, "free memory after the pool was trimmed")
