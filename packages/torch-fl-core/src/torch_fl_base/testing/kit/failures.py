"""GEN-11 and GEN-12, and work that fails after the call: what is left when something goes wrong."""

from __future__ import annotations

import time

from torch_fl_base._hal_header import header
from torch_fl_base.testing.kit.bench import (
    HOST_TO_DEVICE,
    Bench,
)
from torch_fl_base.testing.kit.callback import wait_for
from torch_fl_base.testing.kit.checks import also, cases, equal, expect, isolated, one_of
from torch_fl_base.testing.kit.gate import SEM_POST, Semaphore
from torch_fl_base.testing.kit.quirks import Quirks
from torch_fl_base.testing.kit.subjects import FUNCTIONS, SIZE, arguments, undo

FAILURES = tuple(name for name in header().statuses if name not in ("OK", "NOT_READY"))


# --- GEN-11 ---------------------------------------------------------------------------------------------


def _lost(quirks: Quirks, device: int = 0) -> dict[str, str]:
    return dict(quirks.lose_device(device)) if quirks.lose_device is not None else {}  # else not called


@isolated(environment=_lost, needs="lose_device")
@also("HAL-DEV-07")
def test_gen_11_lost_device_stays_lost_and_others_go_on(bench: Bench) -> None:
    bench.requires_devices(2)
    pointer = bench.allocate(SIZE)
    stream = bench.stream()
    event = bench.event()
    other = bench.allocate(SIZE, 1)
    source = bench.host(SIZE).address
    equal(bench.hal.call("device.health", 0).status, "OK", "the health of the device before")
    one_of(
        bench.hal.call("memory.copy", 0, pointer, source, SIZE, HOST_TO_DEVICE).status,
        ["DEVICE_LOST"],
        "the status of the copy that loses the device",
    )
    for qualified, inputs in (
        ("device.health", (0,)),
        ("device.synchronize", (0,)),
        ("memory.allocate", (0, SIZE)),
        ("memory.fill", (0, pointer, 1, SIZE)),
        ("memory.fill_async", (stream, pointer, 1, SIZE)),
        ("event.record", (event, stream)),
        ("stream.query", (stream,)),
        ("stream.synchronize", (stream,)),
        ("stream.create", (0, None)),
    ):
        bench.refuses("DEVICE_LOST", qualified, *inputs)
    for qualified, inputs in (
        ("event.destroy", (event,)),
        ("stream.destroy", (stream,)),
        ("memory.release", (0, pointer)),
    ):
        one_of(bench.hal.call(qualified, *inputs).status, ["OK", "DEVICE_LOST"], f"the status of {qualified}")
    bench.hal.device.health(1)
    bench.put(other, b"\x11" * SIZE, device=1)
    bench.holds(other, b"\x11" * SIZE, "memory of the device that is not lost", device=1)
    bench.hal.device.synchronize(1)


# --- GEN-12 ---------------------------------------------------------------------------------------------


def _injected(quirks: Quirks, qualified: str) -> dict[str, str]:
    return dict(quirks.inject(qualified, 1)) if quirks.inject is not None else {}


NOT_INJECTED = ("system.last_error", "system.init", "device.count")
"""last_error must always work; the other two are called to prepare every test and have tests of their own."""


@isolated(environment=_injected, needs="inject")
@cases("qualified", [name for name in FUNCTIONS if name not in NOT_INJECTED])
@also("GEN-02")
def test_gen_12_failure_of_any_function_changes_nothing(bench: Bench, qualified: str) -> None:
    inputs = arguments(bench, qualified)
    watched = qualified != "device.memory_info" and bench.quirks.private_memory
    devices = range(bench.hal.device.count())
    before = [bench.memory_of(device) for device in devices] if watched else []
    bench.refuses(FAILURES, qualified, *inputs)
    if watched:
        after = [bench.memory_of(device) for device in devices]
        equal(after, before, f"free and total memory after {qualified} failed")
    outcome = bench.hal.call(qualified, *inputs)
    equal(outcome.status, "OK", f"the status of the same {qualified} once more")
    if qualified == "system.shutdown":
        return
    undo(bench, qualified, inputs, outcome.value)
    for device in devices:
        bench.hal.device.synchronize(device)


def _count_fails(quirks: Quirks) -> dict[str, str]:
    return _injected(quirks, "device.count")


@isolated(environment=_count_fails, needs="inject")
@also("HAL-DEV-01")
def test_gen_12_failing_count_recovers(bench: Bench) -> None:
    bench.refuses(FAILURES, "device.count")
    expect(bench.hal.device.count() >= 0, "device.count is negative after it failed")


