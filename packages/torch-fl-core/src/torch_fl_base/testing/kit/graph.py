"""HAL-GRF-01 to 06."""

from __future__ import annotations

import time

from torch_fl_base.testing.kit.bench import DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, Bench, constant
from torch_fl_base.testing.kit.checks import also, cases, equal, expect
from torch_fl_base.testing.kit.memory import pattern
from torch_fl_base.testing.kit.subjects import SIZE
from torch_fl_base.testing.kit.threads import together

MODES = {name: constant(f"CAPTURE_{name}") for name in ("GLOBAL", "THREAD_LOCAL", "RELAXED")}
RELAXED = MODES["RELAXED"]


def _captured(bench: Bench, stream: int, mode: int = RELAXED) -> int:
    graph = bench.hal.graph.end_capture(stream)
    expect(graph is not None, f"end_capture said OK and gave no graph (mode {mode})")
    bench.later(lambda: _destroy(bench, graph))
    return int(graph)


def _destroy(bench: Bench, graph: int) -> None:
    bench.hal.call("graph.destroy", graph)


@cases("mode", list(MODES), ids=str.lower)
def test_grf_01_captured_work_does_not_run(bench: Bench, mode: str) -> None:
    bench.requires("graph")
    stream, pointer = bench.stream(), bench.allocate(SIZE)
    bench.put(pointer, b"\x00" * SIZE)
    bench.hal.graph.begin_capture(stream, MODES[mode])
    bench.hal.memory.fill_async(stream, pointer, 1, SIZE)
    graph = _captured(bench, stream)
    bench.hal.stream.synchronize(stream)
    bench.holds(pointer, b"\x00" * SIZE, "memory after work was captured, not launched")
    bench.hal.graph.launch(graph, stream)
    bench.hal.stream.synchronize(stream)
    bench.holds(pointer, b"\x01" * SIZE, "memory after the graph was launched")


def test_grf_01_wrong_streams_and_modes_are_refused(bench: Bench) -> None:
    bench.requires("graph")
    bench.requires_devices(1)
    bench.refuses("INVALID_ARGUMENT", "graph.begin_capture", bench.default_stream(), RELAXED)
    stream = bench.stream()
    for mode in (-1, 3, 99):
        bench.refuses("INVALID_ARGUMENT", "graph.begin_capture", stream, mode)
    bench.hal.graph.begin_capture(stream, RELAXED)
    bench.refuses("INVALID_STATE", "graph.begin_capture", stream, RELAXED)
    equal(bench.hal.graph.is_capturing(stream), 1, "is_capturing after a refused begin_capture")
    _captured(bench, stream)


def test_grf_02_needs_a_capture(bench: Bench) -> None:
    bench.requires("graph")
    stream = bench.stream()
    bench.refuses(("INVALID_STATE", "CAPTURE"), "graph.end_capture", stream)


def test_grf_02_invalidated_capture_gives_no_graph(bench: Bench) -> None:
    """Waiting for a stream that is being captured can never end: the call is refused and the capture is
    lost."""
    bench.requires("graph")
    stream, pointer = bench.stream(), bench.allocate(SIZE)
    bench.put(pointer, b"\x00" * SIZE)
    bench.hal.graph.begin_capture(stream, MODES["GLOBAL"])
    bench.hal.memory.fill_async(stream, pointer, 1, SIZE)
    bench.refuses("CAPTURE", "stream.synchronize", stream)
    bench.refuses("CAPTURE", "graph.end_capture", stream)
    equal(bench.hal.graph.is_capturing(stream), 0, "is_capturing after a capture that was lost")
    bench.hal.memory.fill_async(stream, pointer, 2, SIZE)
    bench.hal.stream.synchronize(stream)
    bench.holds(pointer, b"\x02" * SIZE, "memory filled on a stream whose capture was lost")


def test_grf_02_empty_capture_gives_a_graph(bench: Bench) -> None:
    bench.requires("graph")
    stream = bench.stream()
    bench.hal.graph.begin_capture(stream, RELAXED)
    graph = _captured(bench, stream)
    bench.hal.graph.launch(graph, stream)
    bench.hal.stream.synchronize(stream)


def test_grf_03_tells_whether_a_capture_runs(bench: Bench) -> None:
    bench.requires("graph")
    stream, other = bench.stream(), bench.stream()
    equal(bench.hal.graph.is_capturing(stream), 0, "is_capturing before")
    equal(bench.hal.graph.is_capturing(bench.default_stream()), 0, "is_capturing of the default stream")
    bench.hal.graph.begin_capture(stream, RELAXED)
    equal(bench.hal.graph.is_capturing(stream), 1, "is_capturing during")
    equal(bench.hal.graph.is_capturing(other), 0, "is_capturing of another stream")
    _captured(bench, stream)
    equal(bench.hal.graph.is_capturing(stream), 0, "is_capturing after")


@also("GEN-06")
def test_grf_03_other_streams_work_during_a_capture(bench: Bench) -> None:
    bench.requires("graph")
    stream, other, pointer = bench.stream(), bench.stream(), bench.allocate(SIZE)
    bench.hal.graph.begin_capture(stream, RELAXED)
    bench.hal.memory.fill_async(other, pointer, 3, SIZE)
    bench.hal.stream.synchronize(other)
    bench.holds(pointer, b"\x03" * SIZE, "memory filled on another stream during a capture")
    _captured(bench, stream)


