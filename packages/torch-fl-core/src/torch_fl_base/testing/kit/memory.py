"""HAL-MEM-01 to 07."""

from __future__ import annotations

import itertools
import random

from torch_fl_base.testing.kit.bench import (
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    HOST_TO_HOST,
    Bench,
    constant,
)
from torch_fl_base.testing.kit.checks import also, cases, equal, expect, isolated, same_bytes, skip
from torch_fl_base.testing.kit.subjects import SIZE
from torch_fl_base.testing.kit.system import check_growth

UNKNOWN = constant("MEMORY_UNKNOWN")
DEVICE = constant("MEMORY_DEVICE")
ODD_SIZES = (1, 2, 3, 7, 63, 64, 65, 255, 1000, 4096, 4097, 65537)


def pattern(size: int, seed: int) -> bytes:
    """Return bytes in which a shifted, repeated or cut piece shows."""
    return random.Random(seed).randbytes(size)


# --- allocate, release ----------------------------------------------------------------------------------


def test_mem_01_pointers_are_aligned_and_apart(bench: Bench) -> None:
    bench.requires_devices(1)
    alignment = bench.capability("ALIGNMENT")
    for device in range(bench.hal.device.count()):
        sizes = [1, 7, 63, 64, 65, 511, 512, 513, 4095, 4096, 1 << 20, (1 << 20) + 1]
        blocks = [(bench.allocate(size, device), size) for size in sizes]
        for pointer, size in blocks:
            equal(pointer % alignment, 0, f"the misalignment of {size} bytes at {pointer:#x}")
        for index, (pointer, size) in enumerate(blocks):
            bench.put(pointer, pattern(size, index), device)
        for index, (pointer, size) in enumerate(blocks):
            bench.holds(pointer, pattern(size, index), f"block {index} beside others", device)
        spans = sorted(blocks)
        for (low, size), (high, _) in itertools.pairwise(spans):
            expect(low + size <= high, f"blocks at {low:#x} ({size} bytes) and {high:#x} overlap")


def test_mem_01_size_0_is_a_null_pointer(bench: Bench) -> None:
    bench.requires_devices(1)
    for device in range(bench.hal.device.count()):
        free = bench.memory_of(device)[0]
        equal(bench.hal.memory.allocate(device, 0), None, "the pointer to 0 bytes")
        if bench.quirks.private_memory:
            equal(bench.memory_of(device)[0], free, "free memory after an allocation of 0 bytes")


@cases("excess", [1, 1 << 30, 2**62])
def test_mem_01_too_much_is_out_of_memory(bench: Bench, excess: int) -> None:
    bench.requires_devices(1)
    total = bench.memory_of(0)[1]
    bench.refuses("OUT_OF_MEMORY", "memory.allocate", 0, total + excess)
    pointer = bench.allocate(SIZE)
    bench.put(pointer, pattern(SIZE, 1))
    bench.holds(pointer, pattern(SIZE, 1), "memory allocated after OUT_OF_MEMORY")


