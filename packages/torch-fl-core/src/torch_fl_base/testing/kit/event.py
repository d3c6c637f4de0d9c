"""HAL-EVT-01 to 06."""

from __future__ import annotations

import time

from torch_fl_base.testing.kit.bench import Bench, constant
from torch_fl_base.testing.kit.checks import cases, equal, expect, skip
from torch_fl_base.testing.kit.subjects import SIZE
from torch_fl_base.testing.kit.threads import together

TIMING = constant("EVENT_TIMING")
BLOCKING = constant("EVENT_BLOCKING")
INTERPROCESS = constant("EVENT_INTERPROCESS")


def _timed(bench: Bench) -> None:
    bench.requires_devices(1)
    if not bench.capability("EVENT_TIMING"):
        skip("capability EVENT_TIMING is 0")


def test_evt_01_makes_events_of_all_kinds(bench: Bench) -> None:
    bench.requires_devices(1)
    for device in range(bench.hal.device.count()):
        events = {bench.event(device, flags) for flags in (0, TIMING, BLOCKING, TIMING | BLOCKING)}
        equal(len(events), 4, "the number of different events")
        for event in events:
            bench.hal.event.record(event, bench.default_stream(device))
            bench.hal.event.synchronize(event)


def test_evt_01_interprocess_excludes_timing(bench: Bench) -> None:
    bench.requires_devices(1)
    bench.refuses("INVALID_ARGUMENT", "event.create", 0, INTERPROCESS | TIMING)


def test_evt_01_interprocess_takes_the_group_ipc(bench: Bench) -> None:
    bench.requires_devices(1)
    if bench.hal.has("ipc"):
        bench.event(0, INTERPROCESS)
    else:
        bench.refuses("UNSUPPORTED", "event.create", 0, INTERPROCESS)


def test_evt_02_destroyed_event_is_still_waited_for(bench: Bench) -> None:
    bench.requires_devices(1)
    held, waiter = bench.stream(), bench.stream()
    pointer = bench.allocate(SIZE)
    bench.put(pointer, b"\x00" * SIZE)
    event = bench.hal.event.create(0, 0)
    gate = bench.gate(held)
    bench.hal.event.record(event, held)
    bench.hal.stream.wait_event(waiter, event)
    bench.hal.event.destroy(event)
    bench.still_shut(gate, "event.destroy")
    bench.hal.memory.fill_async(waiter, pointer, 1, SIZE)
    time.sleep(0.05)
    bench.holds(pointer, b"\x00" * SIZE, "memory behind the wait for a destroyed event")
    bench.refuses("NOT_READY", "stream.query", waiter)
    gate.open()
    bench.hal.stream.synchronize(waiter)
    bench.holds(pointer, b"\x01" * SIZE, "memory after the wait for a destroyed event")


def test_evt_02_events_come_and_go(bench: Bench) -> None:
    bench.requires_devices(1)
    stream = bench.stream()
    free = bench.memory_of(0)[0]
    for turn in range(300):
        event = bench.hal.event.create(0, TIMING if turn % 2 else 0)
        bench.hal.event.record(event, stream)
        bench.hal.event.destroy(event)
    bench.hal.stream.synchronize(stream)
    if bench.quirks.private_memory:
        equal(bench.memory_of(0)[0], free, "free memory after 300 events")


def test_evt_03_event_and_stream_belong_to_one_device(bench: Bench) -> None:
    bench.requires_devices(2)
    event = bench.event(0)
    bench.refuses("INVALID_ARGUMENT", "event.record", event, bench.stream(1))
    bench.refuses("INVALID_ARGUMENT", "event.record", bench.event(1), bench.default_stream(0))
    equal(bench.hal.call("event.query", event).status, "OK", "an event whose only record was refused")


def test_evt_03_refused_record_keeps_the_state(bench: Bench) -> None:
    bench.requires_devices(2)
    held, event = bench.stream(), bench.event()
    gate = bench.gate(held)
    bench.hal.event.record(event, held)
    bench.refuses("INVALID_ARGUMENT", "event.record", event, bench.stream(1))
    bench.refuses("INVALID_HANDLE", "event.record", event, None)
    bench.refuses("NOT_READY", "event.query", event)
    gate.open()
    bench.hal.event.synchronize(event)


def test_evt_03_later_record_replaces_the_earlier(bench: Bench) -> None:
    bench.requires_devices(1)
    held, free = bench.stream(), bench.stream()
    event = bench.event()
    gate = bench.gate(held)
    bench.hal.event.record(event, held)
    bench.refuses("NOT_READY", "event.query", event)
    bench.hal.event.record(event, free)
    bench.hal.event.synchronize(event)
    bench.still_shut(gate, "an event recorded again on an idle stream")
    equal(bench.hal.call("event.query", event).status, "OK", "an event recorded again on an idle stream")
    bench.hal.event.record(event, held)
    bench.refuses("NOT_READY", "event.query", event)
    bench.still_shut(gate, "event.record")


def test_evt_04_unrecorded_event_is_reached(bench: Bench) -> None:
    bench.requires_devices(1)
    equal(bench.hal.call("event.query", bench.event()).status, "OK", "an event never recorded")
    equal(
        bench.hal.call("event.synchronize", bench.event()).status, "OK", "waiting for an event never recorded"
    )


def test_evt_04_event_is_reached_when_its_stream_gets_there(bench: Bench) -> None:
    bench.requires_devices(1)
    stream = bench.stream()
    before, after = bench.event(), bench.event()
    bench.hal.event.record(before, stream)
    bench.hal.event.synchronize(before)
    gate = bench.gate(stream)
    bench.hal.event.record(after, stream)
    equal(bench.hal.call("event.query", before).status, "OK", "the event in front of the held work")
    bench.refuses("NOT_READY", "event.query", after)
    bench.still_shut(gate, "event.query")
    gate.open()
    bench.hal.stream.synchronize(stream)
    equal(bench.hal.call("event.query", after).status, "OK", "the event after its stream was synchronised")


