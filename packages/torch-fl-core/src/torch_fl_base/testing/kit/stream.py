"""HAL-STR-01 to 10."""

from __future__ import annotations

import time

from torch_fl_base._hal_types import new_structure
from torch_fl_base.testing.kit.bench import HOST_TO_DEVICE, Bench
from torch_fl_base.testing.kit.checks import also, equal, expect, isolated, skip
from torch_fl_base.testing.kit.memory import pattern
from torch_fl_base.testing.kit.subjects import SIZE
from torch_fl_base.testing.kit.threads import together

# --- create, destroy ------------------------------------------------------------------------------------


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
    gate.open_after(0.25)
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


# --- answers --------------------------------------------------------------------------------------------


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
    gate.open_after(0.25)
    bench.hal.stream.synchronize(stream)
    expect(gate.is_open, "stream.synchronize returned before the stream went on")
    bench.holds(pointer, b"\x31" * SIZE, "memory after stream.synchronize")


def test_str_06_synchronize_waits_for_its_own_stream_only(bench: Bench) -> None:
    bench.requires_devices(1)
    stream, other = bench.stream(), bench.stream()
    gate = bench.gate(other)
    bench.hal.stream.synchronize(stream)
    bench.still_shut(gate, "stream.synchronize of another stream")


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


@isolated()
@also("HAL-STR-06")
def test_str_05_threads_may_query_a_busy_stream(bench: Bench) -> None:
    bench.requires_devices(1)
    stream, pointer = bench.stream(), bench.allocate(SIZE)
    source = bench.host(SIZE, pattern(SIZE, 8))
    gate = bench.gate(stream)
    bench.hal.memory.copy_async(stream, pointer, source.address, SIZE, HOST_TO_DEVICE)
    gate.open_after(0.25)

    def poll() -> None:
        while bench.hal.call("stream.query", stream).status == "NOT_READY":
            time.sleep(0.001)

    together([poll] * 4 + [lambda: bench.hal.stream.synchronize(stream)] * 4)
    bench.holds(pointer, pattern(SIZE, 8), "memory after the stream was ready")
