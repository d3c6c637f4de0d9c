"""GEN-01 to GEN-12: the rules that hold for every function."""

from __future__ import annotations

from torch_fl_base._hal_header import header
from torch_fl_base._hal_types import new_structure
from torch_fl_base.testing.kit.bench import HOST_TO_DEVICE, Bench, constant
from torch_fl_base.testing.kit.checks import cases, equal, expect, isolated, skip
from torch_fl_base.testing.kit.subjects import (
    DEVICE_PARAMETERS,
    FUNCTIONS,
    NEEDS_NO_INIT,
    RELEASING,
    SIZE,
    arguments,
    handle_parameters,
    input_names,
    placeholders,
    undo,
)
from torch_fl_base.testing.kit.threads import together


def _outputs(qualified: str) -> int:
    return sum(parameter.is_output for parameter in header().function(qualified).parameters)


def _with_device(qualified: str) -> list[str]:
    return [name for name in input_names(qualified) if name in DEVICE_PARAMETERS]


NULL_OUTPUTS = [(name, index) for name in FUNCTIONS for index in range(_outputs(name))]
DEVICES = [(name, parameter) for name in FUNCTIONS for parameter in _with_device(name)]
HANDLES = [(name, at) for name in FUNCTIONS for at in handle_parameters(header().function(name))]
SIZES = [name for name in FUNCTIONS if "size" in input_names(name)]


# --- GEN-01 and 02 --------------------------------------------------------------------------------------


@cases("qualified, index", NULL_OUTPUTS, ids=lambda name, index: f"{name}-{index}")
def test_gen_01_null_output_is_an_invalid_argument(bench: Bench, qualified: str, index: int) -> None:
    bench.refuses_null_output(qualified, index, *arguments(bench, qualified))


def test_gen_01_failed_calls_leave_outputs_alone(bench: Bench) -> None:
    bench.refuses("INVALID_DEVICE", "memory.allocate", -1, SIZE)
    bench.refuses("INVALID_DEVICE", "stream.create", -1, None)
    bench.refuses("INVALID_DEVICE", "event.create", -1, 0)
    bench.refuses("INVALID_DEVICE", "device.properties", -1)
    bench.refuses("INVALID_DEVICE", "device.memory_info", -1)
    bench.refuses("INVALID_HANDLE", "stream.device", None)
    if bench.hal.device.count():
        bench.refuses("OUT_OF_MEMORY", "memory.allocate", 0, 2**62)
        bench.refuses("INVALID_ARGUMENT", "event.create", 0, 1 << 30)


def test_gen_02_detail_stays_until_the_next_failure(bench: Bench) -> None:
    bench.refuses("INVALID_DEVICE", "device.synchronize", -1)
    first = bench.detail()
    bench.hal.device.count()
    equal(bench.detail(), first, "the detail after a successful call")
    bench.refuses("INVALID_HANDLE", "stream.query", None)
    equal(bench.detail().function, "stream.query", "the function in the detail after a second failure")


def test_gen_02_detail_strings_are_never_null(bench: Bench) -> None:
    def check() -> None:
        fresh = bench.raw_error()
        equal(fresh.status, 0, "the status in the detail of a thread without failures")
        for name in ("vendor_name", "message", "function"):
            expect(getattr(fresh, name) is not None, f"{name} of a thread without failures is null")
        bench.refuses("INVALID_DEVICE", "device.health", -1)
        failed = bench.raw_error()
        for name in ("vendor_name", "message", "function"):
            expect(getattr(failed, name) is not None, f"{name} after a failure is null")
        equal(failed.reserved, 0, "the reserved member of the detail")

    together([check])


def test_gen_02_not_ready_leaves_no_detail(bench: Bench) -> None:
    bench.requires_devices(1)
    stream = bench.stream()
    event = bench.event()
    bench.refuses("INVALID_DEVICE", "device.health", -1)
    gate = bench.gate(stream)
    bench.hal.event.record(event, stream)
    bench.refuses("NOT_READY", "stream.query", stream)
    bench.refuses("NOT_READY", "event.query", event)
    gate.open()
    bench.hal.stream.synchronize(stream)
    equal(bench.hal.call("stream.query", stream).status, "OK", "the status of stream.query afterwards")


# --- GEN-03 ---------------------------------------------------------------------------------------------


def _turned_away(bench: Bench, status: str, functions: tuple[str, ...]) -> None:
    for qualified in functions:
        if not bench.hal.has(qualified):
            continue
        inputs = placeholders(qualified)
        if qualified in RELEASING:
            equal(bench.hal.call(qualified, *inputs).status, "OK", f"the status of {qualified} when {status}")
        else:
            bench.refuses(status, qualified, *inputs)