def test_evt_04_synchronous_record_is_reached_at_once(bench: Bench) -> None:
    bench.requires_devices(1)
    if bench.capability("ASYNC_STREAMS"):
        skip("capability ASYNC_STREAMS is 1")
    event = bench.event()
    bench.hal.event.record(event, bench.stream())
    equal(bench.hal.call("event.query", event).status, "OK", "an event recorded on a synchronous stream")


@cases("flags", [0, BLOCKING], ids=lambda flags: "blocking" if flags else "spinning")
def test_evt_05_synchronize_waits(bench: Bench, flags: int) -> None:
    bench.requires_devices(1)
    stream, pointer = bench.stream(), bench.allocate(SIZE)
    bench.put(pointer, b"\x00" * SIZE)
    event = bench.event(0, flags)
    gate = bench.gate(stream)
    bench.hal.memory.fill_async(stream, pointer, 0x61, SIZE)
    bench.hal.event.record(event, stream)
    gate.open_after(0.25)
    together([lambda: bench.hal.event.synchronize(event)] * 4)
    expect(gate.is_open, "event.synchronize returned before the event was reached")
    bench.holds(pointer, b"\x61" * SIZE, "memory after event.synchronize")


def test_evt_05_synchronize_does_not_wait_for_later_work(bench: Bench) -> None:
    bench.requires_devices(1)
    stream, event = bench.stream(), bench.event()
    bench.hal.event.record(event, stream)
    gate = bench.gate(stream)
    bench.hal.event.synchronize(event)
    bench.still_shut(gate, "event.synchronize")


def test_evt_06_measures_milliseconds_between_records(bench: Bench) -> None:
    _timed(bench)
    stream = bench.stream()
    start, end = bench.event(0, TIMING), bench.event(0, TIMING)
    began = time.monotonic()
    bench.hal.event.record(start, stream)
    bench.hal.event.synchronize(start)
    time.sleep(0.06)
    bench.hal.event.record(end, stream)
    bench.hal.event.synchronize(end)
    took_ms = (time.monotonic() - began) * 1e3
    measured = bench.hal.event.elapsed(start, end)
    expect(
        55 <= measured <= took_ms + 5,
        f"{measured:.3f} ms were measured, between 60 and {took_ms:.3f} passed",
    )
    back = bench.hal.event.elapsed(end, start)
    expect(back < 0 and abs(back + measured) < 0.01, f"{back:.3f} ms backwards, {measured:.3f} ms forwards")
    same = bench.hal.event.elapsed(start, start)
    expect(abs(same) < 0.001, f"{same} ms from an event to itself")


def test_evt_06_measures_on_the_device_not_at_the_call(bench: Bench) -> None:
    _timed(bench)
    stream = bench.stream()
    start, end = bench.event(0, TIMING), bench.event(0, TIMING)
    bench.hal.event.record(start, stream)
    bench.hal.event.synchronize(start)
    gate = bench.gate(stream)
    bench.hal.event.record(end, stream)
    gate.open_after(0.25)
    bench.hal.stream.synchronize(stream)
    measured = bench.hal.event.elapsed(start, end)
    expect(measured >= 200, f"{measured:.3f} ms were measured over work that took 250 ms")


def test_evt_06_pending_events_are_not_ready(bench: Bench) -> None:
    _timed(bench)
    stream = bench.stream()
    start, end = bench.event(0, TIMING), bench.event(0, TIMING)
    bench.hal.event.record(start, stream)
    bench.hal.event.synchronize(start)
    gate = bench.gate(stream)
    bench.hal.event.record(end, stream)
    bench.refuses("NOT_READY", "event.elapsed", start, end)
    bench.refuses("NOT_READY", "event.elapsed", end, start)
    bench.still_shut(gate, "event.elapsed")
    gate.open()
    bench.hal.event.synchronize(end)
    expect(bench.hal.event.elapsed(start, end) >= 0, "negative time between two records in order")


def test_evt_06_unrecorded_or_untimed_events_are_in_no_state_for_it(bench: Bench) -> None:
    _timed(bench)
    stream = bench.stream()
    recorded, unrecorded = bench.event(0, TIMING), bench.event(0, TIMING)
    untimed = bench.event()
    bench.hal.event.record(recorded, stream)
    bench.hal.event.record(untimed, stream)
    bench.hal.stream.synchronize(stream)
    for pair in ((recorded, unrecorded), (unrecorded, recorded), (unrecorded, unrecorded)):
        bench.refuses("INVALID_STATE", "event.elapsed", *pair)
    for pair in ((recorded, untimed), (untimed, recorded)):
        bench.refuses("INVALID_STATE", "event.elapsed", *pair)


def test_evt_06_events_of_two_devices_are_invalid(bench: Bench) -> None:
    _timed(bench)
    bench.requires_devices(2)
    pair = [bench.event(device, TIMING) for device in (0, 1)]
    for device in (0, 1):
        bench.hal.event.record(pair[device], bench.default_stream(device))
        bench.hal.event.synchronize(pair[device])
    bench.refuses("INVALID_ARGUMENT", "event.elapsed", *pair)


def test_evt_06_without_timing_it_is_unsupported(bench: Bench) -> None:
    bench.requires_devices(1)
    if bench.capability("EVENT_TIMING"):
        skip("capability EVENT_TIMING is 1")
    events = [bench.event(), bench.event()]
    for event in events:
        bench.hal.event.record(event, bench.default_stream())
        bench.hal.event.synchronize(event)
    bench.refuses("UNSUPPORTED", "event.elapsed", *events)
