"""HAL-HST-01 to 06."""

from __future__ import annotations

import ctypes

from torch_fl_base.testing.kit.bench import DEVICE_TO_HOST, HOST_TO_DEVICE, HOST_TO_HOST, Bench, constant
from torch_fl_base.testing.kit.checks import also, equal, expect, isolated, same_bytes, skip
from torch_fl_base.testing.kit.memory import pattern
from torch_fl_base.testing.kit.subjects import SIZE

PINNED = constant("MEMORY_PINNED")
READ, WRITE = constant("ACCESS_READ"), constant("ACCESS_WRITE")


def test_hst_01_size_0_is_a_null_pointer(bench: Bench) -> None:
    bench.requires("host.allocate")
    equal(bench.hal.host.allocate(0), None, "the pointer to 0 pinned bytes")


def test_hst_01_host_reads_and_writes_it(bench: Bench) -> None:
    size = 100_003
    pointer = bench.pinned(size)
    ctypes.memmove(pointer, pattern(size, 1), size)
    same_bytes(ctypes.string_at(pointer, size), pattern(size, 1), "pinned memory that the host has written")


def test_hst_01_all_devices_copy_from_and_to_it(bench: Bench) -> None:
    bench.requires("host.allocate")
    bench.requires_devices(1)
    size = 100_003
    source, target = bench.pinned(size), bench.pinned(size)
    for device in range(bench.hal.device.count()):
        ctypes.memmove(source, pattern(size, device), size)
        ctypes.memset(target, 0, size)
        stream, pointer = bench.stream(device), bench.allocate(size, device)
        bench.hal.memory.copy_async(stream, pointer, source, size, HOST_TO_DEVICE)
        bench.hal.memory.copy_async(stream, target, pointer, size, DEVICE_TO_HOST)
        bench.hal.stream.synchronize(stream)
        same_bytes(ctypes.string_at(target, size), pattern(size, device), f"pinned memory by device {device}")
        bench.hal.memory.copy(device, target, source, size, HOST_TO_HOST)


@also("HAL-MEM-07")
def test_hst_01_pointer_info_calls_it_pinned(bench: Bench) -> None:
    pointer = bench.pinned(SIZE)
    for offset in (0, 1, SIZE - 1):
        info = bench.hal.memory.pointer_info(pointer + offset)
        equal((info.kind, info.device), (PINNED, -1), f"kind and device of byte {offset} of pinned memory")
        expect(info.base in (None, pointer), "the base of pinned memory is another address")


def test_hst_01_too_much_is_out_of_memory(bench: Bench) -> None:
    bench.requires("host.allocate")
    bench.refuses("OUT_OF_MEMORY", "host.allocate", 2**62)
    bench.refuses("OUT_OF_MEMORY", "host.allocate", 2**64 - 1)
    bench.pinned(SIZE)


def test_hst_02_null_release_does_nothing(bench: Bench) -> None:
    bench.requires("host.release")
    equal(bench.hal.call("host.release", None).status, "OK", "the status of releasing null")


@isolated()
def test_hst_02_release_of_what_was_not_allocated_is_refused(bench: Bench) -> None:
    pointer = bench.pinned(SIZE)
    bench.refuses("INVALID_HANDLE", "host.release", bench.host(SIZE).address)
    bench.refuses("INVALID_HANDLE", "host.release", pointer + 64)
    if bench.hal.device.count():
        bench.refuses("INVALID_HANDLE", "host.release", bench.allocate(SIZE))
        bench.refuses("INVALID_HANDLE", "memory.release", 0, pointer)
    second = bench.hal.host.allocate(SIZE)
    bench.hal.host.release(second)
    bench.refuses("INVALID_HANDLE", "host.release", second)
    ctypes.memmove(pointer, pattern(SIZE, 1), SIZE)


def _registered(bench: Bench, size: int = 4 * SIZE) -> int:
    bench.requires("host.register_range")
    bench.requires("host.unregister_range")
    buffer = bench.host(size)
    bench.hal.host.register_range(buffer.address, size)
    bench.later(lambda: _forget(bench, buffer.address))
    return buffer.address


def _forget(bench: Bench, address: int) -> None:
    bench.hal.call("host.unregister_range", address)


