"""HAL-IPC-01 to 05. The exporting side is another process."""

from __future__ import annotations

from torch_fl_base._hal_types import new_structure
from torch_fl_base.testing.kit.bench import Bench, constant
from torch_fl_base.testing.kit.checks import equal, expect, isolated, one_of
from torch_fl_base.testing.kit.ipc_peer import EXPORTED, Exporter
from torch_fl_base.testing.kit.subjects import SIZE

INTERPROCESS = constant("EVENT_INTERPROCESS")


def _exporter(bench: Bench, what: str, device: int = 0) -> Exporter:
    bench.requires("ipc")
    bench.requires_devices(device + 1)
    exporter = Exporter(bench, what, device)
    bench.later(exporter.close)
    return exporter


def test_ipc_01_names_an_allocation(bench: Bench) -> None:
    bench.requires("ipc.export_memory")
    pointer = bench.allocate(SIZE)
    handle = bench.hal.ipc.export_memory(0, pointer)
    expect(0 < handle.size <= constant("IPC_HANDLE_SIZE"), f"the handle has {handle.size} bytes")
    equal(handle.reserved, 0, "the reserved member of the handle")
    equal(bytes(bench.hal.ipc.export_memory(0, pointer).data) != b"", True, "exporting it again")


def test_ipc_01_takes_the_start_of_an_allocation_only(bench: Bench) -> None:
    bench.requires("ipc.export_memory")
    pointer = bench.allocate(SIZE)
    bench.refuses("INVALID_HANDLE", "ipc.export_memory", 0, pointer + 64)
    bench.refuses("INVALID_HANDLE", "ipc.export_memory", 0, bench.host(SIZE).address)
    bench.refuses("INVALID_HANDLE", "ipc.export_memory", 0, None)


@isolated()
def test_ipc_02_processes_share_memory(bench: Bench) -> None:
    exporter = _exporter(bench, "memory")
    pointer = bench.hal.ipc.import_memory(0, exporter.handle)
    bench.holds(pointer, bytes([EXPORTED]) * SIZE, "imported memory")
    bench.hal.memory.fill(0, pointer, 0x55, SIZE)
    equal(exporter.ask("first byte"), str(0x55), "the first byte as the exporting process sees it")
    info = bench.hal.memory.pointer_info(pointer)
    equal((info.kind, info.device), (constant("MEMORY_DEVICE"), 0), "kind and device of imported memory")
    bench.hal.ipc.close_memory(0, pointer)
    equal(exporter.ask("first byte"), str(0x55), "the first byte after the import was closed")


def test_ipc_02_garbage_is_no_handle(bench: Bench) -> None:
    bench.requires("ipc.import_memory")
    bench.requires_devices(1)
    empty = new_structure("flagos_hal_ipc_handle")
    bench.refuses("INVALID_ARGUMENT", "ipc.import_memory", 0, empty)
    oversized = new_structure("flagos_hal_ipc_handle", size=constant("IPC_HANDLE_SIZE") + 1)
    bench.refuses("INVALID_ARGUMENT", "ipc.import_memory", 0, oversized)
    bench.refuses("INVALID_ARGUMENT", "ipc.import_memory", 0, None)


def test_ipc_02_own_handle_works_or_is_unsupported(bench: Bench) -> None:
    bench.requires("ipc")
    pointer = bench.allocate(SIZE)
    bench.put(pointer, b"\x13" * SIZE)
    handle = bench.hal.ipc.export_memory(0, pointer)
    outcome = bench.hal.call("ipc.import_memory", 0, handle)
    one_of(outcome.status, ["OK", "UNSUPPORTED"], "the status of importing a handle of this process")
    if outcome.status == "OK":
        bench.holds(outcome.value, b"\x13" * SIZE, "memory imported by the process that exported it")
        bench.hal.ipc.close_memory(0, outcome.value)
        bench.holds(pointer, b"\x13" * SIZE, "the exported memory afterwards")


@isolated()
def test_ipc_03_closes_what_was_imported_only(bench: Bench) -> None:
    exporter = _exporter(bench, "memory")
    own = bench.allocate(SIZE)
    bench.refuses("INVALID_HANDLE", "ipc.close_memory", 0, own)
    pointer = bench.hal.ipc.import_memory(0, exporter.handle)
    bench.refuses("INVALID_HANDLE", "memory.release", 0, pointer)
    bench.hal.ipc.close_memory(0, pointer)
    bench.refuses("INVALID_HANDLE", "ipc.close_memory", 0, pointer)


def test_ipc_04_takes_interprocess_events_only(bench: Bench) -> None:
    bench.requires("ipc.export_event")
    bench.refuses("INVALID_STATE", "ipc.export_event", bench.event())
    handle = bench.hal.ipc.export_event(bench.event(0, INTERPROCESS))
    expect(0 < handle.size <= constant("IPC_HANDLE_SIZE"), f"the handle has {handle.size} bytes")


@isolated()
def test_ipc_05_processes_share_an_event(bench: Bench) -> None:
    exporter = _exporter(bench, "event")
    bench.requires_async()
    event = bench.hal.ipc.import_event(0, exporter.handle)
    exporter.ask("record held")
    bench.refuses("NOT_READY", "event.query", event)
    stream, pointer = bench.stream(), bench.allocate(SIZE)
    bench.put(pointer, b"\x00" * SIZE)
    bench.hal.stream.wait_event(stream, event)
    bench.hal.memory.fill_async(stream, pointer, 1, SIZE)
    bench.refuses("NOT_READY", "stream.query", stream)
    exporter.ask("go")
    bench.hal.event.synchronize(event)
    bench.hal.stream.synchronize(stream)
    bench.holds(pointer, b"\x01" * SIZE, "memory after waiting for another process' event")
    bench.hal.event.destroy(event)


@isolated()
def test_ipc_05_garbage_is_no_handle(bench: Bench) -> None:
    bench.requires("ipc.import_event")
    bench.requires_devices(1)
    bench.refuses("INVALID_ARGUMENT", "ipc.import_event", 0, new_structure("flagos_hal_ipc_handle"))
    exporter = _exporter(bench, "memory")
    bench.refuses("INVALID_ARGUMENT", "ipc.import_event", 0, exporter.handle)
