"""HAL-TRC-01 to 04."""

from __future__ import annotations

import ctypes
import threading
import time
from dataclasses import dataclass
from typing import Any

from torch_fl_base._hal_header import header
from torch_fl_base._hal_types import ctype, structure
from torch_fl_base.testing.kit.bench import DEVICE_TO_DEVICE, Bench, constant
from torch_fl_base.testing.kit.checks import also, equal, expect
from torch_fl_base.testing.kit.subjects import SIZE
from torch_fl_base.testing.kit.threads import JOIN_LIMIT_S, together

COPY, FILL = constant("ACTIVITY_COPY"), constant("ACTIVITY_FILL")


@dataclass(frozen=True)
class Activity:
    """A copy of a flagos_hal_activity, with its context."""

    context: int | None
    kind: int
    device: int
    stream: int
    correlation: int
    start_ns: int
    end_ns: int
    bytes: int
    name: str
    struct_size: int


class Recorder:
    """A sink that keeps what it is told."""

    def __init__(self) -> None:
        self.activities: list[Activity] = []
        kind = ctype(header().function("trace.start").parameters[0].type)
        activity_kind = structure("flagos_hal_activity")

        def sink(context: int | None, address: Any) -> None:
            seen: Any = ctypes.cast(address, ctypes.POINTER(activity_kind)).contents
            name = (seen.name or b"?").decode()
            values = (
                seen.kind,
                seen.device,
                seen.stream,
                seen.correlation,
                seen.start_ns,
                seen.end_ns,
                seen.bytes,
            )
            self.activities.append(Activity(context, *values, name, seen.struct_size))

        self.function = kind(sink)

    def of_kind(self, kind: int) -> list[Activity]:
        """Return what was told of one kind."""
        return [activity for activity in self.activities if activity.kind == kind]


def _recording(bench: Bench, context: int | None = None) -> Recorder:
    bench.requires("trace")
    recorder = Recorder()
    bench.keep(recorder)
    bench.hal.trace.start(recorder.function, context)
    bench.later(lambda: _stop(bench))
    return recorder


def _stop(bench: Bench) -> None:
    bench.hal.call("trace.stop")


def test_trc_01_tells_finished_work(bench: Bench) -> None:
    bench.requires("trace")
    bench.requires_devices(1)
    device = bench.last_device
    stream = bench.stream(device)
    first, second = bench.allocate(SIZE, device), bench.allocate(SIZE, device)
    before = bench.hal.trace.now()
    recorder = _recording(bench, 0x1234)
    bench.hal.memory.fill_async(stream, first, 1, SIZE)
    bench.hal.memory.copy_async(stream, second, first, SIZE - 96, DEVICE_TO_DEVICE)
    bench.hal.stream.synchronize(stream)
    bench.hal.trace.stop()
    after = bench.hal.trace.now()
    fills, copies = recorder.of_kind(FILL), recorder.of_kind(COPY)
    equal([activity.bytes for activity in fills], [SIZE], "the bytes of the fills told")
    equal([activity.bytes for activity in copies], [SIZE - 96], "the bytes of the copies told")
    for activity in (*fills, *copies):
        equal(activity.device, device, "the device of an activity")
        equal(activity.context, 0x1234, "the context given to the sink")
        expect(activity.name not in ("", "?"), "an activity has no name")
        expect(before <= activity.start_ns <= activity.end_ns <= after, f"times out of order: {activity}")
        expect(activity.struct_size > 0, "an activity has no struct_size")
    equal(fills[0].stream, copies[0].stream, "the stream of two activities of one stream")
    expect(fills[0].end_ns <= copies[0].start_ns, "the copy started before the fill in front of it ended")


def test_trc_01_running_trace_is_in_no_state_for_it(bench: Bench) -> None:
    recorder = _recording(bench)
    bench.refuses("INVALID_STATE", "trace.start", recorder.function, None)
    bench.hal.trace.stop()


def test_trc_01_null_sink_is_an_invalid_argument(bench: Bench) -> None:
    bench.requires("trace.start")
    kind = ctype(header().function("trace.start").parameters[0].type)
    bench.refuses("INVALID_ARGUMENT", "trace.start", kind(0), None)


def test_trc_02_nothing_is_told_after_stop(bench: Bench) -> None:
    recorder = _recording(bench)
    bench.requires_devices(1)
    stream, pointer = bench.stream(), bench.allocate(SIZE)
    bench.hal.memory.fill_async(stream, pointer, 1, SIZE)
    bench.hal.stream.synchronize(stream)
    bench.hal.trace.stop()
    told = len(recorder.activities)
    bench.hal.memory.fill_async(stream, pointer, 2, SIZE)
    bench.hal.stream.synchronize(stream)
    time.sleep(0.02)
    equal(len(recorder.activities), told, "the number of activities after stop")
    equal(bench.hal.call("trace.stop").status, "OK", "the status of stop when nothing runs")


def test_trc_02_may_be_started_again(bench: Bench) -> None:
    bench.requires("trace")
    bench.requires_devices(1)
    stream, pointer = bench.stream(), bench.allocate(SIZE)
    for turn in range(3):
        recorder = _recording(bench)
        for _ in range(turn + 1):
            bench.hal.memory.fill_async(stream, pointer, turn, SIZE)
        bench.hal.stream.synchronize(stream)
        bench.hal.trace.stop()
        equal(len(recorder.of_kind(FILL)), turn + 1, f"the number of fills told in trace {turn}")


def test_trc_03_clock_is_that_of_the_unix_epoch(bench: Bench) -> None:
    bench.requires("trace.now")
    earlier = time.time_ns()
    first, second = bench.hal.trace.now(), bench.hal.trace.now()
    later = time.time_ns()
    second_ns = 1_000_000_000
    expect(first <= second, f"the clock went back from {first} to {second}")
    expect(
        earlier - second_ns <= first and second <= later + second_ns, f"{first} is off the host's {earlier}"
    )


def test_trc_04_work_carries_the_correlation(bench: Bench) -> None:
    bench.requires("trace.exchange_correlation")
    recorder = _recording(bench)
    bench.requires_devices(1)
    stream, pointer = bench.stream(), bench.allocate(SIZE)
    for size, correlation in ((100, 41), (200, 42), (300, 0)):
        bench.hal.trace.exchange_correlation(correlation)
        bench.hal.memory.fill_async(stream, pointer, 1, size)
    bench.hal.stream.synchronize(stream)
    bench.hal.trace.stop()
    found = {activity.bytes: activity.correlation for activity in recorder.of_kind(FILL)}
    equal(found, {100: 41, 200: 42, 300: 0}, "the correlation by size of the fill")


@also("GEN-06")
def test_trc_04_correlation_belongs_to_the_thread(bench: Bench) -> None:
    bench.requires("trace.exchange_correlation")

    everyone = threading.Barrier(8)

    def check(number: int) -> None:
        equal(bench.hal.trace.exchange_correlation(number), 0, "the correlation of a new thread")
        for _ in range(20):
            everyone.wait(JOIN_LIMIT_S)  # all have set theirs
            equal(bench.hal.trace.exchange_correlation(number), number, "the thread's correlation")
            everyone.wait(JOIN_LIMIT_S)
        equal(bench.hal.trace.exchange_correlation(0), number, "the thread's correlation at the end")

    together([lambda number=number: check(number) for number in range(1, 9)])  # type: ignore[misc]
