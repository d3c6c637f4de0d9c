"""HAL-STR-01 to 10."""

from __future__ import annotations

import random
import time

from torch_fl_base._hal_types import new_structure
from torch_fl_base.testing.kit.bench import DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, Bench
from torch_fl_base.testing.kit.checks import also, equal, expect, isolated, same_bytes, skip
from torch_fl_base.testing.kit.gate import SEM_POST, Semaphore
from torch_fl_base.testing.kit.memory import pattern
from torch_fl_base.testing.kit.subjects import SIZE
from torch_fl_base.testing.kit.threads import together

# --------------------------------------------------------------------------------------------- create,
# destroy ----


def test_str_01_takes_any_priority(bench: Bench) -> None:
    bench.requires_devices(1)
    for device in range(bench.hal.device.count()):
        least, greatest = bench.hal.stream.priority_range(device)
        for priority in (0, least, greatest, least + 1, greatest - 1, 2**31 - 1, -(2**31)):
            options = new_structure("flagos_hal_stream_options", priority=priority)
            stream = bench.hal.stream.create(device, options)
            bench.hal.stream.synchronize(stream)
            bench.hal.stream.destroy(stream)


def test_str_01_takes_shorter_and_longer_options(bench: Bench) -> None:
    bench.requires_devices(1)
    kind = type(new_structure("flagos_hal_stream_options"))
    # Of a shorter caller the library reads only what that caller knew: flags is not there, whatever lies
    # behind.
    shorter = kind(struct_size=kind.flags.offset, priority=0, flags=0xFFFFFFFF)
    bench.hal.stream.destroy(bench.hal.stream.create(0, shorter))
    bench.hal.stream.destroy(bench.hal.stream.create(0, kind(struct_size=4096)))


def test_str_01_streams_are_distinct_and_independent(bench: Bench) -> None:
    bench.requires_devices(1)
    streams = [bench.stream() for _ in range(4)]
    handles = {*streams, bench.default_stream()}
    equal(len(handles), 5, "the number of different handles of 4 streams and the default one")
    gate = bench.gate(streams[0])
    pointer = bench.allocate(SIZE)
    for value, stream in enumerate([*streams[1:], bench.default_stream()], start=1):
        bench.hal.memory.fill_async(stream, pointer, value, SIZE)
        bench.hal.stream.synchronize(stream)
        bench.holds(pointer, bytes([value]) * SIZE, "memory filled while another stream is held up")
    bench.still_shut(gate, "work on other streams")


def test_str_01_default_stream_does_not_hold_others_up(bench: Bench) -> None:
    bench.requires_devices(1)
    stream = bench.stream()
    pointer = bench.allocate(SIZE)
    gate = bench.gate(bench.default_stream())
    bench.hal.memory.fill_async(stream, pointer, 9, SIZE)
    bench.hal.stream.synchronize(stream)
    bench.still_shut(gate, "work on a stream beside the default stream")
    gate.open()
    bench.hal.stream.synchronize(bench.default_stream())


@isolated()
def test_str_01_more_streams_than_there_can_be_are_out_of_memory(bench: Bench) -> None:
    bench.requires_devices(1)
    limit = bench.capability("MAX_STREAMS")
    if not 0 < limit <= 4096:
        skip(f"capability MAX_STREAMS is {limit}")
    streams = []
    for _ in range(limit + 1):
        outcome = bench.hal.call("stream.create", 0, None)
        if outcome.status != "OK":
            break
        streams.append(outcome.value)
    bench.refuses("OUT_OF_MEMORY", "stream.create", 0, None)
    expect(len(streams) >= limit - 1, f"only {len(streams)} of MAX_STREAMS {limit} streams could be made")
    bench.hal.stream.destroy(streams.pop())
    streams.append(bench.hal.stream.create(0, None))
    for stream in streams:
        bench.hal.stream.destroy(stream)


def test_str_02_destroy_waits_for_the_work(bench: Bench) -> None:
    bench.requires_devices(1)
    stream = bench.hal.stream.create(0, None)
    pointer = bench.allocate(SIZE)
    bench.put(pointer, b"\x00" * SIZE)
    gate = bench.gate(stream)
    bench.hal.memory.fill_async(stream, pointer, 0x29, SIZE)
    gate.open_after(0.1)
    bench.hal.stream.destroy(stream)
    expect(gate.is_open, "stream.destroy returned before the stream's work was done")
    bench.holds(pointer, b"\x29" * SIZE, "memory after the stream with a fill was destroyed")


def test_str_02_default_stream_is_not_destroyed(bench: Bench) -> None:
    bench.requires_devices(1)
    for device in range(bench.hal.device.count()):
        stream = bench.default_stream(device)
        bench.refuses("INVALID_HANDLE", "stream.destroy", stream)
        bench.hal.stream.synchronize(stream)


def test_str_02_streams_come_and_go(bench: Bench) -> None:
    bench.requires_devices(1)
    free = bench.memory_of(0)[0]
    for _ in range(100):
        stream = bench.hal.stream.create(0, None)
        bench.hal.stream.destroy(stream)
    if bench.quirks.private_memory:
        equal(bench.memory_of(0)[0], free, "free memory after 100 streams")


