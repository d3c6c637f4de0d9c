"""Valid arguments for every function of hal.h, for the tests that take all functions in turn.

`arguments(bench, "event.record", device)` makes what the call needs with other functions than the one asked
for, so that a fault injected into its first call hits the test's own call. `placeholders` are arguments for
calls that must be turned away before they are looked at: before init, after shutdown, in a forked child.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from torch_fl_base._hal_header import Function, header
from torch_fl_base._hal_types import ctype, new_structure
from torch_fl_base.testing.kit.bench import HOST_TO_DEVICE, Bench, constant
from torch_fl_base.testing.kit.checks import skip
from torch_fl_base.testing.kit.gate import SEM_POST, Semaphore

SIZE = 4096
FUNCTIONS = tuple(function.qualified for function in header().functions())

NEEDS_NO_INIT = tuple(
    function.qualified for function in header().functions() if function.before_init == "ANYTIME"
)
"""Functions that work before init and after shutdown (GEN-03)."""

RELEASING = tuple(
    function.qualified for function in header().functions() if function.before_init == "RELEASE"
)
"""Functions that are no-ops before init, after shutdown and in a forked child (GEN-03, GEN-04)."""

DEVICE_PARAMETERS = ("device", "peer", "destination_device", "source_device")


def handle_parameters(function: Function) -> list[int]:
    """Return the positions among the inputs that take a handle."""
    inputs = [parameter for parameter in function.parameters if not parameter.is_output]
    return [at for at, parameter in enumerate(inputs) if parameter.type.base in header().opaque]


def input_names(qualified: str) -> list[str]:
    """Return the names of a function's inputs, in order."""
    parameters = header().function(qualified).parameters
    return [
        parameter.name
        for parameter in parameters
        if not parameter.is_output or parameter.name.startswith("inout_")
    ]


def _recorded_event(bench: Bench, device: int, flags: int = 0) -> int:
    event = bench.event(device, flags)
    bench.hal.event.record(event, bench.default_stream(device))
    bench.hal.device.synchronize(device)
    return event


def _timed_pair(bench: Bench, device: int) -> list[Any]:
    timing = constant("EVENT_TIMING")
    return [_recorded_event(bench, device, timing), _recorded_event(bench, device, timing)]


def _other(bench: Bench, device: int) -> int:
    bench.requires_devices(2)
    return (device + 1) % int(bench.hal.device.count())


def _peer_pair(bench: Bench, device: int) -> list[Any]:
    other = _other(bench, device)
    if not bench.hal.peer.can_access(device, other):
        skip(f"device {device} cannot address memory of device {other}")
    return [device, other]


def _peer_copy(bench: Bench, device: int) -> list[Any]:
    other = _other(bench, device)
    return [
        bench.stream(device),
        other,
        bench.allocate(SIZE, other),
        device,
        bench.allocate(SIZE, device),
        SIZE,
    ]


def _managed(bench: Bench, device: int) -> list[Any]:
    if bench.capability("HOST_ACCESS") != constant("HOST_ACCESS_MANAGED"):
        skip("capability HOST_ACCESS is not MANAGED")
    return [device, bench.allocate(SIZE, device), SIZE, constant("ACCESS_READ")]


def _access_begun(bench: Bench, device: int) -> list[Any]:
    inputs = _managed(bench, device)
    bench.hal.host.begin_access(*inputs)
    return inputs


def _registered(bench: Bench) -> list[Any]:
    buffer = bench.host(SIZE)
    bench.hal.host.register_range(buffer.address, SIZE)
    bench.later(lambda: _ignore(bench, "host.unregister_range", buffer.address))
    return [buffer.address]


def _ignore(bench: Bench, qualified: str, *inputs: Any) -> None:
    bench.hal.call(qualified, *inputs)


def _pinned_source(bench: Bench) -> int:
    return bench.pinned(SIZE) if bench.hal.has("host.allocate") else bench.host(SIZE).address


def _to_release(bench: Bench, device: int) -> list[Any]:
    return [device, bench.hal.memory.allocate(device, SIZE)]


def exported_elsewhere(bench: Bench, device: int, what: str) -> Any:
    """Return the handle of memory or an event that another process exports, and keeps alive until the bench
    is closed."""
    from torch_fl_base.testing.kit.ipc_peer import Exporter

    exporter = Exporter(bench, what, device)
    bench.later(exporter.close)
    return exporter.handle


