"""HAL-STR-07: the order between streams."""

from __future__ import annotations

import random
import time

from torch_fl_base.testing.kit.bench import (
    DEVICE_TO_DEVICE,
    Bench,
)
from torch_fl_base.testing.kit.checks import also, equal
from torch_fl_base.testing.kit.memory import pattern
from torch_fl_base.testing.kit.subjects import SIZE


def _wait_across(bench: Bench, recorder: int, waiter: int) -> None:
    """Work on `waiter`'s stream must see what was queued before an event on `recorder`'s, though that one is
    held up."""
    first, second = bench.stream(recorder), bench.stream(waiter)
    flag, pointer = bench.allocate(SIZE, recorder), bench.allocate(SIZE, waiter)
    bench.put(pointer, b"\x00" * SIZE, waiter)
    event = bench.event(recorder)
    gate = bench.gate(first)
    bench.hal.memory.fill_async(first, flag, 1, SIZE)
    bench.hal.event.record(event, first)
    bench.hal.stream.wait_event(second, event)
    bench.hal.memory.fill_async(second, pointer, 0x4D, SIZE)
    bench.still_shut(gate, "stream.wait_event or work queued behind it")
    time.sleep(0.05)
    bench.refuses("NOT_READY", "stream.query", second)
    bench.holds(pointer, b"\x00" * SIZE, "memory that work behind a wait must not have touched yet", waiter)
    gate.open()
    bench.hal.stream.synchronize(second)
    equal(bench.hal.call("event.query", event).status, "OK", "the event after the waiting stream went on")
    bench.holds(pointer, b"\x4d" * SIZE, "memory after the wait", waiter)


def test_str_07_waits_for_an_event_of_another_stream(bench: Bench) -> None:
    bench.requires_devices(1)
    _wait_across(bench, 0, 0)


def test_str_07_waits_for_an_event_of_another_device(bench: Bench) -> None:
    bench.requires_devices(2)
    _wait_across(bench, 0, 1)
    _wait_across(bench, 1, 0)


def test_str_07_takes_events_of_another_device(bench: Bench) -> None:
    bench.requires_devices(2)
    event = bench.event(1)
    bench.hal.event.record(event, bench.default_stream(1))
    stream = bench.stream(0)
    bench.hal.stream.wait_event(stream, event)
    bench.hal.stream.synchronize(stream)


def test_str_07_unrecorded_event_holds_nothing_up(bench: Bench) -> None:
    bench.requires_devices(1)
    stream, pointer = bench.stream(), bench.allocate(SIZE)
    bench.hal.stream.wait_event(stream, bench.event())
    bench.hal.memory.fill_async(stream, pointer, 2, SIZE)
    bench.hal.stream.synchronize(stream)
    bench.holds(pointer, b"\x02" * SIZE, "memory filled after waiting for an event never recorded")


def test_str_07_wait_is_for_the_last_record_before_it(bench: Bench) -> None:
    bench.requires_devices(1)
    held, waiter, free = bench.stream(), bench.stream(), bench.stream()
    event = bench.event()
    pointer = bench.allocate(SIZE)
    bench.put(pointer, b"\x00" * SIZE)
    bench.hal.event.record(event, free)
    bench.hal.stream.synchronize(free)
    gate = bench.gate(held)
    # A wait for the reached record does not hold up; a later record does not hold an earlier wait up.
    bench.hal.stream.wait_event(waiter, event)
    bench.hal.event.record(event, held)
    bench.hal.memory.fill_async(waiter, pointer, 1, SIZE)
    bench.hal.stream.synchronize(waiter)
    bench.still_shut(gate, "a wait for a record that was reached")
    # A wait for the held record does, also when the event is recorded elsewhere, and reached, afterwards.
    bench.hal.stream.wait_event(waiter, event)
    bench.hal.event.record(event, free)
    bench.hal.stream.synchronize(free)
    bench.hal.memory.fill_async(waiter, pointer, 2, SIZE)
    time.sleep(0.05)
    bench.refuses("NOT_READY", "stream.query", waiter)
    bench.still_shut(gate, "recording an event again")
    bench.holds(pointer, b"\x01" * SIZE, "memory that waits for the held record")
    gate.open()
    bench.hal.stream.synchronize(waiter)
    bench.holds(pointer, b"\x02" * SIZE, "memory after the held record was reached")


@also("HAL-EVT-03", "HAL-MEM-04")
def test_str_07_random_work_ends_as_in_order(bench: Bench) -> None:
    """Random copies and fills over several streams, each ordered by events after what it depends on, give
    what the same work gives one after the other."""
    bench.requires_devices(1)
    count = min(int(bench.hal.device.count()), 2)
    for seed in range(6):
        chance = random.Random(seed)
        slots = [bench.allocate(SIZE, 0) for _ in range(4)]
        model = [bytearray(pattern(SIZE, 100 + slot)) for slot in range(4)]
        for pointer, content in zip(slots, model, strict=True):
            bench.put(pointer, bytes(content))
        streams = [bench.stream(0) for _ in range(4)]
        across = bench.stream(count - 1)
        last: list[int | None] = [None] * 4  # the event after which a slot may be touched
        for _ in range(60):
            stream = chance.choice(streams)
            target, source = chance.sample(range(4), 2)
            is_fill = chance.random() < 0.4
            for event in {last[target], None if is_fill else last[source]} - {None}:
                if chance.random() < 0.2:  # through a stream that may be of another device
                    relay = bench.event(count - 1)
                    bench.hal.stream.wait_event(across, event)
                    bench.hal.event.record(relay, across)
                    event = relay
                bench.hal.stream.wait_event(stream, event)
            start = chance.randrange(SIZE - 1)
            size = chance.randrange(1, SIZE - start)
            if is_fill:
                value = chance.randrange(256)
                bench.hal.memory.fill_async(stream, slots[target] + start, value, size)
                model[target][start : start + size] = bytes([value]) * size
            else:
                destination, origin = slots[target] + start, slots[source] + start
                bench.hal.memory.copy_async(stream, destination, origin, size, DEVICE_TO_DEVICE)
                model[target][start : start + size] = model[source][start : start + size]
            done = bench.event(0)
            bench.hal.event.record(done, stream)
            last[target] = done
            if not is_fill:
                last[source] = done  # a later writer of the source waits for this reader
        for device in range(count):
            bench.hal.device.synchronize(device)
        for slot, (pointer, content) in enumerate(zip(slots, model, strict=True)):
            bench.holds(pointer, bytes(content), f"slot {slot} of random work {seed}")
