"""The validating layer: what it refuses, with which status and rule, and what it lets pass."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hal_checked import (
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    INTERPROCESS,
    SIZE,
    TIMING,
    Checked,
    Things,
    options,
    sized,
)
from hal_native import PRIVATE_COPY, QUIET, VALIDATE, Layers, in_own_process, reference_library

NOWHERE = 0x10000
"""An address that nobody was ever given; the heap gives others out again."""


@pytest.fixture(scope="module")
def opened(layers: Layers) -> Checked:
    """Return the reference library in a copy of its own, under the layer."""
    return Checked(layers.open(reference_library(), VALIDATE | QUIET | PRIVATE_COPY), layers)


@pytest.fixture
def reference(opened: Checked) -> Iterator[Checked]:
    """Return it initialised; what a test leaves behind is forgotten at shutdown."""
    opened.hal.system.init()
    yield opened
    opened.hal.system.shutdown()


Wrong = tuple[str, str, str, str, Callable[[Things], tuple[Any, ...]]]
WRONG: dict[str, Wrong] = {
    # status, rule, part of the text, function, its inputs
    "allocate on device 2": (
        "INVALID_DEVICE",
        "GEN-05",
        "no device 2",
        "memory.allocate",
        lambda t: (2, SIZE),
    ),
    "allocate on device -1": (
        "INVALID_DEVICE",
        "GEN-05",
        "no device -1",
        "memory.allocate",
        lambda t: (-1, 0),
    ),
    "second release": (
        "INVALID_HANDLE",
        "GEN-08",
        "released before: 4096 bytes",
        "memory.release",
        lambda t: (0, t.released),
    ),
    "release of an inner address": (
        "INVALID_HANDLE",
        "HAL-MEM-02",
        "not the start",
        "memory.release",
        lambda t: (0, t.pointer + 64),
    ),
    "release of a foreign pointer": (
        "INVALID_HANDLE",
        "GEN-08",
        "is not memory that this library gave out",
        "memory.release",
        lambda t: (0, NOWHERE),
    ),
    "release for another device": (
        "INVALID_HANDLE",
        "HAL-MEM-02",
        "memory of device 1; the call names device 0",
        "memory.release",
        lambda t: (0, t.elsewhere),
    ),
    "release of pinned memory as device memory": (
        "INVALID_HANDLE",
        "HAL-MEM-02",
        "came from host.allocate",
        "memory.release",
        lambda t: (0, t.pinned),
    ),
    "copy into released memory": (
        "INVALID_HANDLE",
        "GEN-08",
        "released before",
        "memory.copy",
        lambda t: (0, t.released, t.host, 16, HOST_TO_DEVICE),
    ),
    "copy past the end of the destination": (
        "INVALID_ARGUMENT",
        "HAL-MEM-03",
        "destination 0x",
        "memory.copy",
        lambda t: (0, t.pointer + 4000, t.host, 97, HOST_TO_DEVICE),
    ),
    "copy past the end of the source": (
        "INVALID_ARGUMENT",
        "HAL-MEM-04",
        "reaches 1 bytes past the end",
        "memory.copy_async",
        lambda t: (t.stream, t.host, t.pointer + 1, SIZE, DEVICE_TO_HOST),
    ),
    "copy of an absurd size": (
        "INVALID_ARGUMENT",
        "HAL-MEM-03",
        "past the end",
        "memory.copy",
        lambda t: (0, t.pointer, t.host, (1 << 64) - 1, HOST_TO_DEVICE),
    ),
    "copy past the end of pinned memory": (
        "INVALID_ARGUMENT",
        "HAL-MEM-04",
        "source 0x",
        "memory.copy_async",
        lambda t: (t.stream, t.pointer, t.pinned + 1, SIZE, HOST_TO_DEVICE),
    ),
    "copy of an unknown kind": (
        "INVALID_ARGUMENT",
        "GEN-10",
        "4 is not a flagos_hal_copy_kind",
        "memory.copy",
        lambda t: (0, t.pointer, t.host, 16, 4),
    ),
    "copy whose kind takes host memory for a device's": (
        "INVALID_HANDLE",
        "GEN-08",
        "is not device memory",
        "memory.copy",
        lambda t: (0, NOWHERE, t.pointer, 16, HOST_TO_DEVICE),
    ),
    "copy between devices": (
        "INVALID_HANDLE",
        "HAL-MEM-03",
        "peer.copy_async",
        "memory.copy",
        lambda t: (0, t.pointer, t.elsewhere, 16, DEVICE_TO_DEVICE),
    ),
    "copy onto itself": (
        "INVALID_ARGUMENT",
        "HAL-MEM-03",
        "overlap",
        "memory.copy",
        lambda t: (0, t.pointer + 8, t.pointer, 16, DEVICE_TO_DEVICE),
    ),
    "copy from null": (
        "INVALID_ARGUMENT",
        "HAL-MEM-03",
        "source is null",
        "memory.copy",
        lambda t: (0, t.pointer, None, 16, HOST_TO_DEVICE),
    ),
    "fill with 256": (
        "INVALID_ARGUMENT",
        "HAL-MEM-05",
        "256",
        "memory.fill",
        lambda t: (0, t.pointer, 256, 1),
    ),
    "fill on another device's stream": (
        "INVALID_HANDLE",
        "HAL-MEM-06",
        "memory of device 0, the call is for device 1",
        "memory.fill_async",
        lambda t: (t.stream_of_1, t.pointer, 0, 16),
    ),
    "work on a destroyed stream": (
        "INVALID_HANDLE",
        "GEN-08",
        "was destroyed before",
        "memory.fill_async",
        lambda t: (t.dead_stream, t.pointer, 0, 16),
    ),
    "query of a stream that never was": (
        "INVALID_HANDLE",
        "GEN-08",
        "not one that this library gave out",
        "stream.query",
        lambda t: (NOWHERE,),
    ),
    "null stream": (
        "INVALID_HANDLE",
        "GEN-08",
        "the stream is null",
        "stream.synchronize",
        lambda t: (None,),
    ),
    "second destroy of a stream": (
        "INVALID_HANDLE",
        "GEN-08",
        "destroyed before",
        "stream.destroy",
        lambda t: (t.dead_stream,),
    ),
    "destroy of a default stream": (
        "INVALID_HANDLE",
        "HAL-STR-02",
        "default stream of device 0",
        "stream.destroy",
        lambda t: (t.default,),
    ),
    "unknown stream flags": (
        "INVALID_ARGUMENT",
        "GEN-10",
        "bits 0x8",
        "stream.create",
        lambda t: (0, options(flags=8)),
    ),
    "stream options without a size": (
        "INVALID_ARGUMENT",
        "HAL-STR-01",
        "struct_size is 0",
        "stream.create",
        lambda t: (0, options(struct_size=0)),
    ),
    "wait for a destroyed event": (
        "INVALID_HANDLE",
        "GEN-08",
        "destroyed before",
        "stream.wait_event",
        lambda t: (t.stream, t.dead_event),
    ),
    "null callback": (
        "INVALID_ARGUMENT",
        "HAL-STR-10",
        "null",
        "stream.host_callback",
        lambda t: (t.stream, None, None),
    ),
    "stream taken for an event": (
        "INVALID_HANDLE",
        "GEN-08",
        "event 0x",
        "event.query",
        lambda t: (t.stream,),
    ),
    "unknown event flags": ("INVALID_ARGUMENT", "GEN-10", "bits 0x18", "event.create", lambda t: (0, 0x1A)),
    "event between processes with timing": (
        "INVALID_ARGUMENT",
        "HAL-EVT-01",
        "excludes",
        "event.create",
        lambda t: (0, TIMING | INTERPROCESS),
    ),
    "record on another device's stream": (
        "INVALID_ARGUMENT",
        "HAL-EVT-03",
        "device 0, the stream of device 1",
        "event.record",
        lambda t: (t.event, t.stream_of_1),
    ),
    "elapsed without timing": (
        "INVALID_STATE",
        "HAL-EVT-06",
        "start was made without",
        "event.elapsed",
        lambda t: (t.event, t.timed),
    ),
    "elapsed of what was never recorded": (
        "INVALID_STATE",
        "HAL-EVT-06",
        "start was never recorded",
        "event.elapsed",
        lambda t: (t.timed, t.timed),
    ),
    "elapsed across devices": (
        "INVALID_ARGUMENT",
        "HAL-EVT-06",
        "device 0, end of device 1",
        "event.elapsed",
        lambda t: (t.timed, t.timed_of_1),
    ),
    "release of device memory as pinned": (
        "INVALID_HANDLE",
        "HAL-HST-02",
        "came from memory.allocate",
        "host.release",
        lambda t: (t.pointer,),
    ),
    "register nothing": (
        "INVALID_ARGUMENT",
        "HAL-HST-03",
        "nothing to register",
        "host.register_range",
        lambda t: (t.host, 0),
    ),
    "unregister what was not registered": (
        "INVALID_HANDLE",
        "GEN-08",
        "is not memory",
        "host.unregister_range",
        lambda t: (NOWHERE,),
    ),
    "peer of no device": ("INVALID_DEVICE", "GEN-05", "no device 7", "peer.can_access", lambda t: (0, 7)),
    "peer copy past the end": (
        "INVALID_ARGUMENT",
        "HAL-PER-04",
        "destination 0x",
        "peer.copy_async",
        lambda t: (t.stream, 1, t.elsewhere + 1, 0, t.pointer, SIZE),
    ),
    "peer copy with devices mixed up": (
        "INVALID_HANDLE",
        "HAL-PER-04",
        "memory of device 1, the call is for device 0",
        "peer.copy_async",
        lambda t: (t.stream, 0, t.elsewhere, 1, t.pointer, 16),
    ),
    "capture of a default stream": (
        "INVALID_ARGUMENT",
        "HAL-GRF-01",
        "default stream",
        "graph.begin_capture",
        lambda t: (t.default, 0),
    ),
    "unknown capture mode": (
        "INVALID_ARGUMENT",
        "GEN-10",
        "3",
        "graph.begin_capture",
        lambda t: (t.stream, 3),
    ),
    "launch of no graph": (
        "INVALID_HANDLE",
        "GEN-08",
        "the graph is null",
        "graph.launch",
        lambda t: (None, t.stream),
    ),
    "null trace sink": (
        "INVALID_ARGUMENT",
        "HAL-TRC-01",
        "sink is null",
        "trace.start",
        lambda t: (None, None),
    ),
    "trim of no device": ("INVALID_DEVICE", "GEN-05", "no device 9", "async_alloc.trim", lambda t: (9, 0)),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_wrong_call_is_answered_with_its_rule(reference: Checked, case: Wrong) -> None:
    status, rule, text, function, inputs = case
    group = function.partition(".")[0]
    if not reference.hal.has(group):
        pytest.skip(f"the reference library has no group {group}")
    reference.refuses(status, rule, text, function, *inputs(Things(reference)))


def test_every_null_output_is_refused(reference: Checked) -> None:
    from torch_fl_base._hal_header import header

    checked = 0
    for function in header().functions():
        outputs = [parameter for parameter in function.parameters if parameter.is_output]
        if (
            not outputs
            or function.qualified == "system.last_error"
            or not reference.hal.has(function.qualified)
        ):
            continue
        arguments = [None if parameter.type.pointers else 0 for parameter in function.parameters]
        before = reference.violations()
        assert reference.hal.function(function.qualified)(*arguments) in (2, 3), function.qualified
        assert reference.violations() == before + 1, function.qualified
        checked += 1
    assert checked >= 20


@pytest.mark.parametrize("size", [0, 4, 1 << 20])
def test_output_structure_with_a_garbage_size_is_refused(reference: Checked, size: int) -> None:
    for name, call in {
        "flagos_hal_info": lambda out: reference.hal.raw.system.info(out),
        "flagos_hal_device_properties": lambda out: reference.hal.raw.device.properties(0, out),
        "flagos_hal_pointer_info": lambda out: reference.hal.raw.memory.pointer_info(None, out),
    }.items():
        before = reference.violations()
        assert call(ctypes.byref(sized(name, size))) == 2
        assert f"struct_size is {size}" in reference.hal.last_error().message
        assert reference.violations() == before + 1


def test_right_calls_pass_without_a_complaint(reference: Checked) -> None:
    things = Things(reference)
    accepts = reference.accepts
    pointer, stream, host = things.pointer, things.stream, things.host
    accepts("memory.copy", 0, pointer, host, SIZE, HOST_TO_DEVICE)
    accepts("memory.copy", 0, things.other + 1, pointer + 1, SIZE - 1, DEVICE_TO_DEVICE)
    accepts("memory.copy", 0, pointer, pointer + 2048, 2048, DEVICE_TO_DEVICE)
    accepts("memory.copy", 0, None, None, 0, HOST_TO_DEVICE)
    accepts("memory.copy_async", stream, things.pinned, pointer, SIZE, DEVICE_TO_HOST)
    accepts("memory.fill", 0, pointer + 4095, 255, 1)
    accepts("memory.fill_async", stream, None, 0, 0)
    accepts("memory.pointer_info", things.released)
    accepts("memory.release", 0, None)
    accepts("host.release", None)
    assert accepts("memory.allocate", 0, 0) is None
    accepts("event.record", things.timed, stream)
    accepts("event.record", things.timed, things.default)
    accepts("stream.wait_event", things.stream_of_1, things.timed)
    accepts("event.synchronize", things.timed)
    accepts("event.elapsed", things.timed, things.timed)
    accepts("peer.copy_async", stream, 1, things.elsewhere, 0, pointer, SIZE)
    accepts("stream.synchronize", stream)
    accepts("host.register_range", host, SIZE)
    accepts("host.unregister_range", host)
    accepts("stream.create", 0, options(priority=-1))
    assert accepts("stream.default_stream", 0) == things.default
    accepts("device.synchronize", 0)
    accepts("memory.release", 0, pointer)
    accepts("stream.destroy", stream)
    accepts("event.destroy", things.timed)


def test_registered_range_may_not_overlap_another(reference: Checked) -> None:
    things = Things(reference)
    reference.accepts("host.register_range", things.host, 2048)
    reference.refuses(
        "INVALID_STATE", "HAL-HST-03", "are registered", "host.register_range", things.host + 2047, 100
    )
    reference.accepts("host.register_range", things.host + 2048, 100)
    reference.accepts("host.unregister_range", things.host)
    reference.accepts("host.unregister_range", things.host + 2048)


def test_memory_allocated_in_stream_order_is_followed(reference: Checked) -> None:
    if not reference.hal.has("async_alloc"):
        pytest.skip("the reference library has no group async_alloc")
    stream = reference.accepts("stream.create", 0, None)
    pointer = reference.accepts("async_alloc.allocate_async", stream, SIZE)
    reference.accepts("memory.fill_async", stream, pointer, 7, SIZE)
    reference.accepts("async_alloc.release_async", stream, pointer)
    reference.refuses(
        "INVALID_HANDLE",
        "GEN-08",
        "from async_alloc.allocate_async",
        "memory.fill_async",
        stream,
        pointer,
        7,
        SIZE,
    )
    other = reference.accepts("async_alloc.allocate_async", stream, SIZE)
    reference.accepts("stream.synchronize", stream)
    reference.accepts("memory.release", 0, other)


def test_capture_is_followed(reference: Checked) -> None:
    if not reference.hal.has("graph"):
        pytest.skip("the reference library has no group graph")
    things = Things(reference)
    reference.accepts("graph.begin_capture", things.stream, 0)
    reference.refuses("INVALID_STATE", "HAL-GRF-01", "already", "graph.begin_capture", things.stream, 0)
    graph = reference.accepts("graph.end_capture", things.stream)
    reference.refuses("INVALID_ARGUMENT", "HAL-GRF-04", "device 1", "graph.launch", graph, things.stream_of_1)
    reference.accepts("graph.launch", graph, things.stream)
    reference.accepts("graph.destroy", graph)
    reference.refuses("INVALID_HANDLE", "GEN-08", "destroyed before", "graph.launch", graph, things.stream)


def test_library_s_own_failure_takes_the_detail_s_place(reference: Checked) -> None:
    reference.refuses("INVALID_DEVICE", "GEN-05", "", "memory.allocate", 5, 16)
    assert reference.hal.call("memory.allocate", 0, 1 << 60).status == "OUT_OF_MEMORY"
    detail = reference.hal.last_error()
    assert (detail.status, detail.vendor_name) == ("OUT_OF_MEMORY", "referenceErrorMemoryAllocation") or (
        detail.status == "OUT_OF_MEMORY" and "GEN" not in detail.message
    )
    reference.refuses("INVALID_DEVICE", "GEN-05", "", "memory.allocate", 5, 16)


def test_detail_belongs_to_the_thread(reference: Checked) -> None:
    reference.refuses("INVALID_DEVICE", "GEN-05", "", "memory.allocate", 5, 16)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(reference.hal.last_error().status))
    thread.start()
    thread.join()
    assert seen == ["OK"]


# ------------------------------------------------------------------------------- before init, shutdown ----


def test_calls_before_init_and_after_shutdown_are_refused(opened: Checked) -> None:
    for text in ("before system.init has succeeded", "after system.shutdown"):
        if text.startswith("after"):
            opened.hal.system.init()
            opened.hal.system.shutdown()
        elif "after system.shutdown" in (opened.hal.call("device.count"), opened.hal.last_error().message)[1]:
            continue  # other tests of this module came first
        opened.refuses("NOT_INITIALIZED", "GEN-03", text, "device.count")
        opened.refuses("NOT_INITIALIZED", "GEN-03", text, "memory.allocate", 0, 16)
        opened.accepts("memory.release", 0, 4096)
        opened.accepts("stream.destroy", 4096)
        opened.accepts("host.release", 4096)
        opened.accepts("system.info")
    opened.accepts("system.shutdown")


def test_what_is_alive_at_shutdown_is_reported_and_shutdown_succeeds(opened: Checked) -> None:
    opened.hal.system.init()
    opened.hal.memory.allocate(0, 1000)
    opened.hal.memory.allocate(1, 24)
    opened.hal.stream.create(0, None)
    opened.hal.stream.default_stream(0)
    opened.hal.event.create(0, 0)
    before = opened.violations()
    assert opened.hal.call("system.shutdown").status == "OK"
    detail = opened.hal.last_error()
    assert detail.status == "INVALID_STATE"
    assert (
        detail.message
        == "HAL-SYS-02: still alive at shutdown: 2 device allocations (1024 bytes), 1 streams, 1 events"
    )
    assert opened.violations() == before + 4
    opened.hal.system.init()
    opened.accepts("system.shutdown")


def test_handles_of_before_a_shutdown_are_dead(opened: Checked) -> None:
    opened.hal.system.init()
    stream = opened.hal.stream.create(0, None)
    opened.hal.system.shutdown()
    opened.hal.system.init()
    opened.refuses("INVALID_HANDLE", "GEN-08", "destroyed before", "stream.query", stream)
    opened.hal.system.shutdown()


FORK = """
import os, sys
from hal_native import *
layers = Layers(Path(sys.argv[1]))
hal = layers.open(sys.argv[2], VALIDATE | QUIET)
before = os.fork()
hal.system.init()
pointer = hal.memory.allocate(0, 64)
if before == 0:
    os._exit(0 if hal.call("memory.release", 0, 4096).status == "INVALID_HANDLE" else 1)
