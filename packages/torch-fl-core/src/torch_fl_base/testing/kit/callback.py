"""HAL-STR-10: host callbacks."""

from __future__ import annotations

import time

from torch_fl_base.testing.kit.bench import (
    DEVICE_TO_HOST,
    Bench,
)
from torch_fl_base.testing.kit.checks import also, equal, expect, same_bytes
from torch_fl_base.testing.kit.gate import SEM_POST, Semaphore
from torch_fl_base.testing.kit.subjects import SIZE


def test_str_10_callback_runs_once_with_its_argument(bench: Bench) -> None:
    bench.requires("stream.host_callback")
    bench.requires_devices(1)
    stream = bench.stream()
    semaphores = [Semaphore() for _ in range(3)]
    for semaphore in semaphores:
        bench.keep(semaphore)
        bench.hal.stream.host_callback(stream, SEM_POST, semaphore.address)
    bench.hal.stream.synchronize(stream)
    equal([semaphore.value for semaphore in semaphores], [1, 1, 1], "how often each callback has run")
    time.sleep(0.02)
    equal([semaphore.value for semaphore in semaphores], [1, 1, 1], "how often each callback has run later")


def test_str_10_callback_runs_in_the_order_of_the_stream(bench: Bench) -> None:
    bench.requires("stream.host_callback")
    bench.requires_devices(1)
    stream, pointer = bench.stream(), bench.allocate(SIZE)
    semaphore = Semaphore()
    bench.keep(semaphore)
    bench.put(pointer, b"\x00" * SIZE)
    gate = bench.gate(stream)
    bench.hal.stream.host_callback(stream, SEM_POST, semaphore.address)
    bench.hal.memory.fill_async(stream, pointer, 1, SIZE)
    time.sleep(0.05)
    equal(semaphore.value, 0, "how often a callback ran whose stream is held up")
    bench.holds(pointer, b"\x00" * SIZE, "memory that later work must not have touched yet")
    gate.open()
    bench.hal.stream.synchronize(stream)
    equal(semaphore.value, 1, "how often the callback ran")
    bench.holds(pointer, b"\x01" * SIZE, "memory after the callback")


def test_str_10_null_function_is_an_invalid_argument(bench: Bench) -> None:
    bench.requires("stream.host_callback")
    stream = bench.stream()
    bench.refuses("INVALID_ARGUMENT", "stream.host_callback", stream, None, None)
    bench.hal.stream.synchronize(stream)


def test_str_10_takes_a_null_argument(bench: Bench) -> None:
    bench.requires("stream.host_callback")
    import ctypes

    stream = bench.stream()
    tell = ctypes.CDLL(None).fflush  # of null: flushes everything, harmless from any thread
    bench.hal.stream.host_callback(stream, ctypes.cast(tell, ctypes.c_void_p).value, None)
    bench.hal.stream.synchronize(stream)


@also("HAL-MEM-04")
def test_str_10_callback_sees_what_was_queued_before(bench: Bench) -> None:
    """A waiting thread that a callback wakes finds the copy before it done, without any synchronisation of
    its own."""
    bench.requires("stream.host_callback")
    stream, pointer = bench.stream(), bench.allocate(1 << 20)
    target = bench.host(1 << 20, b"\x00" * (1 << 20))
    semaphore = Semaphore()
    bench.keep(semaphore)
    for value in range(1, 6):
        bench.hal.memory.fill_async(stream, pointer, value, 1 << 20)
        bench.hal.memory.copy_async(stream, target.address, pointer, 1 << 20, DEVICE_TO_HOST)
        bench.hal.stream.host_callback(stream, SEM_POST, semaphore.address)
        wait_for(semaphore)
        same_bytes(
            target.read(), bytes([value]) * (1 << 20), "host memory when the callback behind the copy runs"
        )


def wait_for(semaphore: Semaphore, limit_s: float = 10.0) -> None:
    """Wait until a semaphore was posted, and take the post."""
    deadline = time.monotonic() + limit_s
    while semaphore.value == 0:
        expect(time.monotonic() < deadline, f"the callback has not run within {limit_s:.0f} s")
        time.sleep(0.001)
    semaphore.wait()
