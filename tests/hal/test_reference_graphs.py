"""Graphs and traces of the reference HAL: captures over several streams, what ends them, what is left."""

from __future__ import annotations

import ctypes
import threading

import pytest

from torch_fl_base._hal import Hal
from torch_fl_base._hal_types import new_structure

SIZE = 4096
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2


def _status(hal: Hal, function: str, *inputs: object) -> str:
    return hal.call(function, *inputs).status


@pytest.mark.reference
def test_a_capture_follows_events_to_other_streams(hal: Hal) -> None:
    first, second = hal.stream.create(0, None), hal.stream.create(0, None)
    source, target = hal.memory.allocate(0, SIZE), hal.memory.allocate(0, SIZE)
    fork, join = hal.event.create(0, 0), hal.event.create(0, 0)
    hal.graph.begin_capture(first, 0)
    hal.memory.fill_async(first, source, 5, SIZE)
    hal.event.record(fork, first)
    hal.stream.wait_event(second, fork)
    assert hal.graph.is_capturing(second) == 1
    hal.memory.copy_async(second, target, source, SIZE, 3)
    hal.event.record(join, second)
    assert _status(hal, "event.query", hal.event.create(0, 0)) == "OK"  # other events are not touched
    hal.stream.wait_event(first, join)
    hal.memory.fill_async(first, source, 6, SIZE)
    graph = hal.graph.end_capture(first)
    assert hal.graph.is_capturing(second) == 0
    assert _status(hal, "event.query", join) == "CAPTURE"  # it stands for a point of the capture
    hal.event.record(join, first)
    assert _status(hal, "event.synchronize", join) == "OK"
    for _ in range(3):
        hal.memory.fill(0, target, 0, SIZE)
        hal.graph.launch(graph, second)
        hal.stream.synchronize(second)
        assert ctypes.string_at(source, SIZE) == b"\x06" * SIZE
        assert ctypes.string_at(target, SIZE) == b"\x05" * SIZE


@pytest.mark.reference
def test_a_branch_that_was_not_joined_gives_no_graph(hal: Hal) -> None:
    first, second = hal.stream.create(0, None), hal.stream.create(0, None)
    memory, fork = hal.memory.allocate(0, SIZE), hal.event.create(0, 0)
    hal.graph.begin_capture(first, 0)
    hal.event.record(fork, first)
    hal.stream.wait_event(second, fork)
    hal.memory.fill_async(second, memory, 5, SIZE)
    assert _status(hal, "graph.end_capture", first) == "CAPTURE"
    assert "did not wait for" in hal.last_error().message
    for stream in (first, second):
        assert hal.graph.is_capturing(stream) == 0
        hal.memory.fill_async(stream, memory, 1, SIZE)
        hal.stream.synchronize(stream)


@pytest.mark.reference
def test_unsafe_calls_end_a_capture_by_its_mode(hal: Hal) -> None:
    stream, memory = hal.stream.create(0, None), hal.memory.allocate(0, SIZE)
    for mode, status in ((0, "CAPTURE"), (1, "CAPTURE"), (2, "OK")):
        hal.graph.begin_capture(stream, mode)
        assert _status(hal, "memory.fill", 0, memory, 1, SIZE) == status
        assert _status(hal, "graph.end_capture", stream) == status
    hal.graph.begin_capture(stream, 0)
    outside = hal.event.create(0, 0)
    hal.event.record(outside, hal.stream.default_stream(0))
    assert _status(hal, "stream.wait_event", stream, outside) == "CAPTURE"
    assert _status(hal, "graph.end_capture", stream) == "CAPTURE"


@pytest.mark.reference
def test_a_graph_over_released_memory_is_refused_whole(hal: Hal) -> None:
    stream = hal.stream.create(0, None)
    kept, gone = hal.memory.allocate(0, SIZE), hal.memory.allocate(0, SIZE)
    hal.graph.begin_capture(stream, 2)
    hal.memory.fill_async(stream, kept, 1, SIZE)
    hal.memory.fill_async(stream, gone, 1, SIZE)
    graph = hal.graph.end_capture(stream)
    hal.memory.fill(0, kept, 9, SIZE)
    hal.memory.release(0, gone)
    assert _status(hal, "graph.launch", graph, stream) == "INVALID_HANDLE"
    hal.stream.synchronize(stream)
    assert ctypes.string_at(kept, SIZE) == b"\x09" * SIZE
    assert _status(hal, "memory.release", 0, kept) == "OK"  # nothing of the failed launch holds it


