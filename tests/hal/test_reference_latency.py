"""Delays that FLAGOS_REFERENCE_LATENCY asks for: those of work pass on the stream's thread."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import pytest

from torch_fl_base._hal import Hal
from torch_fl_base._hal_types import new_structure

SIZE = 4096
TO_DEVICE, TO_HOST = 1, 2
TIMING = 1


def _seconds(call: Callable[[], object]) -> float:
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


@pytest.mark.reference(LATENCY="copy:300000")
def test_a_late_copy_does_not_hold_up_the_caller(hal: Hal) -> None:
    stream = hal.stream.create(0, None)
    memory = hal.memory.allocate(0, SIZE)
    source = ctypes.create_string_buffer(bytes(range(256)) * 16, SIZE)
    begin = time.monotonic()
    assert _seconds(lambda: hal.memory.copy_async(stream, memory, source, SIZE, TO_DEVICE)) < 0.25
    assert hal.call("stream.query", stream).status == "NOT_READY"
    hal.stream.synchronize(stream)
    assert time.monotonic() - begin >= 0.3
    assert hal.call("stream.query", stream).status == "OK"
    assert ctypes.string_at(memory, SIZE) == source.raw


@pytest.mark.reference(LATENCY="copy:40000")
def test_a_synchronous_copy_is_late_in_the_caller(hal: Hal) -> None:
    memory = hal.memory.allocate(0, SIZE)
    source = ctypes.create_string_buffer(SIZE)
    assert _seconds(lambda: hal.memory.copy(0, memory, source, SIZE, TO_DEVICE)) >= 0.04


@pytest.mark.reference(LATENCY="fill:300000")
def test_streams_overlap(hal: Hal) -> None:
    streams = [hal.stream.create(device, None) for device in (0, 0, 1, 1)]
    memory = [hal.memory.allocate(device, SIZE) for device in (0, 0, 1, 1)]
    begin = time.monotonic()
    for stream, pointer in zip(streams, memory, strict=True):
        hal.memory.fill_async(stream, pointer, 1, SIZE)
    for device in (0, 1):
        hal.device.synchronize(device)
    assert 0.3 <= time.monotonic() - begin < 1.0  # one after the other would take 1.2


@pytest.mark.reference(LATENCY="fill:20000")
def test_work_of_one_stream_is_in_order(hal: Hal) -> None:
    stream = hal.stream.create(0, None)
    memory = hal.memory.allocate(0, SIZE)
    for value in (1, 2, 3):
        hal.memory.fill_async(stream, memory, value, SIZE)
    assert _seconds(lambda: hal.stream.synchronize(stream)) >= 0.05
    assert ctypes.string_at(memory, SIZE) == b"\x03" * SIZE


@pytest.mark.reference(LATENCY="event:300000")
def test_a_late_event_is_pending_on_an_idle_stream(hal: Hal) -> None:
    stream = hal.stream.create(0, None)
    event = hal.event.create(0, 0)
    assert hal.call("event.query", event).status == "OK"
    hal.event.record(event, stream)
    assert hal.call("event.query", event).status == "NOT_READY"
    hal.event.synchronize(event)
    assert hal.call("event.query", event).status == "OK"


@pytest.mark.reference(LATENCY="fill:30000")
def test_elapsed_measures_the_work_between_two_events(hal: Hal) -> None:
    stream = hal.stream.create(0, None)
    memory = hal.memory.allocate(0, SIZE)
    start, middle, end = (hal.event.create(0, TIMING) for _ in range(3))
    hal.event.record(start, stream)
    hal.memory.fill_async(stream, memory, 1, SIZE)
    hal.event.record(middle, stream)
    assert hal.call("event.elapsed", start, middle).status == "NOT_READY"
    hal.memory.fill_async(stream, memory, 2, SIZE)
    hal.event.record(end, stream)
    hal.event.synchronize(end)
    assert 30 <= hal.event.elapsed(start, middle) < 1000
    whole = hal.event.elapsed(start, end)
    assert whole == pytest.approx(hal.event.elapsed(start, middle) + hal.event.elapsed(middle, end))
    assert hal.event.elapsed(end, start) == pytest.approx(-whole)


@pytest.mark.reference(LATENCY="memory.copy_async:300000")
def test_a_function_of_the_queue_is_late_on_the_stream(hal: Hal) -> None:
    stream, other = hal.stream.create(0, None), hal.stream.create(0, None)
    memory = hal.memory.allocate(0, SIZE)
    target = ctypes.create_string_buffer(SIZE)
    hal.memory.fill(0, memory, 5, SIZE)
    assert _seconds(lambda: hal.memory.copy_async(stream, target, memory, SIZE, TO_HOST)) < 0.25
    hal.memory.fill_async(other, hal.memory.allocate(0, SIZE), 1, SIZE)  # not that function: not late
    assert _seconds(lambda: hal.stream.synchronize(other)) < 0.25
    assert hal.call("stream.query", stream).status == "NOT_READY"
    hal.stream.synchronize(stream)
    assert target.raw == b"\x05" * SIZE


@pytest.mark.reference(LATENCY="memory.allocate:30000,device.count:20000")
def test_other_functions_are_late_in_the_caller(hal: Hal) -> None:
    assert _seconds(lambda: hal.memory.allocate(0, SIZE)) >= 0.03
    assert _seconds(hal.device.count) >= 0.02


@pytest.mark.reference(LATENCY="fill:60000")
def test_a_wait_across_devices_holds_work_back(hal: Hal) -> None:
    first, second = hal.stream.create(0, None), hal.stream.create(1, None)
    here, there = hal.memory.allocate(0, SIZE), hal.memory.allocate(1, SIZE)
    event = hal.event.create(0, 0)
    hal.memory.fill_async(first, here, 9, SIZE)
    hal.event.record(event, first)
    hal.stream.wait_event(second, event)
    hal.event.destroy(event)  # the wait goes on
    hal.peer.copy_async(second, 1, there, 0, here, SIZE)
    hal.stream.synchronize(second)
    assert ctypes.string_at(there, SIZE) == b"\x09" * SIZE


@pytest.mark.reference(LATENCY="stream.host_callback:300000")
def test_a_late_callback_delivers_a_late_activity(hal: Hal) -> None:
    stream = hal.stream.create(0, None)
    seen: list[tuple[int, int, int]] = []
    activity = type(new_structure("flagos_hal_activity"))
    sink_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(activity))
    callback_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    sink = sink_type(lambda _, found: seen.append((found[0].kind, found[0].start_ns, found[0].end_ns)))
    callback = callback_type(lambda _: time.sleep(0.02))
    before = hal.trace.now()
    hal.trace.start(sink, None)
    hal.stream.host_callback(stream, callback, None)
    assert hal.call("stream.query", stream).status == "NOT_READY"
    hal.stream.synchronize(stream)
    hal.trace.stop()
    ((kind, start, end),) = seen
    assert kind == 3
    assert start - before >= 300e6
    assert end - start >= 20e6
    assert abs(end / 1e9 - time.time()) < 10