def test_mem_01_exhausted_device_recovers(bench: Bench) -> None:
    bench.requires_devices(1)
    if not bench.quirks.private_memory:
        skip("quirks.private_memory is False: filling the device would disturb other processes")
    free, total = bench.memory_of(0)
    step = max(total // 16, 1 << 20)
    taken = []
    for _ in range(64):
        outcome = bench.hal.call("memory.allocate", 0, step)
        if outcome.status == "OUT_OF_MEMORY":
            break
        equal(outcome.status, "OK", "the status of memory.allocate on a device that fills up")
        taken.append(outcome.value)
    else:
        raise AssertionError(f"64 blocks of {step} bytes came from a device of {total} bytes")
    for pointer in taken:
        bench.hal.memory.release(0, pointer)
    equal(bench.memory_of(0)[0], free, "free memory after the device was full")


def test_mem_02_null_release_does_nothing(bench: Bench) -> None:
    bench.requires_devices(1)
    for device in range(bench.hal.device.count()):
        equal(bench.hal.call("memory.release", device, None).status, "OK", "the status of releasing null")


@isolated()
@cases("what", ["unknown", "interior", "twice", "host", "other device"])
def test_mem_02_release_of_what_was_not_allocated_is_refused(bench: Bench, what: str) -> None:
    bench.requires_devices(2 if what == "other device" else 1)
    pointer = bench.allocate(SIZE)
    bench.put(pointer, pattern(SIZE, 3))
    if what == "unknown":
        bench.refuses("INVALID_HANDLE", "memory.release", 0, 0x1000)
    elif what == "interior":
        bench.refuses("INVALID_HANDLE", "memory.release", 0, pointer + bench.capability("ALIGNMENT"))
    elif what == "host":
        bench.refuses("INVALID_HANDLE", "memory.release", 0, bench.host(SIZE).address)
    elif what == "other device":
        bench.refuses(("INVALID_HANDLE", "INVALID_DEVICE", "INVALID_ARGUMENT"), "memory.release", 1, pointer)
    else:
        second = bench.hal.memory.allocate(0, SIZE)
        bench.hal.memory.release(0, second)
        bench.refuses("INVALID_HANDLE", "memory.release", 0, second)
    bench.holds(pointer, pattern(SIZE, 3), "memory that was not released")
    bench.hal.memory.release(0, pointer)


def test_mem_02_memory_comes_back(bench: Bench) -> None:
    bench.requires_devices(1)
    total = bench.memory_of(0)[1]
    size = max(total // 8, 1 << 20)
    for turn in range(64):  # eight times the whole memory
        pointer = bench.hal.memory.allocate(0, size)
        expect(pointer is not None, f"no memory in round {turn}")
        bench.hal.memory.release(0, pointer)


# --- copies, fills --------------------------------------------------------------------------------------


@cases("size", ODD_SIZES)
def test_mem_03_copies_exactly_the_bytes_asked_for(bench: Bench, size: int) -> None:
    offset, room = 5, size + 16
    first, second = bench.allocate(room), bench.allocate(room)
    data = pattern(size, size)
    for pointer in (first, second):
        bench.put(pointer, b"\xee" * room)
    source = bench.host(size + 3, b"\x00" * 3 + data)
    bench.hal.memory.copy(0, first + offset, source.address + 3, size, HOST_TO_DEVICE)
    wanted = b"\xee" * offset + data + b"\xee" * (room - size - offset)
    bench.holds(first, wanted, "memory after host to device")
    bench.hal.memory.copy(0, second + 1, first + offset, size, DEVICE_TO_DEVICE)
    bench.holds(second, b"\xee" + data + b"\xee" * (room - size - 1), "memory after device to device")
    target = bench.host(room, b"\xdd" * room)
    bench.hal.memory.copy(0, target.address + 7, second + 1, size, DEVICE_TO_HOST)
    same_bytes(target.read(), b"\xdd" * 7 + data + b"\xdd" * (room - size - 7), "memory after device to host")
    again = bench.host(room, b"\xcc" * room)
    bench.hal.memory.copy(0, again.address + 2, source.address + 3, size, HOST_TO_HOST)
    same_bytes(again.read(), b"\xcc" * 2 + data + b"\xcc" * (room - size - 2), "memory after host to host")


def test_mem_03_copies_much_on_every_device(bench: Bench) -> None:
    bench.requires_devices(1)
    data = pattern(5_000_011, 5)
    for device in range(bench.hal.device.count()):
        pointer = bench.allocate(len(data), device)
        bench.put(pointer, data, device)
        bench.holds(pointer, data, f"5 MB on device {device}", device)


def test_mem_03_wrong_arguments_are_refused(bench: Bench) -> None:
    pointer = bench.allocate(SIZE)
    host = bench.host(SIZE).address
    for kind in (HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE):
        bench.refuses("INVALID_ARGUMENT", "memory.copy", 0, None, host, SIZE, kind)
        bench.refuses("INVALID_ARGUMENT", "memory.copy", 0, pointer, None, SIZE, kind)
        bench.refuses("INVALID_DEVICE", "memory.copy", -1, pointer, host, SIZE, kind)
    bench.refuses("INVALID_ARGUMENT", "memory.copy", 0, pointer, host, SIZE, 4)


def test_mem_03_does_not_wait_for_streams(bench: Bench) -> None:
    gate = bench.gate(bench.stream())
    pointer = bench.allocate(SIZE)
    bench.put(pointer, pattern(SIZE, 9))
    bench.holds(pointer, pattern(SIZE, 9), "memory copied while another stream is held up")
    bench.still_shut(gate, "memory.copy")


@cases("size", ODD_SIZES)
def test_mem_04_copies_exactly_the_bytes_asked_for(bench: Bench, size: int) -> None:
    offset, room = 3, size + 16
    stream = bench.stream()
    first, second = bench.allocate(room), bench.allocate(room)
    data = pattern(size, size + 1)
    source = bench.host(size, data)
    target = bench.host(room, b"\xdd" * room)
    for pointer in (first, second):
        bench.hal.memory.fill_async(stream, pointer, 0xEE, room)
    bench.hal.memory.copy_async(stream, first + offset, source.address, size, HOST_TO_DEVICE)
    bench.hal.memory.copy_async(stream, second + 1, first + offset, size, DEVICE_TO_DEVICE)
    bench.hal.memory.copy_async(stream, target.address + 7, second + 1, size, DEVICE_TO_HOST)
    bench.hal.stream.synchronize(stream)
    same_bytes(
        target.read(), b"\xdd" * 7 + data + b"\xdd" * (room - size - 7), "memory after a chain of copies"
    )
    bench.holds(
        first, b"\xee" * offset + data + b"\xee" * (room - size - offset), "the first link of the chain"
    )
    bench.holds(second, b"\xee" + data + b"\xee" * (room - size - 1), "the second link of the chain")


def test_mem_04_host_to_host_is_queued_too(bench: Bench) -> None:
    stream = bench.stream()
    source, target = bench.host(SIZE, pattern(SIZE, 2)), bench.host(SIZE)
    bench.hal.memory.copy_async(stream, target.address, source.address, SIZE, HOST_TO_HOST)
    bench.hal.stream.synchronize(stream)
    same_bytes(target.read(), pattern(SIZE, 2), "the target of a queued host to host copy")


def test_mem_04_wrong_arguments_are_refused(bench: Bench) -> None:
    pointer, stream = bench.allocate(SIZE), bench.stream()
    host = bench.host(SIZE).address
    for kind in (HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE):
        bench.refuses("INVALID_ARGUMENT", "memory.copy_async", stream, None, host, SIZE, kind)
        bench.refuses("INVALID_ARGUMENT", "memory.copy_async", stream, pointer, None, SIZE, kind)
    bench.refuses("INVALID_ARGUMENT", "memory.copy_async", stream, pointer, host, SIZE, -1)


def test_mem_04_runs_when_the_stream_gets_there(bench: Bench) -> None:
    stream = bench.stream()
    pointer, other = bench.allocate(SIZE), bench.allocate(SIZE)
    bench.put(pointer, b"\x01" * SIZE)
    bench.put(other, b"\x02" * SIZE)
    gate = bench.gate(stream)
    bench.hal.memory.copy_async(stream, pointer, other, SIZE, DEVICE_TO_DEVICE)
    bench.still_shut(gate, "memory.copy_async between device memory")
    bench.holds(pointer, b"\x01" * SIZE, "the target of a copy that has not started")
    gate.open()
    bench.hal.stream.synchronize(stream)
    bench.holds(pointer, b"\x02" * SIZE, "the target of a copy that has finished")


@also("HAL-HST-01")
def test_mem_04_pinned_copies_do_not_block(bench: Bench) -> None:
    bench.requires_devices(1)
    stream = bench.stream()
    source, target = bench.pinned(SIZE), bench.pinned(SIZE)
    pointer = bench.allocate(SIZE)
    staging = bench.host(SIZE, pattern(SIZE, 4))
    bench.hal.memory.copy(0, source, staging.address, SIZE, HOST_TO_HOST)
    gate = bench.gate(stream)
    bench.hal.memory.copy_async(stream, pointer, source, SIZE, HOST_TO_DEVICE)
    bench.hal.memory.copy_async(stream, target, pointer, SIZE, DEVICE_TO_HOST)
    bench.still_shut(gate, "memory.copy_async with pinned memory")
    gate.open()
    bench.hal.stream.synchronize(stream)
    result = bench.host(SIZE)
    bench.hal.memory.copy(0, result.address, target, SIZE, HOST_TO_HOST)
    same_bytes(result.read(), pattern(SIZE, 4), "pinned memory after the round trip")


@cases("size", ODD_SIZES)
def test_mem_05_fills_exactly_the_bytes_asked_for(bench: Bench, size: int) -> None:
    room = size + 16
    pointer = bench.allocate(room)
    for value in (0, 1, 0x80, 255):
        bench.put(pointer, b"\x33" * room)
        bench.hal.memory.fill(0, pointer + 5, value, size)
        wanted = b"\x33" * 5 + bytes([value]) * size + b"\x33" * (room - size - 5)
        bench.holds(pointer, wanted, f"memory filled with {value}")


def test_mem_05_wrong_arguments_are_refused(bench: Bench) -> None:
    pointer = bench.allocate(SIZE)
    bench.put(pointer, b"\x66" * SIZE)
    for value in (-1, 256, 257, 2**31 - 1, -(2**31)):
        bench.refuses("INVALID_ARGUMENT", "memory.fill", 0, pointer, value, SIZE)
    bench.refuses("INVALID_ARGUMENT", "memory.fill", 0, None, 1, SIZE)
    bench.holds(pointer, b"\x66" * SIZE, "memory after refused fills")


@cases("size", ODD_SIZES)
def test_mem_06_fills_exactly_the_bytes_asked_for(bench: Bench, size: int) -> None:
    room = size + 16
    stream = bench.stream()
    pointer = bench.allocate(room)
    bench.put(pointer, b"\x33" * room)
    for value in (7, 0, 255):  # in this order: the last one stands
        bench.hal.memory.fill_async(stream, pointer + 5, value, size)
    bench.hal.stream.synchronize(stream)
    bench.holds(
        pointer, b"\x33" * 5 + b"\xff" * size + b"\x33" * (room - size - 5), "memory after queued fills"
    )


def test_mem_06_wrong_arguments_are_refused(bench: Bench) -> None:
    pointer, stream = bench.allocate(SIZE), bench.stream()
    for value in (-1, 256, 2**31 - 1):
        bench.refuses("INVALID_ARGUMENT", "memory.fill_async", stream, pointer, value, SIZE)
    bench.refuses("INVALID_ARGUMENT", "memory.fill_async", stream, None, 1, SIZE)


def test_mem_06_runs_in_the_order_of_the_stream(bench: Bench) -> None:
    stream = bench.stream()
    pointer = bench.allocate(SIZE)
    bench.put(pointer, b"\x01" * SIZE)
    gate = bench.gate(stream)
    for value in range(2, 20):
        bench.hal.memory.fill_async(stream, pointer, value, SIZE)
    bench.still_shut(gate, "memory.fill_async")
    bench.holds(pointer, b"\x01" * SIZE, "memory before the queued fills start")
    gate.open()
    bench.hal.stream.synchronize(stream)
    bench.holds(pointer, bytes([19]) * SIZE, "memory after queued fills")


# --- pointer_info ---------------------------------------------------------------------------------------


def test_mem_07_knows_every_address_of_an_allocation(bench: Bench) -> None:
    bench.requires_devices(1)
    for device in range(bench.hal.device.count()):
        pointer = bench.allocate(SIZE, device)
        for offset in (0, 1, SIZE // 2, SIZE - 1):
            info = bench.hal.memory.pointer_info(pointer + offset)
            equal(info.kind, DEVICE, f"the kind of byte {offset} of an allocation")
            equal(info.device, device, f"the device of byte {offset} of an allocation")
            expect(
                info.base in (None, pointer), f"the base of byte {offset} is {info.base:#x}, not {pointer:#x}"
            )
            expect(info.size == 0 or info.size >= SIZE, f"the size is {info.size} of {SIZE}")


@isolated()
@cases("what", ["null", "one", "page", "far", "host", "behind", "released"])
def test_mem_07_other_addresses_are_unknown(bench: Bench, what: str) -> None:
    bench.requires_devices(1)
    pointer = bench.allocate(SIZE)
    size = bench.hal.memory.pointer_info(pointer).size or SIZE
    buffer = bench.host(SIZE)
    addresses = {
        "null": None,
        "one": 1,
        "page": 0x1000,
        "far": 0xDEAD_BEEF_DEAD_BEEF,
        "host": buffer.address,
        "behind": pointer + size,
        "released": pointer,
    }
    if what == "released":
        bench.hal.memory.release(0, pointer)
    info = bench.hal.memory.pointer_info(addresses[what])
    equal((info.kind, info.device), (UNKNOWN, -1), f"kind and device of an unknown address ({what})")


def test_mem_07_writes_no_more_than_struct_size(bench: Bench) -> None:
    pointer = bench.allocate(SIZE)
    check_growth(bench, "memory.pointer_info", "flagos_hal_pointer_info", "base", pointer)


def test_mem_07_host_may_touch_memory_where_the_library_says_so(bench: Bench) -> None:
    if bench.capability("HOST_ACCESS") != constant("HOST_ACCESS_COHERENT"):
        skip("capability HOST_ACCESS is not COHERENT")
    from ctypes import memmove, string_at

    pointer = bench.allocate(SIZE)
    memmove(pointer, pattern(SIZE, 6), SIZE)
    bench.holds(pointer, pattern(SIZE, 6), "memory that the host has written through the pointer")
    bench.put(pointer, pattern(SIZE, 7))
    same_bytes(string_at(pointer, SIZE), pattern(SIZE, 7), "memory that the host reads through the pointer")