def test_hst_03_registered_memory_is_pinned(bench: Bench) -> None:
    address = _registered(bench)
    equal(bench.hal.memory.pointer_info(address).kind, PINNED, "the kind of registered memory")
    equal(bench.hal.memory.pointer_info(address + SIZE).kind, PINNED, "the kind of its middle")
    if not bench.hal.device.count():
        return
    stream, pointer = bench.stream(), bench.allocate(SIZE)
    ctypes.memmove(address, pattern(SIZE, 4), SIZE)
    bench.hal.memory.copy_async(stream, pointer, address, SIZE, HOST_TO_DEVICE)
    bench.hal.stream.synchronize(stream)
    bench.holds(pointer, pattern(SIZE, 4), "memory copied from registered memory")


def test_hst_03_overlap_is_in_no_state_for_it(bench: Bench) -> None:
    address = _registered(bench)
    for start, size in (
        (address, 4 * SIZE),
        (address, SIZE),
        (address + SIZE, SIZE),
        (address + 3 * SIZE, SIZE),
    ):
        bench.refuses("INVALID_STATE", "host.register_range", start, size)
    equal(bench.hal.memory.pointer_info(address).kind, PINNED, "the kind of the range registered first")


def test_hst_03_nothing_to_register_is_an_invalid_argument(bench: Bench) -> None:
    bench.requires("host.register_range")
    buffer = bench.host(SIZE)
    bench.refuses("INVALID_ARGUMENT", "host.register_range", buffer.address, 0)
    bench.refuses("INVALID_ARGUMENT", "host.register_range", None, SIZE)
    bench.refuses("INVALID_ARGUMENT", "host.register_range", None, 0)


def test_hst_04_undoes_registering(bench: Bench) -> None:
    address = _registered(bench)
    bench.refuses("INVALID_HANDLE", "host.unregister_range", address + SIZE)
    bench.hal.host.unregister_range(address)
    equal(bench.hal.memory.pointer_info(address).kind, constant("MEMORY_UNKNOWN"), "the kind afterwards")
    bench.refuses("INVALID_HANDLE", "host.unregister_range", address)
    bench.hal.host.register_range(address, SIZE)
    bench.hal.host.unregister_range(address)


def test_hst_04_takes_registered_ranges_only(bench: Bench) -> None:
    bench.requires("host.unregister_range")
    bench.refuses("INVALID_HANDLE", "host.unregister_range", bench.host(SIZE).address)
    bench.refuses("INVALID_HANDLE", "host.unregister_range", bench.pinned(SIZE))


def _managed(bench: Bench) -> int:
    if bench.capability("HOST_ACCESS") != constant("HOST_ACCESS_MANAGED"):
        skip("capability HOST_ACCESS is not MANAGED")
    for qualified in ("host.begin_access", "host.end_access"):
        expect(bench.hal.has(qualified), f"{qualified} is required with HOST_ACCESS MANAGED")
    return bench.allocate(SIZE)


def test_hst_05_host_reads_what_the_device_has_written(bench: Bench) -> None:
    pointer = _managed(bench)
    bench.hal.memory.fill(0, pointer, 0x35, SIZE)
    bench.hal.host.begin_access(0, pointer, SIZE, READ)
    found = ctypes.string_at(pointer, SIZE)
    bench.hal.host.end_access(0, pointer, SIZE, READ)
    same_bytes(found, b"\x35" * SIZE, "memory that the host reads between begin_access and end_access")


def test_hst_05_wrong_arguments_are_refused(bench: Bench) -> None:
    pointer = _managed(bench)
    for access in (1 << 2, READ | 1 << 31):
        bench.refuses("INVALID_ARGUMENT", "host.begin_access", 0, pointer, SIZE, access)
    bench.refuses("INVALID_HANDLE", "host.begin_access", 0, bench.host(SIZE).address, SIZE, READ)
    bench.refuses("INVALID_DEVICE", "host.begin_access", -1, pointer, SIZE, READ)


def test_hst_06_device_sees_what_the_host_has_written(bench: Bench) -> None:
    pointer = _managed(bench)
    for turn, access in enumerate((WRITE, READ | WRITE)):
        bench.hal.host.begin_access(0, pointer, SIZE, access)
        ctypes.memmove(pointer, pattern(SIZE, turn), SIZE)
        bench.hal.host.end_access(0, pointer, SIZE, access)
        bench.holds(pointer, pattern(SIZE, turn), "memory that the host has written in between")