def test_gen_12_out_of_memory_takes_nothing(bench: Bench) -> None:
    bench.requires_devices(1)
    free, total = bench.memory_of(0)
    for size in (total + 1, 2**63, 2**64 - 1, 2**64 - SIZE):
        bench.refuses("OUT_OF_MEMORY", "memory.allocate", 0, size)
    if bench.quirks.private_memory:
        free_after, total_after = bench.memory_of(0)
        equal(total_after, total, "total memory after failed allocations")
        # More may be free than before: a runtime that is out of memory gives back what it held itself.
        expect(free_after >= free, f"failed allocations took {free - free_after} bytes")
    pointer = bench.allocate(SIZE)
    bench.put(pointer, b"\x42" * SIZE)
    bench.holds(pointer, b"\x42" * SIZE, "memory of a device that refused an allocation")


def test_gen_12_refused_work_is_not_queued(bench: Bench) -> None:
    bench.requires_devices(1)
    stream = bench.stream()
    pointer = bench.allocate(SIZE)
    bench.put(pointer, b"\x10" * SIZE)
    source = bench.host(SIZE, b"\x20" * SIZE)
    bench.refuses("INVALID_ARGUMENT", "memory.fill_async", stream, pointer, 256, SIZE)
    bench.refuses("INVALID_ARGUMENT", "memory.copy_async", stream, pointer, source.address, SIZE, 4)
    bench.refuses("INVALID_ARGUMENT", "memory.copy_async", stream, pointer, None, SIZE, HOST_TO_DEVICE)
    bench.hal.stream.synchronize(stream)
    bench.holds(pointer, b"\x10" * SIZE, "memory after refused work")


# --- work that fails after the call ---------------------------------------------------------------------


def _fill_fails(quirks: Quirks, **case: object) -> dict[str, str]:
    return dict(quirks.fail_work(1)) if quirks.fail_work is not None else {}


def _failing_fill(bench: Bench, stream: int) -> int:
    """Queue a fill that fails and one that does not.

    Returns: the memory, of which the second fill takes the upper half.
    """
    bench.requires_async()
    pointer = bench.allocate(SIZE)
    bench.put(pointer, b"\x00" * SIZE)
    bench.hal.memory.fill_async(stream, pointer, 1, SIZE)
    bench.hal.memory.fill_async(stream, pointer + SIZE // 2, 2, SIZE // 2)
    return pointer


def _goes_on(bench: Bench, stream: int, pointer: int) -> None:
    equal(bench.hal.call("stream.query", stream).status, "OK", "stream.query after the failure was told")
    equal(bench.hal.call("stream.synchronize", stream).status, "OK", "stream.synchronize after that")
    equal(bench.hal.call("device.synchronize", 0).status, "OK", "device.synchronize after that")
    bench.holds(pointer, b"\x00" * (SIZE // 2) + b"\x02" * (SIZE // 2), "memory after one fill of two failed")


@isolated(environment=_fill_fails, needs="fail_work")
def test_str_05_failure_of_queued_work_is_told_once(bench: Bench) -> None:
    stream = bench.stream()
    pointer = _failing_fill(bench, stream)
    deadline = time.monotonic() + 10
    status = "NOT_READY"
    while status == "NOT_READY" and time.monotonic() < deadline:
        status = bench.hal.call("stream.query", stream).status
        time.sleep(0.001)
    one_of(status, FAILURES, "the status of stream.query after work failed")
    bench.check_detail(bench.detail(), status, "stream.query", "stream.query")
    _goes_on(bench, stream, pointer)


@isolated(environment=_fill_fails, needs="fail_work")
@cases("qualified", ["stream.synchronize", "device.synchronize"])
@also("HAL-DEV-06")
def test_str_06_failure_of_queued_work_is_told_once(bench: Bench, qualified: str) -> None:
    stream = bench.stream()
    pointer = _failing_fill(bench, stream)
    bench.refuses(FAILURES, qualified, 0 if qualified.startswith("device") else stream)
    _goes_on(bench, stream, pointer)


@isolated(environment=_fill_fails, needs="fail_work")
def test_str_06_failure_stays_with_its_stream(bench: Bench) -> None:
    stream, other, event = bench.stream(), bench.stream(), bench.event()
    pointer = _failing_fill(bench, stream)
    bench.hal.event.record(event, stream)
    bench.hal.event.synchronize(event)  # tells nothing of the failure; else the other fill might be the first
    target = bench.allocate(SIZE)
    bench.hal.memory.fill_async(other, target, 3, SIZE)
    equal(bench.hal.call("stream.synchronize", other).status, "OK", "another stream")
    bench.holds(target, b"\x03" * SIZE, "memory filled on another stream")
    bench.refuses(FAILURES, "stream.synchronize", stream)
    _goes_on(bench, stream, pointer)


@isolated(environment=_fill_fails, needs="fail_work")
@also("HAL-EVT-05")
def test_str_10_callback_runs_also_after_failed_work(bench: Bench) -> None:
    bench.requires("stream.host_callback")
    stream, event = bench.stream(), bench.event()
    _failing_fill(bench, stream)
    semaphore = Semaphore()
    bench.keep(semaphore)
    bench.hal.stream.host_callback(stream, SEM_POST, semaphore.address)
    bench.hal.event.record(event, stream)
    wait_for(semaphore)
    bench.hal.event.synchronize(event)
    bench.refuses(FAILURES, "stream.synchronize", stream)