# ----------------------------------------------------------------------------------------------------
# answers ----


def test_str_03_default_stream_is_one_per_device(bench: Bench) -> None:
    bench.requires_devices(1)
    count = bench.hal.device.count()
    handles = [bench.hal.stream.default_stream(device) for device in range(count)]
    expect(None not in handles, "a default stream is null")
    equal(len(set(handles)), count, "the number of different default streams")

    def check() -> None:
        for device in range(count):
            equal(
                bench.hal.stream.default_stream(device),
                handles[device],
                "the default stream on another thread",
            )

    together([check] * 4)
    for device in range(count):
        pointer = bench.allocate(SIZE, device)
        bench.hal.memory.fill_async(handles[device], pointer, 5, SIZE)
        bench.hal.stream.synchronize(handles[device])
        bench.holds(pointer, b"\x05" * SIZE, "memory filled on the default stream", device)


def test_str_04_priority_range_holds_0(bench: Bench) -> None:
    bench.requires_devices(1)
    for device in range(bench.hal.device.count()):
        least, greatest = bench.hal.stream.priority_range(device)
        expect(least >= 0 >= greatest, f"least {least} ≥ 0 ≥ greatest {greatest} does not hold")


def test_str_05_idle_stream_is_ready(bench: Bench) -> None:
    bench.requires_devices(1)
    for stream in (bench.stream(), bench.default_stream()):
        bench.hal.stream.synchronize(stream)
        equal(bench.hal.call("stream.query", stream).status, "OK", "stream.query on an idle stream")


def test_str_05_pending_work_is_not_ready(bench: Bench) -> None:
    bench.requires_devices(1)
    stream = bench.stream()
    pointer = bench.allocate(SIZE)
    gate = bench.gate(stream)
    bench.hal.memory.fill_async(stream, pointer, 1, SIZE)
    for _ in range(3):
        bench.refuses("NOT_READY", "stream.query", stream)
    bench.still_shut(gate, "stream.query")
    gate.open()
    bench.hal.stream.synchronize(stream)
    equal(bench.hal.call("stream.query", stream).status, "OK", "stream.query after synchronize")


def test_str_05_large_work_is_not_ready_at_once(bench: Bench) -> None:
    """Asynchrony must show without any help from host callbacks."""
    bench.requires_async()
    bench.requires_devices(1)
    size = 64 << 20
    pointer, stream = bench.allocate(size), bench.stream()
    attempts = (4, 8, 16, 32, 64, 128)
    for attempt in attempts:
        for value in range(attempt):
            bench.hal.memory.fill_async(stream, pointer, value, size)
        status = bench.hal.call("stream.query", stream).status
        bench.hal.stream.synchronize(stream)
        if status == "NOT_READY":
            return
    raise AssertionError(
        f"up to {attempts[-1]} fills of {size >> 20} MiB were done when the calls returned, though "
        "ASYNC_STREAMS is 1"
    )


def test_str_05_synchronous_streams_are_always_ready(bench: Bench) -> None:
    bench.requires_devices(1)
    if bench.capability("ASYNC_STREAMS"):
        skip("capability ASYNC_STREAMS is 1")
    stream, pointer = bench.stream(), bench.allocate(1 << 20)
    for value in range(20):
        bench.hal.memory.fill_async(stream, pointer, value, 1 << 20)
        equal(bench.hal.call("stream.query", stream).status, "OK", "stream.query on a synchronous stream")
        bench.holds(pointer, bytes([value]) * (1 << 20), "memory right after a synchronous fill")


def test_str_06_synchronize_waits(bench: Bench) -> None:
    bench.requires_devices(1)
    stream, pointer = bench.stream(), bench.allocate(SIZE)
    bench.put(pointer, b"\x00" * SIZE)
    gate = bench.gate(stream)
    bench.hal.memory.fill_async(stream, pointer, 0x31, SIZE)
    gate.open_after(0.1)
    bench.hal.stream.synchronize(stream)
    expect(gate.is_open, "stream.synchronize returned before the stream went on")
    bench.holds(pointer, b"\x31" * SIZE, "memory after stream.synchronize")


def test_str_06_synchronize_waits_for_its_own_stream_only(bench: Bench) -> None:
    bench.requires_devices(1)
    stream, other = bench.stream(), bench.stream()
    gate = bench.gate(other)
    bench.hal.stream.synchronize(stream)
    bench.still_shut(gate, "stream.synchronize of another stream")


# ----------------------------------------------------------------------------------------------------- order
# ----


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


# ------------------------------------------------------------------------------------------- other functions
# ----


def test_str_08_native_handle_is_stable(bench: Bench) -> None:
    bench.requires_devices(1)
    for stream in (bench.stream(), bench.default_stream()):
        first = bench.hal.stream.native_handle(stream)
        equal(bench.hal.stream.native_handle(stream), first, "the native handle asked again")

        def check(stream: int = stream, first: int | None = first) -> None:
            equal(bench.hal.stream.native_handle(stream), first, "the native handle on another thread")

        together([check])
    one, two = bench.stream(), bench.stream()
    expect(
        bench.hal.stream.native_handle(one) != bench.hal.stream.native_handle(two),
        "two streams have one native handle",
    )