def _imported(bench: Bench, device: int) -> list[Any]:
    pointer = bench.hal.ipc.import_memory(device, exported_elsewhere(bench, device, "memory"))
    return [device, pointer]


def _captured(bench: Bench, device: int) -> int:
    stream = bench.stream(device)
    target = bench.allocate(SIZE, device)
    bench.hal.graph.begin_capture(stream, constant("CAPTURE_RELAXED"))
    bench.hal.memory.fill_async(stream, target, 7, SIZE)
    graph = int(bench.hal.graph.end_capture(stream))
    bench.later(lambda: _ignore(bench, "graph.destroy", graph))
    return graph


def _capturing(bench: Bench, device: int) -> list[Any]:
    stream = bench.stream(device)
    bench.hal.graph.begin_capture(stream, constant("CAPTURE_RELAXED"))
    return [stream]


def _semaphore_callback(bench: Bench, device: int) -> list[Any]:
    semaphore = Semaphore()
    bench.later(lambda: _ignore(bench, "device.synchronize", device))
    bench.keep(semaphore)
    return [bench.stream(device), SEM_POST, semaphore.address]


def _sink(bench: Bench) -> list[Any]:
    kind = header().function("trace.start").parameters[0].type
    function = ctype(kind)(lambda context, activity: None)
    bench.keep(function)
    bench.later(lambda: _ignore(bench, "trace.stop"))
    return [function, None]


def _async_memory(bench: Bench, device: int) -> list[Any]:
    stream = bench.stream(device)
    return [stream, bench.hal.async_alloc.allocate_async(stream, SIZE)]


_MAKERS: dict[str, Callable[[Bench, int], list[Any]]] = {
    "system.init": lambda b, d: [],
    "system.shutdown": lambda b, d: [],
    "system.info": lambda b, d: [],
    "system.last_error": lambda b, d: [],
    "system.capability": lambda b, d: [constant("CAP_ALIGNMENT")],
    "device.count": lambda b, d: [],
    "device.set_current": lambda b, d: [d],
    "device.get_current": lambda b, d: [],
    "device.properties": lambda b, d: [d],
    "device.memory_info": lambda b, d: [d],
    "device.synchronize": lambda b, d: [d],
    "device.health": lambda b, d: [d],
    "memory.allocate": lambda b, d: [d, SIZE],
    "memory.release": _to_release,
    "memory.copy": lambda b, d: [d, b.allocate(SIZE, d), b.host(SIZE).address, SIZE, HOST_TO_DEVICE],
    "memory.copy_async": lambda b, d: [
        b.stream(d),
        b.allocate(SIZE, d),
        _pinned_source(b),
        SIZE,
        HOST_TO_DEVICE,
    ],
    "memory.fill": lambda b, d: [d, b.allocate(SIZE, d), 1, SIZE],
    "memory.fill_async": lambda b, d: [b.stream(d), b.allocate(SIZE, d), 1, SIZE],
    "memory.pointer_info": lambda b, d: [b.allocate(SIZE, d)],
    "stream.create": lambda b, d: [d, None],
    "stream.destroy": lambda b, d: [b.hal.stream.create(d, None)],
    "stream.default_stream": lambda b, d: [d],
    "stream.priority_range": lambda b, d: [d],
    "stream.query": lambda b, d: [b.stream(d)],
    "stream.synchronize": lambda b, d: [b.stream(d)],
    "stream.wait_event": lambda b, d: [b.stream(d), _recorded_event(b, d)],
    "stream.native_handle": lambda b, d: [b.stream(d)],
    "stream.device": lambda b, d: [b.stream(d)],
    "stream.host_callback": _semaphore_callback,
    "event.create": lambda b, d: [d, 0],
    "event.destroy": lambda b, d: [b.hal.event.create(d, 0)],
    "event.record": lambda b, d: [b.event(d), b.stream(d)],
    "event.query": lambda b, d: [_recorded_event(b, d)],
    "event.synchronize": lambda b, d: [_recorded_event(b, d)],
    "event.elapsed": _timed_pair,
    "host.allocate": lambda b, d: [SIZE],
    "host.release": lambda b, d: [b.hal.host.allocate(SIZE)],
    "host.register_range": lambda b, d: [b.host(SIZE).address, SIZE],
    "host.unregister_range": lambda b, d: _registered(b),
    "host.begin_access": _managed,
    "host.end_access": _access_begun,
    "peer.can_access": lambda b, d: [d, _other(b, d)],
    "peer.enable": _peer_pair,
    "peer.disable": lambda b, d: [d, _other(b, d)],
    "peer.copy_async": _peer_copy,
    "ipc.export_memory": lambda b, d: [d, b.allocate(SIZE, d)],
    "ipc.import_memory": lambda b, d: [d, exported_elsewhere(b, d, "memory")],
    "ipc.close_memory": _imported,
    "ipc.export_event": lambda b, d: [b.event(d, constant("EVENT_INTERPROCESS"))],
    "ipc.import_event": lambda b, d: [d, exported_elsewhere(b, d, "event")],
    "graph.begin_capture": lambda b, d: [b.stream(d), constant("CAPTURE_RELAXED")],
    "graph.end_capture": _capturing,
    "graph.is_capturing": lambda b, d: [b.stream(d)],
    "graph.launch": lambda b, d: [_captured(b, d), b.stream(d)],
    "graph.destroy": lambda b, d: [_captured(b, d)],
    "graph.exchange_thread_mode": lambda b, d: [constant("CAPTURE_RELAXED")],
    "trace.start": lambda b, d: _sink(b),
    "trace.stop": lambda b, d: [],
    "trace.now": lambda b, d: [],
    "trace.exchange_correlation": lambda b, d: [5],
    "async_alloc.allocate_async": lambda b, d: [b.stream(d), SIZE],
    "async_alloc.release_async": _async_memory,
    "async_alloc.trim": lambda b, d: [d, 0],
}