REFUSED_BEFORE_INIT = tuple(name for name in FUNCTIONS if name not in NEEDS_NO_INIT)


@isolated(initialised=False)
def test_gen_03_nothing_works_before_init(bench: Bench) -> None:
    _turned_away(bench, "NOT_INITIALIZED", REFUSED_BEFORE_INIT)
    bench.hal.system.info()
    bench.hal.system.init()
    bench.hal.device.count()
    bench.hal.system.shutdown()


@isolated()
def test_gen_03_nothing_works_after_shutdown(bench: Bench) -> None:
    bench.hal.system.shutdown()
    _turned_away(bench, "NOT_INITIALIZED", REFUSED_BEFORE_INIT)
    bench.hal.system.info()
    bench.hal.system.init()


@isolated()
def test_gen_03_late_release_of_live_objects_is_harmless(bench: Bench) -> None:
    bench.requires_devices(1)
    pointer = bench.hal.memory.allocate(0, SIZE)
    stream = bench.hal.stream.create(0, None)
    event = bench.hal.event.create(0, 0)
    bench.hal.event.record(event, stream)
    bench.hal.system.shutdown()
    for qualified, inputs in (
        ("memory.release", (0, pointer)),
        ("event.destroy", (event,)),
        ("stream.destroy", (stream,)),
    ):
        equal(bench.hal.call(qualified, *inputs).status, "OK", f"the status of {qualified} after shutdown")
    bench.hal.system.init()


# --- GEN-05, 06, 07, 08, 10 -----------------------------------------------------------------------------


@cases("qualified, parameter", DEVICES, ids=lambda name, parameter: f"{name}-{parameter}")
def test_gen_05_other_device_indices_are_invalid(bench: Bench, qualified: str, parameter: str) -> None:
    inputs = arguments(bench, qualified)
    at = input_names(qualified).index(parameter)
    count = bench.hal.device.count()
    for wrong in (-1, count, count + 1, 2**31 - 1, -(2**31)):
        bench.refuses("INVALID_DEVICE", qualified, *inputs[:at], wrong, *inputs[at + 1 :])
    outcome = bench.hal.call(qualified, *inputs)
    equal(outcome.status, "OK", f"the status of {qualified} with a valid device afterwards")
    undo(bench, qualified, inputs, outcome.value)


@cases("qualified", [name for name in FUNCTIONS if name not in (*NEEDS_NO_INIT, "device.set_current")])
def test_gen_06_current_device_is_left_alone(bench: Bench, qualified: str) -> None:
    bench.requires_devices(2)
    before = bench.hal.device.get_current()
    other = bench.last_device if before == 0 else 0
    inputs = arguments(bench, qualified, other)
    outcome = bench.hal.call(qualified, *inputs)
    equal(outcome.status, "OK", f"the status of {qualified}")
    equal(bench.hal.device.get_current(), before, f"the current device after {qualified} on device {other}")
    undo(bench, qualified, inputs, outcome.value)
    equal(bench.hal.device.get_current(), before, f"the current device after undoing {qualified}")


def test_gen_06_new_threads_are_on_device_0(bench: Bench) -> None:
    last = bench.last_device
    before = bench.hal.device.get_current()
    bench.hal.device.set_current(last)
    try:
        together([lambda: equal(bench.hal.device.get_current(), 0, "the current device of a new thread")] * 3)
    finally:
        bench.hal.device.set_current(before)


@isolated()
def test_gen_06_all_functions_from_many_threads(bench: Bench) -> None:
    bench.requires_devices(1)
    devices = bench.hal.device.count()
    failures = []

    def work(seed: int) -> None:
        device = seed % devices
        for turn in range(30):
            # The thread's own mark in its own memory: another thread's call must not reach it.
            mark = bytes([(seed * 31 + turn) % 256]) * (64 + seed)
            pointer = bench.hal.memory.allocate(device, 64 + seed)
            stream = bench.hal.stream.create(device, None)
            event = bench.hal.event.create(device, 0)
            bench.hal.memory.fill_async(stream, pointer, mark[0], len(mark))
            bench.hal.event.record(event, stream)
            bench.hal.event.synchronize(event)
            if bench.get(pointer, len(mark), device) != mark:
                failures.append(f"thread {seed}, turn {turn}: its memory was written by another thread")
            info = bench.hal.memory.pointer_info(pointer)
            equal(info.base, pointer, "the base of live memory")
            equal(bench.hal.stream.device(stream), device, "the device of the thread's stream")
            bench.hal.event.destroy(event)
            bench.hal.stream.destroy(stream)
            bench.hal.memory.release(device, pointer)

    together([lambda seed=seed: work(seed) for seed in range(8)])  # type: ignore[misc]
    equal(failures, [], "mixed up data")