def test_str_09_stream_knows_its_device(bench: Bench) -> None:
    bench.requires_devices(1)
    for device in range(bench.hal.device.count()):
        equal(bench.hal.stream.device(bench.stream(device)), device, "the device of a stream")
        equal(bench.hal.stream.device(bench.default_stream(device)), device, "the device of a default stream")


def test_str_10_callback_runs_once_with_its_argument(bench: Bench) -> None:
    bench.requires("stream.host_callback")
    bench.requires_devices(1)
    stream = bench.stream()
    semaphores = [Semaphore() for _ in range(3)]
    for semaphore in semaphores:
        bench.keep(semaphore)
        bench.hal.stream.host_callback(stream, SEM_POST, semaphore.address)
    bench.hal.stream.synchronize(stream)
    equal([semaphore.value for semaphore in semaphores], [1, 1, 1], "how often each callback has run")
    time.sleep(0.02)
    equal([semaphore.value for semaphore in semaphores], [1, 1, 1], "how often each callback has run later")


def test_str_10_callback_runs_in_the_order_of_the_stream(bench: Bench) -> None:
    bench.requires("stream.host_callback")
    bench.requires_devices(1)
    stream, pointer = bench.stream(), bench.allocate(SIZE)
    semaphore = Semaphore()
    bench.keep(semaphore)
    bench.put(pointer, b"\x00" * SIZE)
    gate = bench.gate(stream)
    bench.hal.stream.host_callback(stream, SEM_POST, semaphore.address)
    bench.hal.memory.fill_async(stream, pointer, 1, SIZE)
    time.sleep(0.05)
    equal(semaphore.value, 0, "how often a callback ran whose stream is held up")
    bench.holds(pointer, b"\x00" * SIZE, "memory that later work must not have touched yet")
    gate.open()
    bench.hal.stream.synchronize(stream)
    equal(semaphore.value, 1, "how often the callback ran")
    bench.holds(pointer, b"\x01" * SIZE, "memory after the callback")


def test_str_10_null_function_is_an_invalid_argument(bench: Bench) -> None:
    bench.requires("stream.host_callback")
    stream = bench.stream()
    bench.refuses("INVALID_ARGUMENT", "stream.host_callback", stream, None, None)
    bench.hal.stream.synchronize(stream)


def test_str_10_takes_a_null_argument(bench: Bench) -> None:
    bench.requires("stream.host_callback")
    import ctypes

    stream = bench.stream()
    tell = ctypes.CDLL(None).fflush  # of null: flushes everything, harmless from any thread
    bench.hal.stream.host_callback(stream, ctypes.cast(tell, ctypes.c_void_p).value, None)
    bench.hal.stream.synchronize(stream)


@also("HAL-MEM-04")
def test_str_10_callback_sees_what_was_queued_before(bench: Bench) -> None:
    """A waiting thread that a callback wakes finds the copy before it done, without any synchronisation of
    its own."""
    bench.requires("stream.host_callback")
    stream, pointer = bench.stream(), bench.allocate(1 << 20)
    target = bench.host(1 << 20, b"\x00" * (1 << 20))
    semaphore = Semaphore()
    bench.keep(semaphore)
    for value in range(1, 6):
        bench.hal.memory.fill_async(stream, pointer, value, 1 << 20)
        bench.hal.memory.copy_async(stream, target.address, pointer, 1 << 20, DEVICE_TO_HOST)
        bench.hal.stream.host_callback(stream, SEM_POST, semaphore.address)
        wait_for(semaphore)
        same_bytes(
            target.read(), bytes([value]) * (1 << 20), "host memory when the callback behind the copy runs"
        )


def wait_for(semaphore: Semaphore, limit_s: float = 10.0) -> None:
    """Wait until a semaphore was posted, and take the post."""
    deadline = time.monotonic() + limit_s
    while semaphore.value == 0:
        expect(time.monotonic() < deadline, f"the callback has not run within {limit_s:.0f} s")
        time.sleep(0.001)
    semaphore.wait()


@isolated()
@also("HAL-STR-06")
def test_str_05_threads_may_query_a_busy_stream(bench: Bench) -> None:
    bench.requires_devices(1)
    stream, pointer = bench.stream(), bench.allocate(SIZE)
    source = bench.host(SIZE, pattern(SIZE, 8))
    gate = bench.gate(stream)
    bench.hal.memory.copy_async(stream, pointer, source.address, SIZE, HOST_TO_DEVICE)
    gate.open_after(0.1)

    def poll() -> None:
        while bench.hal.call("stream.query", stream).status == "NOT_READY":
            time.sleep(0.001)

    together([poll] * 4 + [lambda: bench.hal.stream.synchronize(stream)] * 4)
    bench.holds(pointer, pattern(SIZE, 8), "memory after the stream was ready")
