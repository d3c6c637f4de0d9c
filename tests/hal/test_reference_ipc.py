"""Memory and events of the reference HAL that other processes use: with FLAGOS_REFERENCE_IPC=1 only."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from torch_fl_base._hal import Hal
from torch_fl_base._hal_types import new_structure

SIZE = 4096
TO_HOST, TO_DEVICE = 2, 1
INTERPROCESS = 4

# What the other process does: it exports memory and an event, prints both handles, and obeys one word a line.
EXPORTER = """
import sys
from torch_fl_base._hal import load
hal = load("reference", sys.argv[1])
hal.system.init()
memory, stream, event = hal.memory.allocate(1, 4096), hal.stream.create(1, None), hal.event.create(1, 4)
hal.memory.fill(1, memory, 0x2A, 4096)
print(bytes(hal.ipc.export_memory(1, memory)).hex(), flush=True)
print(bytes(hal.ipc.export_event(event)).hex(), flush=True)
for line in sys.stdin:
    word = line.strip()
    if word == "record":
        hal.memory.fill_async(stream, memory, 0x2B, 4096)
        hal.event.record(event, stream)
    elif word == "release":
        hal.stream.synchronize(stream)
        hal.memory.release(1, memory)
        hal.event.destroy(event)
    elif word == "shutdown":
        hal.system.shutdown()
    print("done", flush=True)
"""


class Exporter:
    """The other process; the handles of what it exports are `memory` and `event`."""

    def __init__(self, hal: Hal, **variables: str) -> None:
        environment = {**os.environ, **{f"FLAGOS_REFERENCE_{name}": text for name, text in variables.items()}}
        self.process = subprocess.Popen(
            [sys.executable, "-c", EXPORTER, hal.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self.memory, self.event = self._handle(), self._handle()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def _handle(self) -> Any:
        return type(new_structure("flagos_hal_ipc_handle")).from_buffer_copy(bytes.fromhex(self._line()))

    def ask(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        assert self._line() == "done"

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def _status(hal: Hal, function: str, *inputs: object) -> str:
    return hal.call(function, *inputs).status


def _bytes(hal: Hal, device: int, pointer: int) -> bytes:
    target = ctypes.create_string_buffer(SIZE)
    hal.memory.copy(device, target, pointer, SIZE, TO_HOST)
    return target.raw


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.reference
def test_without_the_variable_there_is_no_group(hal: Hal) -> None:
    assert not hal.has("ipc")
    assert _status(hal, "event.create", 0, INTERPROCESS) == "UNSUPPORTED"
    assert "FLAGOS_REFERENCE_IPC=1" in hal.last_error().message


@pytest.mark.parametrize("fault", ["0", "1"])
@pytest.mark.reference(init=False, IPC="1")
def test_memory_is_shared_both_ways_in_both_modes(hal: Hal, fault: str) -> None:
    os.environ["FLAGOS_REFERENCE_MEMORY_FAULT"] = fault
    hal.system.init()
    exporter = Exporter(hal)
    free = hal.device.memory_info(0)
    pointer = hal.ipc.import_memory(0, exporter.memory)
    assert hal.device.memory_info(0) == free  # it is the other's memory
    assert _bytes(hal, 0, pointer) == b"\x2a" * SIZE
    info = hal.memory.pointer_info(pointer + 5)
    assert (info.kind, info.device, info.base, info.size) == (1, 0, pointer, SIZE)
    event = hal.ipc.import_event(0, exporter.event)
    exporter.ask("record")
    hal.event.synchronize(event)
    assert _bytes(hal, 0, pointer) == b"\x2b" * SIZE
    assert _status(hal, "ipc.export_event", event) == "INVALID_STATE"
    assert _status(hal, "ipc.export_memory", 0, pointer) == "INVALID_HANDLE"
    exporter.end()
    assert _bytes(hal, 0, pointer) == b"\x2b" * SIZE  # the mapping outlives the exporter
    hal.ipc.close_memory(0, pointer)
    hal.event.destroy(event)


@pytest.mark.reference(IPC="1")
def test_a_stream_waits_for_another_process(hal: Hal) -> None:
    exporter = Exporter(hal, LATENCY="memory.fill_async:300000")
    pointer, event = hal.ipc.import_memory(0, exporter.memory), hal.ipc.import_event(0, exporter.event)
    own, stream = hal.memory.allocate(0, SIZE), hal.stream.create(0, None)
    assert _status(hal, "event.query", event) == "OK"  # never recorded
    exporter.ask("record")
    assert _status(hal, "event.query", event) == "NOT_READY"
    hal.stream.wait_event(stream, event)
    hal.memory.copy_async(stream, own, pointer, SIZE, 3)
    assert _status(hal, "stream.query", stream) == "NOT_READY"
    hal.stream.synchronize(stream)
    assert _bytes(hal, 0, own) == b"\x2b" * SIZE
    assert _status(hal, "event.query", event) == "OK"
    hal.ipc.close_memory(0, pointer)
    exporter.end()


@pytest.mark.reference(IPC="1")
def test_a_process_that_dies_holds_nobody_up(hal: Hal) -> None:
    exporter = Exporter(hal, LATENCY="memory.fill_async:50000000")
    event = hal.ipc.import_event(0, exporter.event)
    exporter.ask("record")
    assert _status(hal, "event.query", event) == "NOT_READY"
    exporter.end()
    begin = time.monotonic()
    hal.event.synchronize(event)
    assert time.monotonic() - begin < 5


@pytest.mark.reference(IPC="1")
def test_stale_handles_are_refused(hal: Hal) -> None:
    exporter = Exporter(hal)
    before = _descriptors()
    assert _status(hal, "ipc.import_event", 0, exporter.memory) == "INVALID_ARGUMENT"
    assert _status(hal, "ipc.import_memory", 0, exporter.event) == "INVALID_ARGUMENT"
    exporter.ask("shutdown")
    for function, handle in (("ipc.import_memory", exporter.memory), ("ipc.import_event", exporter.event)):
        assert _status(hal, function, 0, handle) == "INVALID_ARGUMENT"
        assert "shut the library down" in hal.last_error().message
    exporter.end()
    assert _status(hal, "ipc.import_memory", 0, exporter.memory) == "INVALID_ARGUMENT"
    assert "is gone" in hal.last_error().message
    assert _descriptors() == before - 2  # the exporter's two pipes


@pytest.mark.reference(IPC="1")
def test_released_memory_goes_back_to_the_system(hal: Hal) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    hal.memory.release(0, hal.memory.allocate(0, SIZE))
    before, descriptors = resident(), _descriptors()
    for _ in range(20):
        pointer = hal.memory.allocate(0, 64 << 20)
        hal.memory.fill(0, pointer, 1, 64 << 20)
        hal.memory.release(0, pointer)
    assert resident() < before + (8 << 20)
    assert _descriptors() == descriptors