def arguments(bench: Bench, qualified: str, device: int = 0) -> list[Any]:
    """Return valid inputs for a function on `device`. Skips where the library or the machine lacks what it
    takes."""
    bench.requires(qualified.partition(".")[0])
    bench.requires(qualified)
    if qualified not in (
        "device.count",
        "system.init",
        "system.shutdown",
        "system.info",
        "system.last_error",
    ):
        bench.requires_devices(device + 1)
    return _MAKERS[qualified](bench, device)


def undo(bench: Bench, qualified: str, inputs: list[Any], output: Any) -> None:
    """Give back what a successful call of a function made."""
    releases: dict[str, tuple[str, list[Any]]] = {
        "memory.allocate": ("memory.release", [inputs[0] if inputs else 0, output]),
        "stream.create": ("stream.destroy", [output]),
        "event.create": ("event.destroy", [output]),
        "host.allocate": ("host.release", [output]),
        "host.register_range": ("host.unregister_range", inputs[:1]),
        "host.begin_access": ("host.end_access", inputs),
        "ipc.import_memory": ("ipc.close_memory", [inputs[0] if inputs else 0, output]),
        "ipc.import_event": ("event.destroy", [output]),
        "graph.begin_capture": ("graph.end_capture", inputs[:1]),
        "graph.end_capture": ("graph.destroy", [output]),
        "graph.exchange_thread_mode": ("graph.exchange_thread_mode", [output]),
        "trace.start": ("trace.stop", []),
        "trace.exchange_correlation": ("trace.exchange_correlation", [0]),
        "peer.enable": ("peer.disable", inputs),
        "async_alloc.allocate_async": ("async_alloc.release_async", [inputs[0] if inputs else 0, output]),
    }
    if qualified in releases:
        name, release_inputs = releases[qualified]
        outcome = bench.hal.call(name, *release_inputs)
        if name == "graph.end_capture" and outcome.status == "OK":
            bench.hal.graph.destroy(outcome.value)


_SCRATCH = (ctypes.c_uint64 * 2048)()


def placeholders(qualified: str) -> list[Any]:
    """Return inputs of the right types that stand for nothing: pointers and handles lead to zeroed memory of
    the kit."""
    scratch = ctypes.addressof(_SCRATCH)
    values: list[Any] = []
    for parameter in header().function(qualified).parameters:
        if parameter.is_output and not parameter.name.startswith("inout_"):
            continue
        kind = parameter.type
        if kind.base in header().structures:
            values.append(new_structure(kind.base))
        elif kind.base == "function":
            values.append(SEM_POST)
        elif kind.pointers and not parameter.is_output:
            values.append(scratch)
        else:
            values.append(
                {"size": SIZE, "kind": HOST_TO_DEVICE, "access": constant("ACCESS_READ")}.get(
                    parameter.name, 0
                )
            )
    return values