after = os.fork()
if after == 0:
    answers = [hal.call("device.count").status, hal.last_error().status]
    answers.append(hal.call("memory.release", 0, pointer).status)
    os._exit(0 if answers == ["FORKED", "FORKED", "OK"] else 2)
print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in (before, after)))
print(hal.call("memory.release", 0, pointer).status, layers.violations(hal))
"""


def test_forked_children_get_what_the_header_says(layers: Layers) -> None:
    assert in_own_process(FORK, layers.path, reference_library()).split() == ["0", "0", "OK", "0"]


def test_host_callback_may_not_call_the_library(reference: Checked) -> None:
    seen: list[Any] = []

    def called(argument: int | None) -> None:
        seen.append((argument, reference.hal.call("device.count").status, reference.hal.last_error().message))

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called)
    stream = reference.accepts("stream.create", 0, None)
    address = ctypes.cast(function, ctypes.c_void_p)
    assert reference.hal.call("stream.host_callback", stream, address, 42).status == "OK"
    reference.hal.stream.synchronize(stream)
    ((argument, status, message),) = seen
    assert (argument, status) == (42, "INVALID_STATE")
    assert message.startswith("HAL-STR-10: ")
    assert reference.accepts("device.count") == 2


def test_many_threads_work_without_a_false_complaint(reference: Checked) -> None:
    before = reference.violations()
    failed: list[str] = []

    def work(device: int) -> None:
        hal = reference.hal
        stream = hal.stream.create(device, None)
        event = hal.event.create(device, TIMING)
        for round_ in range(60):
            pointer = hal.memory.allocate(device, 256 + round_)
            for name, inputs in {
                "memory.fill_async": (stream, pointer, round_, 256),
                "event.record": (event, stream),
                "stream.wait_event": (stream, event),
                "event.synchronize": (event,),
                "memory.release": (device, pointer),
            }.items():
                status = hal.call(name, *inputs).status
                if status != "OK":
                    failed.append(f"{name}: {status}: {hal.last_error().message}")
        hal.event.destroy(event)
        hal.stream.destroy(stream)

    threads = [threading.Thread(target=work, args=(number % 2,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert reference.violations() == before


def test_captured_callback_runs_at_every_launch(reference: Checked) -> None:
    if not reference.hal.has("graph"):
        pytest.skip("the reference library has no group graph")
    hal, seen = reference.hal, []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(seen.append)
    stream = hal.stream.create(0, None)
    hal.graph.begin_capture(stream, 2)
    hal.stream.host_callback(stream, ctypes.cast(function, ctypes.c_void_p), 7)
    graph = hal.graph.end_capture(stream)
    hal.stream.host_callback(stream, ctypes.cast(function, ctypes.c_void_p), 8)
    for _ in range(3):
        reference.accepts("graph.launch", graph, stream)
    hal.stream.synchronize(stream)
    assert seen == [8, 7, 7, 7]