@pytest.mark.reference
def test_other_threads_end_a_global_capture_only(hal: Hal) -> None:
    stream, memory = hal.stream.create(0, None), hal.memory.allocate(0, SIZE)
    seen: list[str] = []

    def fill(mode: int) -> None:
        hal.graph.exchange_thread_mode(mode)
        seen.append(_status(hal, "memory.fill", 0, memory, 1, SIZE))

    for capture, thread, status in (
        (GLOBAL, GLOBAL, "CAPTURE"),
        (GLOBAL, THREAD_LOCAL, "OK"),
        (GLOBAL, RELAXED, "OK"),
        (THREAD_LOCAL, GLOBAL, "OK"),
    ):
        hal.graph.begin_capture(stream, capture)
        other = threading.Thread(target=fill, args=(thread,))
        other.start()
        other.join()
        assert seen.pop() == status, (capture, thread)
        assert _status(hal, "graph.end_capture", stream) == status, (capture, thread)


@pytest.mark.reference
def test_callbacks_are_captured(hal: Hal) -> None:
    stream = hal.stream.create(0, None)
    called: list[int] = []
    callback = CALLBACK(lambda _: called.append(1))
    hal.graph.begin_capture(stream, GLOBAL)
    hal.stream.host_callback(stream, callback, None)
    graph = hal.graph.end_capture(stream)
    hal.stream.synchronize(stream)
    assert called == []
    for _ in range(3):
        hal.graph.launch(graph, stream)
    hal.stream.synchronize(stream)
    assert called == [1, 1, 1]


@pytest.mark.reference
def test_destroying_a_stream_of_a_capture_ends_it(hal: Hal) -> None:
    first, second = hal.stream.create(0, None), hal.stream.create(0, None)
    memory, fork = hal.memory.allocate(0, SIZE), hal.event.create(0, 0)
    hal.graph.begin_capture(first, GLOBAL)
    hal.event.record(fork, first)
    hal.stream.wait_event(second, fork)
    hal.stream.destroy(second)
    assert _status(hal, "graph.end_capture", first) == "CAPTURE"
    assert "was destroyed" in hal.last_error().message
    hal.graph.begin_capture(first, GLOBAL)
    hal.event.record(fork, first)
    second = hal.stream.create(0, None)
    hal.stream.wait_event(second, fork)
    hal.stream.destroy(first)
    assert hal.graph.is_capturing(second) == 0
    assert _status(hal, "stream.wait_event", second, fork) == "CAPTURE"  # of a capture that is no more
    hal.memory.fill(0, memory, 1, SIZE)  # nothing is unsafe any more
    hal.memory.fill_async(second, memory, 2, SIZE)
    hal.stream.synchronize(second)


@pytest.mark.reference
def test_a_shutdown_ends_captures_and_graphs(hal: Hal) -> None:
    stream, memory = hal.stream.create(0, None), hal.memory.allocate(0, SIZE)
    hal.graph.begin_capture(stream, RELAXED)
    hal.memory.fill_async(stream, memory, 1, SIZE)
    graph = hal.graph.end_capture(stream)
    hal.graph.begin_capture(stream, GLOBAL)
    hal.memory.fill_async(stream, memory, 1, SIZE)
    hal.system.shutdown()
    assert _status(hal, "graph.destroy", graph) == "OK"
    hal.system.init()
    assert _status(hal, "graph.destroy", graph) == "INVALID_HANDLE"
    hal.memory.release(0, hal.memory.allocate(0, SIZE))  # no capture is left that forbids it


@pytest.mark.reference
def test_a_trace_names_what_streams_did(hal: Hal) -> None:
    stream, other = hal.stream.create(0, None), hal.stream.create(1, None)
    here, there = hal.memory.allocate(0, SIZE), hal.memory.allocate(1, SIZE)
    far = hal.memory.allocate(0, SIZE)
    host = ctypes.create_string_buffer(SIZE)
    seen: list[tuple[str, int, int, int]] = []
    activity = type(new_structure("flagos_hal_activity"))

    def note(_: object, found: ctypes._Pointer[ctypes.Structure]) -> None:
        entry = found[0]
        seen.append((entry.name.decode(), entry.device, entry.correlation, entry.bytes))

    sink = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(activity))(note)
    hal.trace.start(sink, None)
    assert hal.graph.is_capturing(stream) == 0
    hal.trace.exchange_correlation(7)
    hal.memory.copy_async(stream, here, host, SIZE, 1)
    hal.memory.copy_async(stream, host, here, 100, 2)
    assert hal.trace.exchange_correlation(0) == 7
    hal.memory.copy_async(stream, far, here, SIZE, 3)
    hal.memory.fill_async(stream, here, 1, 10)
    hal.stream.synchronize(stream)
    hal.peer.copy_async(other, 1, there, 0, here, SIZE)
    hal.stream.synchronize(other)
    hal.memory.copy(0, ctypes.create_string_buffer(SIZE), host, 5, 0)
    hal.trace.stop()
    hal.memory.fill(0, here, 1, SIZE)
    assert seen == [
        ("copy host to device", 0, 7, SIZE),
        ("copy device to host", 0, 7, 100),
        ("copy device to device", 0, 0, SIZE),
        ("fill", 0, 0, 10),
        ("copy peer to peer", 1, 0, SIZE),
        ("copy host to host", 0, 0, 5),
    ]
