"""Streams of the reference HAL: threads, priorities, handles; fork, shutdown and exit."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

import pytest

from torch_fl_base._hal import Hal, load
from torch_fl_base._hal_types import new_structure

SIZE = 4096
TIMING = 1
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _status(hal: Hal, function: str, *inputs: object) -> str:
    return hal.call(function, *inputs).status


def _threads() -> list[str]:
    """Return the names of the library's threads."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except OSError:
            continue  # it ended meanwhile
    return [name for name in names if name.startswith("flagos-ref")]


def _stream(hal: Hal, device: int, priority: int) -> int:
    options = new_structure("flagos_hal_stream_options", priority=priority)
    return int(hal.stream.create(device, options))


@pytest.mark.reference(DEVICES="8")
def test_a_thread_is_started_by_the_first_work_only(hal: Hal) -> None:
    streams = [hal.stream.create(device, None) for device in range(8)]
    event = hal.event.create(0, TIMING)
    hal.event.record(event, streams[0])
    hal.event.synchronize(event)
    hal.stream.wait_event(streams[0], event)
    for stream in streams:
        hal.stream.synchronize(stream)
    hal.device.synchronize(0)
    assert _threads() == []
    memory = hal.memory.allocate(3, SIZE)
    hal.memory.fill_async(streams[3], memory, 1, SIZE)
    hal.stream.synchronize(streams[3])
    assert _threads() == ["flagos-ref-3"]
    hal.stream.destroy(streams[3])
    assert _threads() == []
    hal.memory.fill_async(hal.stream.default_stream(3), memory, 1, SIZE)
    hal.system.shutdown()
    assert _threads() == []


@pytest.mark.reference
def test_the_limit_of_streams_is_told_and_kept(hal: Hal) -> None:
    limit = hal.system.capability(4)
    streams = [hal.stream.create(0, None) for _ in range(limit)]
    assert _status(hal, "stream.create", 0, None) == "OUT_OF_MEMORY"
    assert _status(hal, "stream.create", 1, None) == "OK"
    hal.stream.destroy(streams[7])
    assert _status(hal, "stream.create", 0, None) == "OK"


@pytest.mark.reference
def test_a_destroyed_handle_never_comes_back(hal: Hal) -> None:
    old_streams, old_events = set(), set()
    for _ in range(200):
        stream, event = hal.stream.create(0, None), hal.event.create(0, 0)
        assert stream not in old_streams
        assert event not in old_events
        old_streams.add(stream)
        old_events.add(event)
        hal.stream.destroy(stream)
        hal.event.destroy(event)
    for handle in old_streams:
        assert _status(hal, "stream.query", handle) == "INVALID_HANDLE"
        assert _status(hal, "stream.destroy", handle) == "INVALID_HANDLE"
    for handle in old_events | old_streams | {1, 0xDEADBEEF, (1 << 64) - 1, id(hal)}:
        assert _status(hal, "event.query", handle) == "INVALID_HANDLE"


@pytest.mark.reference(LATENCY="fill:30000")
def test_urgent_streams_go_first(hal: Hal) -> None:
    least, greatest = hal.stream.priority_range(0)
    assert (least, greatest) == (0, -3)
    low, high = _stream(hal, 0, 5), _stream(hal, 0, -99)  # both are clamped
    memory = [hal.memory.allocate(0, SIZE) for _ in range(2)]
    low_done, high_done = [hal.event.create(0, TIMING) for _ in range(8)], hal.event.create(0, TIMING)
    for event in low_done:
        hal.memory.fill_async(low, memory[0], 1, SIZE)
        hal.event.record(event, low)
    for _ in range(4):
        hal.memory.fill_async(high, memory[1], 1, SIZE)
    hal.event.record(high_done, high)
    hal.device.synchronize(0)
    # The low stream may finish what it had begun, and goes on when the high one is done.
    before = [hal.event.elapsed(event, high_done) > 0 for event in low_done]
    assert sum(before) <= 3, before
    assert before[-1] is False


@pytest.mark.reference(LATENCY="fill:200000")
def test_streams_of_one_priority_do_not_wait_for_each_other(hal: Hal) -> None:
    streams = [_stream(hal, 0, -1) for _ in range(4)]
    begin = time.monotonic()
    for stream in streams:
        hal.memory.fill_async(stream, hal.memory.allocate(0, SIZE), 1, SIZE)
    hal.device.synchronize(0)
    assert time.monotonic() - begin < 0.6  # one after the other would take 0.8