def test_grf_04_launches_run_the_whole_graph_in_order_each_time(bench: Bench) -> None:
    bench.requires("graph")
    stream = bench.stream()
    source, middle, target = (bench.allocate(SIZE) for _ in range(3))
    bench.put(target, b"\x00" * SIZE)
    bench.hal.graph.begin_capture(stream, RELAXED)
    bench.hal.memory.copy_async(stream, middle, source, SIZE, DEVICE_TO_DEVICE)
    bench.hal.memory.fill_async(stream, middle, 0xFF, 16)
    bench.hal.memory.copy_async(stream, target, middle, SIZE, DEVICE_TO_DEVICE)
    graph = _captured(bench, stream)
    for turn in range(4):
        bench.put(source, pattern(SIZE, turn))
        launch_on = stream if turn % 2 else bench.stream()
        bench.hal.graph.launch(graph, launch_on)
        bench.hal.stream.synchronize(launch_on)
        bench.holds(target, b"\xff" * 16 + pattern(SIZE, turn)[16:], f"the result of launch {turn}")


def test_grf_04_is_queued_behind_earlier_work(bench: Bench) -> None:
    bench.requires("graph")
    stream, capturing, pointer = bench.stream(), bench.stream(), bench.allocate(SIZE)
    bench.put(pointer, b"\x00" * SIZE)
    bench.hal.graph.begin_capture(capturing, RELAXED)
    bench.hal.memory.fill_async(capturing, pointer, 4, SIZE)
    graph = _captured(bench, capturing)
    gate = bench.gate(stream)
    bench.hal.graph.launch(graph, stream)
    bench.still_shut(gate, "graph.launch")
    time.sleep(0.05)
    bench.holds(pointer, b"\x00" * SIZE, "memory before a held launch")
    bench.refuses("NOT_READY", "stream.query", stream)
    gate.open()
    bench.hal.stream.synchronize(stream)
    bench.holds(pointer, b"\x04" * SIZE, "memory after a held launch")


def test_grf_04_host_memory_is_read_at_the_launch(bench: Bench) -> None:
    bench.requires("graph")
    bench.requires("host.allocate")
    import ctypes

    stream, pointer = bench.stream(), bench.allocate(SIZE)
    source, target = bench.pinned(SIZE), bench.pinned(SIZE)
    bench.hal.graph.begin_capture(stream, RELAXED)
    bench.hal.memory.copy_async(stream, pointer, source, SIZE, HOST_TO_DEVICE)
    bench.hal.memory.copy_async(stream, target, pointer, SIZE, DEVICE_TO_HOST)
    graph = _captured(bench, stream)
    for turn in range(3):
        ctypes.memmove(source, pattern(SIZE, turn), SIZE)
        bench.hal.graph.launch(graph, stream)
        bench.hal.stream.synchronize(stream)
        equal(ctypes.string_at(target, SIZE), pattern(SIZE, turn), f"host memory after launch {turn}")


def test_grf_05_launches_in_flight_finish(bench: Bench) -> None:
    bench.requires("graph")
    stream, capturing, pointer = bench.stream(), bench.stream(), bench.allocate(SIZE)
    bench.put(pointer, b"\x00" * SIZE)
    bench.hal.graph.begin_capture(capturing, RELAXED)
    bench.hal.memory.fill_async(capturing, pointer, 6, SIZE)
    graph = bench.hal.graph.end_capture(capturing)
    gate = bench.gate(stream)
    bench.hal.graph.launch(graph, stream)
    bench.hal.graph.destroy(graph)
    bench.still_shut(gate, "graph.destroy")
    gate.open()
    bench.hal.stream.synchronize(stream)
    bench.holds(pointer, b"\x06" * SIZE, "memory after the launch of a graph destroyed meanwhile")


def test_grf_05_graphs_come_and_go(bench: Bench) -> None:
    bench.requires("graph")
    stream, pointer = bench.stream(), bench.allocate(SIZE)
    free = bench.memory_of(0)[0]
    for value in range(50):
        bench.hal.graph.begin_capture(stream, RELAXED)
        bench.hal.memory.fill_async(stream, pointer, value, SIZE)
        graph = bench.hal.graph.end_capture(stream)
        bench.hal.graph.launch(graph, stream)
        bench.hal.stream.synchronize(stream)
        bench.hal.graph.destroy(graph)
    if bench.quirks.private_memory:
        equal(bench.memory_of(0)[0], free, "free memory after 50 graphs")


def test_grf_06_exchange_gives_the_mode_before(bench: Bench) -> None:
    bench.requires("graph.exchange_thread_mode")

    def check() -> None:
        first = bench.hal.graph.exchange_thread_mode(MODES["RELAXED"])
        expect(first in MODES.values(), f"the mode of a new thread is {first}")
        before = MODES["RELAXED"]
        for name in ("GLOBAL", "THREAD_LOCAL", "RELAXED", "THREAD_LOCAL", "GLOBAL"):
            equal(bench.hal.graph.exchange_thread_mode(MODES[name]), before, f"the mode before {name}")
            before = MODES[name]
        bench.refuses("INVALID_ARGUMENT", "graph.exchange_thread_mode", 3)
        bench.hal.graph.exchange_thread_mode(first)

    together([check] * 3)


def test_grf_06_allocation_is_allowed_in_relaxed_mode(bench: Bench) -> None:
    bench.requires("graph.exchange_thread_mode")
    stream = bench.stream()
    bench.hal.graph.begin_capture(stream, MODES["GLOBAL"])
    before = bench.hal.graph.exchange_thread_mode(RELAXED)
    outcome = bench.hal.call("memory.allocate", 0, SIZE)
    bench.hal.graph.exchange_thread_mode(before)
    graph = bench.hal.call("graph.end_capture", stream)
    if outcome.status == "OK":
        bench.hal.memory.release(0, outcome.value)
    equal(outcome.status, "OK", "the status of memory.allocate in relaxed mode during a capture")
    equal(graph.status, "OK", "the status of end_capture after that allocation")
    bench.hal.graph.destroy(graph.value)
