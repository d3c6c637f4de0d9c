"""Failures that FLAGOS_REFERENCE_FAIL asks for: calls and queued work that fail, devices that are lost."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

import pytest

from torch_fl_base._hal import Hal

SIZE = 4096
TO_DEVICE, TO_HOST = 1, 2
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _status(hal: Hal, function: str, *inputs: object) -> str:
    return hal.call(function, *inputs).status


@pytest.mark.reference(FAIL="memory.allocate:2")
def test_only_the_nth_call_fails_and_nothing_changes(hal: Hal) -> None:
    hal.memory.allocate(0, SIZE)
    before = hal.device.memory_info(0)
    outcome = hal.call("memory.allocate", 0, SIZE)
    assert (outcome.status, outcome.value) == ("OUT_OF_MEMORY", None)
    detail = hal.last_error()
    assert detail.function == "memory.allocate"
    assert detail.vendor_name == "referenceErrorInjected"
    assert detail.vendor_code == 1105
    assert "FLAGOS_REFERENCE_FAIL" in detail.message
    assert hal.device.memory_info(0) == before
    assert _status(hal, "memory.allocate", 0, SIZE) == "OK"


@pytest.mark.reference(FAIL="stream.create:2+")
def test_the_nth_and_all_later_calls_fail(hal: Hal) -> None:
    assert [_status(hal, "stream.create", 0, None) for _ in range(4)] == ["OK", *["UNKNOWN"] * 3]


@pytest.mark.reference(FAIL="event.create,event.create:1=UNSUPPORTED,memory.fill=INVALID_STATE")
def test_rules_of_one_function_are_tried_in_order(hal: Hal) -> None:
    assert [_status(hal, "event.create", 0, 0) for _ in range(2)] == ["UNKNOWN", "UNKNOWN"]
    memory = hal.memory.allocate(0, SIZE)
    assert _status(hal, "memory.fill", 0, memory, 1, SIZE) == "INVALID_STATE"


@pytest.mark.reference(FAIL="memory.copy_async:1,stream.host_callback:1,event.record:1,stream.wait_event:1")
def test_a_refused_call_queues_nothing(hal: Hal) -> None:
    stream = hal.stream.create(0, None)
    memory = hal.memory.allocate(0, SIZE)
    hal.memory.fill(0, memory, 1, SIZE)
    event = hal.event.create(0, 1)
    called: list[int] = []
    callback = CALLBACK(lambda _: called.append(1))
    source = ctypes.create_string_buffer(SIZE)
    assert _status(hal, "memory.copy_async", stream, memory, source, SIZE, TO_DEVICE) == "UNKNOWN"
    assert _status(hal, "stream.host_callback", stream, callback, None) == "UNKNOWN"
    assert _status(hal, "event.record", event, stream) == "UNKNOWN"
    assert _status(hal, "stream.wait_event", stream, event) == "UNKNOWN"
    assert _status(hal, "event.elapsed", event, event) == "INVALID_STATE"  # still never recorded
    hal.stream.synchronize(stream)
    assert (called, ctypes.string_at(memory, SIZE)) == ([], b"\x01" * SIZE)
    hal.memory.copy_async(stream, memory, source, SIZE, TO_DEVICE)
    hal.stream.synchronize(stream)
    assert ctypes.string_at(memory, SIZE) == bytes(SIZE)


@pytest.mark.reference(FAIL="memory.release:1,stream.destroy:1")
def test_a_failed_release_can_be_tried_again(hal: Hal) -> None:
    memory, stream = hal.memory.allocate(0, SIZE), hal.stream.create(0, None)
    answers = ["UNKNOWN", "OK", "INVALID_HANDLE"]
    assert [_status(hal, "memory.release", 0, memory) for _ in range(3)] == answers
    assert [_status(hal, "stream.destroy", stream) for _ in range(3)] == answers


@pytest.mark.reference(init=False, FAIL="system.init:1=UNAVAILABLE,device.count:2")
def test_init_can_fail_and_calls_are_counted_past_a_shutdown(hal: Hal) -> None:
    assert _status(hal, "system.init") == "UNAVAILABLE"
    assert _status(hal, "device.count") == "NOT_INITIALIZED"
    assert _status(hal, "system.init") == "OK"
    assert hal.device.count() == 2
    hal.system.shutdown()
    hal.system.init()
    assert [_status(hal, "device.count") for _ in range(2)] == ["UNKNOWN", "OK"]
    hal.system.shutdown()
    os.environ["FLAGOS_REFERENCE_FAIL"] = "device.count:1"
    hal.system.init()
    assert [_status(hal, "device.count") for _ in range(2)] == ["UNKNOWN", "OK"]


@pytest.mark.parametrize("asked", ["stream.query", "stream.synchronize", "device.synchronize"])
@pytest.mark.reference(FAIL="work.copy:2", LATENCY="copy:5000")
def test_work_that_fails_is_reported_once_and_has_no_effect(hal: Hal, asked: str) -> None:
    stream = hal.stream.create(0, None)
    target = hal.memory.allocate(0, SIZE)
    sources = [ctypes.create_string_buffer(bytes([value]) * SIZE, SIZE) for value in (1, 2)]
    for source in sources:
        hal.memory.copy_async(stream, target, source, SIZE, TO_DEVICE)
    asker = 0 if asked == "device.synchronize" else stream
    while (status := _status(hal, asked, asker)) == "NOT_READY":
        pass
    assert status == "UNKNOWN"
    detail = hal.last_error()
    assert detail.function == asked
    assert "a copy that was queued earlier" in detail.message
    assert [_status(hal, name, stream) for name in ("stream.synchronize", "stream.query")] == ["OK", "OK"]
    assert ctypes.string_at(target, SIZE) == sources[0].raw
    hal.memory.copy_async(stream, target, sources[1], SIZE, TO_DEVICE)
    hal.stream.synchronize(stream)
    assert ctypes.string_at(target, SIZE) == sources[1].raw


@pytest.mark.reference(FAIL="work.fill:1")
def test_callbacks_and_events_go_on_after_a_failure(hal: Hal) -> None:
    stream = hal.stream.create(0, None)
    memory = hal.memory.allocate(0, SIZE)
    event = hal.event.create(0, 1)
    called: list[int] = []
    callback = CALLBACK(lambda _: called.append(1))
    hal.memory.fill_async(stream, memory, 1, SIZE)
    hal.stream.host_callback(stream, callback, None)
    hal.event.record(event, stream)
    hal.event.synchronize(event)
    assert called == [1]
    assert _status(hal, "stream.query", stream) == "UNKNOWN"


@pytest.mark.reference(FAIL="work.fill:1")
def test_the_failure_of_a_destroyed_stream_is_not_lost(hal: Hal) -> None:
    stream = hal.stream.create(0, None)
    hal.memory.fill_async(stream, hal.memory.allocate(0, SIZE), 1, SIZE)
    hal.stream.destroy(stream)
    assert [_status(hal, "device.synchronize", 0) for _ in range(2)] == ["UNKNOWN", "OK"]


def _expect_lost(hal: Hal, device: int) -> None:
    for name, inputs in {
        "device.health": (device,),
        "device.set_current": (device,),
        "device.synchronize": (device,),
        "device.memory_info": (device,),
        "memory.allocate": (device, SIZE),
        "stream.create": (device, None),
        "stream.default_stream": (device,),
        "event.create": (device, 0),
    }.items():
        assert _status(hal, name, *inputs) == "DEVICE_LOST", name
    assert hal.last_error().vendor_name == "referenceErrorDeviceLost"


@pytest.mark.reference(FAIL="memory.fill:1=DEVICE_LOST")
def test_a_call_can_lose_its_device(hal: Hal) -> None:
    stream, event = hal.stream.create(0, None), hal.event.create(0, 0)
    memory = hal.memory.allocate(0, SIZE)
    assert _status(hal, "memory.fill", 0, memory, 1, SIZE) == "DEVICE_LOST"
    _expect_lost(hal, 0)
    for name, inputs in {
        "stream.query": (stream,),
        "stream.synchronize": (stream,),
        "memory.fill_async": (stream, memory, 1, SIZE),
        "event.record": (event, stream),
        "event.query": (event,),
        "memory.copy": (0, memory, memory, 0, 3),
    }.items():
        assert _status(hal, name, *inputs) == "DEVICE_LOST", name
    assert _status(hal, "device.set_current", 1) == "OK"
    assert _status(hal, "device.set_current", 0) == "DEVICE_LOST"
    assert hal.device.get_current() == 1
    # The other device goes on.
    other, there = hal.stream.create(1, None), hal.memory.allocate(1, SIZE)
    hal.memory.fill_async(other, there, 3, SIZE)
    hal.stream.synchronize(other)
    assert ctypes.string_at(there, SIZE) == b"\x03" * SIZE
    assert _status(hal, "stream.wait_event", other, event) == "DEVICE_LOST"
    for name, handle in {"event.destroy": event, "stream.destroy": stream}.items():
        assert _status(hal, name, handle) == "OK", name
    assert _status(hal, "memory.release", 0, memory) == "OK"
    hal.system.shutdown()
    hal.system.init()
    assert _status(hal, "device.health", 0) == "OK"


@pytest.mark.reference(FAIL="work.copy:2=DEVICE_LOST", LATENCY="copy:30000")
def test_work_can_lose_its_device_and_nothing_hangs(hal: Hal) -> None:
    stream, other = hal.stream.create(0, None), hal.stream.create(1, None)
    memory = hal.memory.allocate(0, SIZE)
    event = hal.event.create(0, 0)
    source = ctypes.create_string_buffer(b"\x07" * SIZE, SIZE)
    called: list[int] = []
    callback = CALLBACK(lambda _: called.append(1))
    hal.memory.copy_async(stream, memory, source, SIZE, TO_DEVICE)
    hal.memory.copy_async(stream, memory, ctypes.create_string_buffer(SIZE), SIZE, TO_DEVICE)
    hal.memory.fill_async(stream, memory, 9, SIZE)
    hal.stream.host_callback(stream, callback, None)
    hal.event.record(event, stream)
    hal.stream.wait_event(other, event)
    assert _status(hal, "device.synchronize", 0) == "DEVICE_LOST"
    assert _status(hal, "stream.synchronize", other) == "OK"
    assert called == [1]
    assert ctypes.string_at(memory, SIZE) == source.raw  # what came after the loss was dropped
    _expect_lost(hal, 0)
    assert _status(hal, "device.health", 1) == "OK"


@pytest.mark.reference(FAIL="device.lost:1")
def test_a_device_can_be_lost_from_the_start(hal: Hal) -> None:
    assert hal.device.count() == 2
    assert _status(hal, "device.health", 0) == "OK"
    _expect_lost(hal, 1)


# ----------------------------------------------------------------- when the operating system has no more ----


def _limit_address_space(further: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + further, resource.RLIM_INFINITY))


@pytest.mark.parametrize("fault", ["0", "1"])
@pytest.mark.reference(init=False)
def test_memory_that_the_host_does_not_have_is_refused(hal: Hal, fault: str) -> None:
    os.environ["FLAGOS_REFERENCE_MEMORY_FAULT"] = fault
    hal.system.init()
    _limit_address_space(256 << 20)
    before = hal.device.memory_info(0)
    for function, inputs in (("memory.allocate", (0, 1 << 30)), ("host.allocate", (1 << 30,))):
        assert _status(hal, function, *inputs) == "OUT_OF_MEMORY"
        detail = hal.last_error()
        assert (detail.vendor_name, detail.vendor_code) == ("ENOMEM", 12)
    assert hal.device.memory_info(0) == before
    pointer = hal.memory.allocate(0, 32 << 20)
    hal.memory.fill(0, pointer, 1, 32 << 20)
    hal.memory.release(0, pointer)


@pytest.mark.reference
def test_work_is_refused_whole_where_no_thread_can_be_started(hal: Hal) -> None:
    stream, memory = hal.stream.create(0, None), hal.memory.allocate(0, SIZE)
    hal.memory.fill(0, memory, 1, SIZE)
    _limit_address_space(2 << 20)  # less than a thread's stack
    assert _status(hal, "memory.fill_async", stream, memory, 2, SIZE) == "OUT_OF_MEMORY"
    assert hal.last_error().message.startswith("starting the stream's thread failed: ")
    assert _status(hal, "stream.query", stream) == "OK"
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert ctypes.string_at(memory, SIZE) == b"\x01" * SIZE
    hal.memory.fill_async(stream, memory, 3, SIZE)
    hal.stream.synchronize(stream)
    assert _status(hal, "memory.release", 0, memory) == "OK"  # the refused fill does not hold it
