"""Memory of the reference HAL: simulated capacity, what it refuses, the mode in which the host faults."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import pytest

from torch_fl_base._hal import Hal

SIZE = 4096
MIB = 1 << 20
TO_HOST, TO_DEVICE, ON_DEVICE = 2, 1, 3


def _status(hal: Hal, function: str, *inputs: object) -> str:
    return hal.call(function, *inputs).status


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.reference(MEMORY="1MiB")
def test_capacity_is_exact(hal: Hal) -> None:
    blocks = [hal.memory.allocate(0, MIB // 4) for _ in range(4)]
    assert hal.device.memory_info(0) == (0, MIB)
    assert _status(hal, "memory.allocate", 0, 1) == "OUT_OF_MEMORY"
    detail = hal.last_error()
    assert detail.message == "device 0 cannot allocate 1 bytes: 0 of 1048576 are free"
    assert (detail.vendor_name, detail.vendor_code) == ("referenceErrorMemoryAllocation", 1001)
    assert hal.device.memory_info(1) == (MIB, MIB)  # each device has its own
    hal.memory.release(0, blocks.pop())
    assert hal.device.memory_info(0) == (MIB // 4, MIB)
    assert _status(hal, "memory.allocate", 0, MIB // 4 + 1) == "OUT_OF_MEMORY"
    assert _status(hal, "memory.allocate", 0, MIB // 4) == "OK"
    for size in (MIB + 1, 1 << 50, (1 << 64) - 1):
        assert _status(hal, "memory.allocate", 0, size) == "OUT_OF_MEMORY"


@pytest.mark.reference
def test_small_blocks_count_as_their_alignment(hal: Hal) -> None:
    free, _ = hal.device.memory_info(0)
    pointers = [hal.memory.allocate(0, 1) for _ in range(10)]
    assert hal.device.memory_info(0)[0] == free - 10 * 256
    assert all(pointer % 256 == 0 for pointer in pointers)
    for pointer in pointers:
        hal.memory.release(0, pointer)
    assert hal.device.memory_info(0)[0] == free


@pytest.mark.parametrize("fault", ["0", "1"])
@pytest.mark.reference
def test_big_blocks_go_back_to_the_system(hal: Hal, fault: str) -> None:
    import os

    hal.system.shutdown()
    os.environ["FLAGOS_REFERENCE_MEMORY_FAULT"] = fault
    hal.system.init()
    before = _resident()
    pointer = hal.memory.allocate(0, 64 * MIB)
    hal.memory.fill(0, pointer, 1, 64 * MIB)
    assert _resident() > before + 60 * MIB
    hal.memory.release(0, pointer)
    assert _resident() < before + 4 * MIB


@pytest.mark.reference(LATENCY="fill:200000")
def test_memory_that_queued_work_uses_is_not_released(hal: Hal) -> None:
    stream = hal.stream.create(0, None)
    pointer, pinned = hal.memory.allocate(0, SIZE), hal.host.allocate(SIZE)
    hal.memory.fill_async(stream, pointer, 1, SIZE)
    hal.memory.copy_async(stream, pinned, pointer, SIZE, TO_HOST)
    assert _status(hal, "memory.release", 0, pointer) == "INVALID_STATE"
    assert "still used by 2 queued transfers" in hal.last_error().message
    assert _status(hal, "host.release", pinned) == "INVALID_STATE"
    hal.stream.synchronize(stream)
    assert _status(hal, "memory.release", 0, pointer) == "OK"
    assert _status(hal, "host.release", pinned) == "OK"


@pytest.mark.reference
def test_ranges_are_checked(hal: Hal) -> None:
    pointer, other = hal.memory.allocate(0, SIZE), hal.memory.allocate(1, SIZE)
    host = ctypes.create_string_buffer(2 * SIZE)
    stream = hal.stream.create(0, None)
    for name, first in (("memory.copy", 0), ("memory.copy_async", stream)):
        assert _status(hal, name, first, pointer, host, SIZE + 1, TO_DEVICE) == "INVALID_ARGUMENT"
        assert _status(hal, name, first, pointer + SIZE - 1, host, 2, TO_DEVICE) == "INVALID_ARGUMENT"
        assert _status(hal, name, first, pointer + SIZE - 1, host, 1, TO_DEVICE) == "OK"
        assert _status(hal, name, first, other, host, SIZE, TO_DEVICE) == "INVALID_HANDLE"
        assert _status(hal, name, first, host, pointer, SIZE, ON_DEVICE) == "INVALID_HANDLE"
        assert _status(hal, name, first, pointer + 16, pointer, 32, ON_DEVICE) == "INVALID_ARGUMENT"
        assert "overlap" in hal.last_error().message
        assert _status(hal, name, first, pointer + 16, pointer, 16, ON_DEVICE) == "OK"
    assert _status(hal, "memory.fill", 0, pointer + 1, 0, SIZE) == "INVALID_ARGUMENT"
    hal.stream.synchronize(stream)


@pytest.mark.reference
def test_registered_memory_is_pinned_until_it_is_not(hal: Hal) -> None:
    host = ctypes.create_string_buffer(SIZE)
    address = ctypes.addressof(host)
    hal.host.register_range(address, SIZE)
    info = hal.memory.pointer_info(address + SIZE - 1)
    assert (info.kind, info.device, info.base, info.size) == (2, -1, address, SIZE)
    for begin, size in ((address, SIZE), (address + 10, 1), (address - 8, 16), (address - 8, 2 * SIZE)):
        assert _status(hal, "host.register_range", begin, size) == "INVALID_STATE"
    assert _status(hal, "host.register_range", hal.host.allocate(SIZE), 8) == "INVALID_STATE"
    assert _status(hal, "host.release", address) == "INVALID_HANDLE"
    assert _status(hal, "host.unregister_range", address + 1) == "INVALID_HANDLE"
    assert _status(hal, "host.unregister_range", address) == "OK"
    assert hal.memory.pointer_info(address).kind == 0


@pytest.mark.reference(LATENCY="fill:200000")
def test_memory_released_in_stream_order_cannot_be_used_again(hal: Hal) -> None:
    stream = hal.stream.create(0, None)
    free, _ = hal.device.memory_info(0)
    pointer = hal.async_alloc.allocate_async(stream, MIB)
    hal.memory.fill_async(stream, pointer, 1, MIB)
    hal.async_alloc.release_async(stream, pointer)
    assert hal.device.memory_info(0)[0] == free - MIB  # the fill still needs it
    assert _status(hal, "memory.fill_async", stream, pointer, 1, MIB) == "INVALID_HANDLE"
    assert _status(hal, "memory.release", 0, pointer) == "INVALID_HANDLE"
    assert _status(hal, "async_alloc.release_async", stream, pointer) == "INVALID_HANDLE"
    hal.stream.synchronize(stream)
    assert hal.device.memory_info(0)[0] == free


@pytest.mark.reference(LATENCY="fill:200000")
def test_a_release_before_another_stream_is_done_is_told(hal: Hal) -> None:
    stream, other = hal.stream.create(0, None), hal.stream.create(0, None)
    pointer = hal.async_alloc.allocate_async(stream, SIZE)
    hal.memory.fill_async(other, pointer, 1, SIZE)
    hal.async_alloc.release_async(stream, pointer)
    assert _status(hal, "stream.synchronize", stream) == "INVALID_STATE"
    assert "transfers of other streams still used the memory" in hal.last_error().message
    hal.stream.synchronize(other)
    assert _status(hal, "memory.release", 0, pointer) == "OK"


# ------------------------------------------------------------------------------------- memory-fault mode ----


@pytest.mark.reference(MEMORY_FAULT="1")
def test_the_library_reaches_memory_that_the_host_cannot(hal: Hal) -> None:
    assert hal.system.capability(0) == 0  # HOST_ACCESS_NONE
    pattern = bytes(range(256)) * 16
    source, target = ctypes.create_string_buffer(pattern, SIZE), ctypes.create_string_buffer(SIZE)
    stream = hal.stream.create(0, None)
    first, second, there = (hal.memory.allocate(device, SIZE) for device in (0, 0, 1))
    hal.memory.copy(0, first, source, SIZE, TO_DEVICE)
    hal.memory.copy_async(stream, second, first, SIZE, ON_DEVICE)
    hal.peer.copy_async(stream, 1, there, 0, second, SIZE)
    hal.memory.fill_async(stream, second, 0, 256)
    hal.stream.synchronize(stream)
    hal.memory.copy(1, target, there, SIZE, TO_HOST)
    assert target.raw == pattern
    hal.memory.copy(0, target, second + 128, 256, TO_HOST)
    assert target.raw[:256] == bytes(128) + pattern[:128]
    info = hal.memory.pointer_info(second + 100)
    assert (info.kind, info.device, info.base, info.size) == (1, 0, second, SIZE)
    pinned = hal.host.allocate(SIZE)
    ctypes.memset(pinned, 1, SIZE)  # pinned memory is the host's
    for pointer, device in ((first, 0), (second, 0), (there, 1)):
        hal.memory.release(device, pointer)
    assert hal.device.memory_info(0) == hal.device.memory_info(1)


@pytest.mark.reference(MEMORY_FAULT="1")
def test_device_memory_is_refused_as_host_memory(hal: Hal) -> None:
    first, second = hal.memory.allocate(0, SIZE), hal.memory.allocate(0, SIZE)
    for kind in (0, 1, 2):
        assert _status(hal, "memory.copy", 0, first, second, SIZE, kind) == "INVALID_ARGUMENT"
        assert "which the host cannot touch" in hal.last_error().message


@pytest.mark.reference(MEMORY_FAULT="1", dies="SIGSEGV")
def test_the_host_dies_when_it_reads_device_memory(hal: Hal) -> None:
    pointer = hal.memory.allocate(0, SIZE)
    hal.memory.fill(0, pointer, 1, SIZE)
    ctypes.string_at(pointer, 1)


@pytest.mark.reference(MEMORY_FAULT="1", dies="SIGSEGV")
def test_the_host_dies_when_it_writes_device_memory(hal: Hal) -> None:
    ctypes.memset(hal.memory.allocate(0, SIZE) + SIZE - 1, 0, 1)


@pytest.mark.reference
def test_the_host_may_touch_memory_otherwise(hal: Hal) -> None:
    assert hal.system.capability(0) == 1  # HOST_ACCESS_COHERENT
    pointer = hal.memory.allocate(0, SIZE)
    ctypes.memset(pointer, 7, SIZE)
    target = ctypes.create_string_buffer(SIZE)
    hal.memory.copy(0, target, pointer, SIZE, TO_HOST)
    assert target.raw == b"\x07" * SIZE