ZERO_SIZE_REFUSED = ("host.register_range",)  # HAL-HST-03 says so


@cases("qualified", [name for name in SIZES if name not in ZERO_SIZE_REFUSED])
def test_gen_07_size_0_does_nothing(bench: Bench, qualified: str) -> None:
    inputs = arguments(bench, qualified)
    names = input_names(qualified)
    functions = header().function(qualified).parameters
    pointers = [
        p.name for p in functions if p.type.base == "void" and p.type.pointers == 1 and not p.is_output
    ]
    inputs[names.index("size")] = 0
    outcome = bench.hal.call(qualified, *inputs)
    equal(outcome.status, "OK", f"the status of {qualified} with size 0")
    for name in pointers:
        inputs[names.index(name)] = None
    outcome = bench.hal.call(qualified, *inputs)
    equal(outcome.status, "OK", f"the status of {qualified} with size 0 and null pointers")
    if _outputs(qualified):
        equal(outcome.value, None, f"the pointer from {qualified} with size 0")


@cases("value", [0x00, 0x5A])
def test_gen_07_size_0_writes_nothing(bench: Bench, value: int) -> None:
    pointer = bench.allocate(SIZE)
    bench.put(pointer, b"\x77" * SIZE)
    stream = bench.stream()
    source = bench.host(SIZE, bytes([value]) * SIZE)
    bench.hal.memory.fill(0, pointer, value, 0)
    bench.hal.memory.fill_async(stream, pointer, value, 0)
    bench.hal.memory.copy(0, pointer, source.address, 0, HOST_TO_DEVICE)
    bench.hal.memory.copy_async(stream, pointer, source.address, 0, HOST_TO_DEVICE)
    bench.hal.stream.synchronize(stream)
    bench.holds(pointer, b"\x77" * SIZE, "memory after writes of 0 bytes")


@cases("qualified, at", HANDLES, ids=lambda name, at: f"{name}-{input_names(name)[at]}")
def test_gen_08_null_handle_is_invalid(bench: Bench, qualified: str, at: int) -> None:
    inputs = arguments(bench, qualified)
    bench.refuses("INVALID_HANDLE", qualified, *inputs[:at], None, *inputs[at + 1 :])


@isolated()
@cases("qualified, at", HANDLES, ids=lambda name, at: f"{name}-{input_names(name)[at]}")
def test_gen_08_foreign_handle_is_invalid(bench: Bench, qualified: str, at: int) -> None:
    if not bench.quirks.checks_handles:
        skip("quirks.checks_handles is False: the library cannot tell foreign handles from its own")
    inputs = arguments(bench, qualified)
    foreign = bench.host(SIZE).address
    bench.refuses("INVALID_HANDLE", qualified, *inputs[:at], foreign, *inputs[at + 1 :])


@isolated()
@cases("qualified", ["stream.query", "event.query", "stream.destroy", "event.destroy", "stream.synchronize"])
def test_gen_08_released_handle_is_invalid(bench: Bench, qualified: str) -> None:
    if not bench.quirks.checks_handles:
        skip("quirks.checks_handles is False: the library cannot tell released handles from live ones")
    bench.requires_devices(1)
    if qualified.startswith("stream"):
        handle = bench.hal.stream.create(0, None)
        bench.hal.stream.destroy(handle)
    else:
        handle = bench.hal.event.create(0, 0)
        bench.hal.event.destroy(handle)
    bench.refuses("INVALID_HANDLE", qualified, handle)


def test_gen_10_undefined_bits_and_kinds_are_invalid(bench: Bench) -> None:
    bench.requires_devices(1)
    for bit in (3, 4, 16, 31):
        bench.refuses("INVALID_ARGUMENT", "event.create", 0, 1 << bit)
        bench.refuses("INVALID_ARGUMENT", "event.create", 0, constant("EVENT_TIMING") | 1 << bit)
    for flags in (1, 2, 1 << 31):
        options = new_structure("flagos_hal_stream_options", flags=flags)
        bench.refuses("INVALID_ARGUMENT", "stream.create", 0, options)
    target = bench.allocate(SIZE)
    source = bench.host(SIZE).address
    stream = bench.stream()
    for kind in (-1, 4, 99, 2**31 - 1):
        bench.refuses("INVALID_ARGUMENT", "memory.copy", 0, target, source, SIZE, kind)
        bench.refuses("INVALID_ARGUMENT", "memory.copy_async", stream, target, source, SIZE, kind)