@pytest.mark.reference
def test_an_urgent_callback_may_wait_for_a_less_urgent_stream(hal: Hal) -> None:
    low, high = _stream(hal, 0, 0), _stream(hal, 0, -3)
    memory = hal.memory.allocate(0, SIZE)
    low_ran: list[int] = []

    def wait_for_low(_: object) -> None:
        end = time.monotonic() + 20
        while not low_ran and time.monotonic() < end:
            time.sleep(0.001)

    wait, tell = CALLBACK(wait_for_low), CALLBACK(lambda _: low_ran.append(1))
    hal.memory.fill_async(high, memory, 1, SIZE)
    hal.stream.host_callback(high, wait, None)
    hal.memory.fill_async(high, memory, 2, SIZE)
    hal.memory.fill_async(low, hal.memory.allocate(0, SIZE), 1, SIZE)
    hal.stream.host_callback(low, tell, None)
    begin = time.monotonic()
    hal.device.synchronize(0)
    assert time.monotonic() - begin < 10


@pytest.mark.reference
def test_a_callback_that_waits_for_the_device_is_refused(hal: Hal) -> None:
    stream = hal.stream.create(0, None)
    seen: list[str] = []

    def wait(_: object) -> None:
        seen.extend((_status(hal, "stream.synchronize", stream), _status(hal, "device.synchronize", 0)))

    callback = CALLBACK(wait)
    hal.stream.host_callback(stream, callback, None)
    hal.stream.synchronize(stream)
    assert seen == ["INVALID_STATE", "INVALID_STATE"]


@pytest.mark.reference(LATENCY="fill:50000")
def test_a_fork_with_work_in_flight_leaves_both_processes_sane(hal: Hal) -> None:
    stream, event = hal.stream.create(0, None), hal.event.create(0, 0)
    memory = hal.memory.allocate(0, SIZE)
    hal.memory.fill_async(stream, memory, 6, SIZE)
    hal.event.record(event, stream)
    child = os.fork()
    if child == 0:
        answers = [
            _status(hal, "stream.query", stream),
            _status(hal, "stream.synchronize", stream),
            _status(hal, "event.synchronize", event),
            _status(hal, "device.get_current"),
            _status(hal, "system.init"),
            _status(hal, "memory.release", 0, memory),
            _status(hal, "stream.destroy", stream),
            _status(hal, "event.destroy", event),
        ]
        sys.exit(0 if answers == ["FORKED"] * 5 + ["OK"] * 3 else 9)  # by way of the interpreter's exit
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    hal.stream.synchronize(stream)
    assert ctypes.string_at(memory, SIZE) == b"\x06" * SIZE


@pytest.mark.reference(init=False)
def test_a_fork_before_init_may_use_the_library(hal: Hal) -> None:
    child = os.fork()
    if child == 0:
        hal.system.init()
        stream, memory = hal.stream.create(0, None), hal.memory.allocate(0, SIZE)
        hal.memory.fill_async(stream, memory, 1, SIZE)
        hal.stream.synchronize(stream)
        hal.system.shutdown()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    hal.system.init()


@pytest.mark.reference(LATENCY="fill:30000")
def test_the_process_may_end_with_work_in_flight(hal: Hal) -> None:
    stream, memory = hal.stream.create(0, None), hal.memory.allocate(0, SIZE)
    for value in range(10):
        hal.memory.fill_async(stream, memory, value, SIZE)


@pytest.mark.reference(LATENCY="fill:20000")
def test_shutdown_waits_for_work_and_init_starts_anew(hal: Hal) -> None:
    for _ in range(3):
        stream, memory = hal.stream.create(1, None), hal.memory.allocate(1, SIZE)
        pinned = hal.host.allocate(SIZE)
        called: list[int] = []
        callback = CALLBACK(lambda _, called=called: called.append(1))
        hal.memory.fill_async(stream, memory, 1, SIZE)
        hal.memory.copy_async(stream, pinned, memory, SIZE, 2)
        hal.stream.host_callback(stream, callback, None)
        hal.system.shutdown()
        assert called == [1]
        assert _status(hal, "stream.query", stream) == "NOT_INITIALIZED"
        assert _status(hal, "memory.release", 1, memory) == "OK"
        hal.system.init()
        assert _status(hal, "stream.query", stream) == "INVALID_HANDLE"
        assert _status(hal, "memory.release", 1, memory) == "INVALID_HANDLE"
        assert hal.memory.pointer_info(pinned).kind == 0
        free, total = hal.device.memory_info(1)
        assert free == total


@pytest.mark.reference
def test_a_second_instance_is_independent(hal: Hal) -> None:
    second = load("second", hal.path, private_copy=True)
    assert _status(second, "device.count") == "NOT_INITIALIZED"
    os.environ["FLAGOS_REFERENCE_DEVICES"] = "1"
    second.system.init()
    assert (hal.device.count(), second.device.count()) == (2, 1)
    hal.device.set_current(1)
    assert second.device.get_current() == 0
    stream, memory = hal.stream.create(0, None), hal.memory.allocate(0, SIZE)
    assert _status(second, "stream.query", stream) == "INVALID_HANDLE"
    assert second.memory.pointer_info(memory).kind == 0
    second.system.shutdown()
    assert _status(hal, "stream.query", stream) == "OK"
    assert second.last_error().function == "stream.query"
    assert hal.last_error().status == "OK"
