"""The validating layer: what it says of a library's own faults, and of calls that overlap."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hal_checked import DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_HOST, Checked
from hal_native import QUIET, VALIDATE, Layers, Workshop

MODES = [
    "CORRECT",
    "ALLOCATE_NULL",
    "ALLOCATE_MISALIGNED",
    "ALLOCATE_OVERLAPS",
    "ALLOCATE_NOT_READY",
    "ALLOCATE_ODD_STATUS",
    "FAIL_WITHOUT_DETAIL",
    "FAIL_WITH_DETAIL",
    "STREAM_NULL",
    "DEFAULT_STREAM_MOVES",
    "COUNT_CHANGES",
    "FREE_ABOVE_TOTAL",
    "RECORD_SLOWLY",
    "COPY_SLOWLY",
]


class Faulty(Checked):
    """faulty.c under the layer, with its switch."""

    def __init__(self, path: Path, layers: Layers) -> None:
        super().__init__(layers.open(path, VALIDATE | QUIET), layers)
        self._library = ctypes.CDLL(str(path))

    def be(self, mode: str) -> None:
        ctypes.c_int.in_dll(self._library, "faulty_mode").value = MODES.index(mode)

    def calls(self) -> int:
        return ctypes.c_int.in_dll(self._library, "faulty_calls").value


@pytest.fixture(scope="module")
def faulty_library(workshop: Workshop, layers: Layers) -> Faulty:
    return Faulty(workshop.library("faulty.c"), layers)


@pytest.fixture
def faulty(faulty_library: Faulty) -> Iterator[Faulty]:
    faulty_library.be("CORRECT")
    faulty_library.hal.system.init()
    yield faulty_library
    faulty_library.be("CORRECT")
    faulty_library.hal.system.shutdown()


FAULTS = {
    "ALLOCATE_NULL": ("HAL-MEM-01", "OK and null for 16 bytes", "memory.allocate", (0, 16)),
    "ALLOCATE_MISALIGNED": (
        "HAL-MEM-01",
        "not a multiple of FLAGOS_HAL_CAP_ALIGNMENT (64)",
        "memory.allocate",
        (0, 16),
    ),
    "ALLOCATE_OVERLAPS": ("HAL-MEM-01", "overlap", "memory.allocate", (0, 16)),
    "ALLOCATE_NOT_READY": ("GEN-02", "NOT_READY is no answer", "memory.allocate", (0, 16)),
    "ALLOCATE_ODD_STATUS": ("GEN-01", "returned 4711", "memory.allocate", (0, 16)),
    "STREAM_NULL": ("HAL-STR-01", "null stream", "stream.create", (0, None)),
    "DEFAULT_STREAM_MOVES": ("HAL-STR-03", "was 0x", "stream.default_stream", (0,)),
    "COUNT_CHANGES": ("HAL-DEV-01", "1 devices at first and 7 now", "device.count", ()),
    "FREE_ABOVE_TOTAL": ("HAL-DEV-05", "101 bytes free of 100", "device.memory_info", (0,)),
}


@pytest.mark.needs_compiler
@pytest.mark.parametrize("mode", FAULTS)
def test_library_s_fault_is_called_by_its_name(faulty: Faulty, mode: str) -> None:
    rule, text, function, inputs = FAULTS[mode]
    first = faulty.accepts("memory.allocate", 0, 16)
    faulty.accepts("stream.default_stream", 0)
    faulty.be(mode)
    faulty.refuses("UNKNOWN", rule, text, function, *inputs)
    assert "fault of the library" in faulty.hal.last_error().message
    faulty.be("CORRECT")
    faulty.accepts("memory.release", 0, first)


@pytest.mark.needs_compiler
def test_status_without_its_detail_is_noted_and_stays(faulty: Faulty) -> None:
    faulty.be("FAIL_WITHOUT_DETAIL")
    before = faulty.violations()
    assert faulty.hal.call("memory.allocate", 0, 16).status == "OUT_OF_MEMORY"
    assert faulty.violations() == before + 1
    assert "GEN-02: fault of the library: it returned OUT_OF_MEMORY but" in faulty.hal.last_error().message
    faulty.be("FAIL_WITH_DETAIL")
    assert faulty.hal.call("memory.allocate", 0, 16).status == "OUT_OF_MEMORY"
    assert faulty.violations() == before + 1
    assert faulty.hal.last_error().vendor_name == "faultyError"


@pytest.mark.needs_compiler
def test_violation_does_not_reach_the_library(faulty: Faulty) -> None:
    pointer = faulty.accepts("memory.allocate", 0, 64)
    before = faulty.calls()
    for function, inputs in {
        "memory.copy": (0, pointer, pointer + 8, 16, DEVICE_TO_DEVICE),
        "memory.fill": (0, pointer, 0, 65),
        "memory.release": (0, pointer + 8),
        "event.record": (None, None),
    }.items():
        assert faulty.hal.call(function, *inputs).status != "OK"
    assert faulty.calls() == before
    faulty.accepts("memory.fill", 0, pointer, 0, 64)
    assert faulty.calls() == before + 1


@pytest.mark.needs_compiler
def test_memory_that_is_given_out_again_is_alive_again(faulty: Faulty) -> None:
    seen = set()
    for _ in range(100):
        pointer = faulty.accepts("memory.allocate", 0, 64)
        faulty.accepts("memory.fill", 0, pointer, 1, 64)
        faulty.accepts("memory.release", 0, pointer)
        seen.add(pointer)
    assert 1 < len(seen) < 100  # faulty.c goes around in one block


@pytest.mark.needs_compiler
def test_device_memory_that_the_host_cannot_touch_is_no_host_memory(faulty: Faulty) -> None:
    pointer = faulty.accepts("memory.allocate", 0, 64)
    buffer = ctypes.create_string_buffer(64)
    inputs = (0, ctypes.addressof(buffer), pointer, 64, HOST_TO_HOST)
    faulty.refuses("INVALID_ARGUMENT", "HAL-MEM-03", "the host cannot touch it", "memory.copy", *inputs)
    faulty.accepts("memory.copy", 0, ctypes.addressof(buffer), pointer, 64, DEVICE_TO_HOST)


def meet(faulty: Faulty, first: Callable[[], Any], second: Callable[[], None]) -> None:
    """Run `second` while another thread is in the library in `first`."""
    before = faulty.calls()
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(first()))
    thread.start()
    deadline = time.monotonic() + 5
    while faulty.calls() == before and time.monotonic() < deadline and thread.is_alive():
        time.sleep(0.001)
    second()
    thread.join()
    assert [one.status for one in results] == ["OK"]


@pytest.mark.needs_compiler
def test_unordered_calls_on_one_stream_are_refused(faulty: Faulty) -> None:
    hal = faulty.hal
    stream, other = hal.stream.create(0, None), hal.stream.create(0, None)
    event, second = hal.event.create(0, 0), hal.event.create(0, 0)
    pointer = hal.memory.allocate(0, 64)
    faulty.be("RECORD_SLOWLY")

    def unordered() -> None:
        faulty.be("CORRECT")
        text = "another thread is queueing on the same stream"
        faulty.refuses("INVALID_STATE", "GEN-06", text, "event.record", second, stream)
        faulty.refuses("INVALID_STATE", "GEN-06", text, "memory.fill_async", stream, pointer, 0, 64)
        faulty.refuses("INVALID_STATE", "GEN-06", text, "stream.wait_event", stream, second)
        faulty.accepts("event.record", second, other)
        faulty.accepts("stream.query", stream)

    meet(faulty, lambda: hal.call("event.record", event, stream), unordered)
    faulty.accepts("event.record", event, stream)


@pytest.mark.needs_compiler
def test_shutdown_while_a_call_is_in_progress_is_refused(faulty: Faulty) -> None:
    hal = faulty.hal
    stream, event = hal.stream.create(0, None), hal.event.create(0, 0)
    faulty.be("RECORD_SLOWLY")

    def stop() -> None:
        faulty.refuses("INVALID_STATE", "HAL-SYS-02", "1 other calls are in progress", "system.shutdown")

    meet(faulty, lambda: hal.call("event.record", event, stream), stop)
    faulty.accepts("device.count")


@pytest.mark.needs_compiler
def test_violations_are_written_to_standard_error(
    workshop: Workshop, layers: Layers, capfd: pytest.CaptureFixture[str]
) -> None:
    hal = layers.open(workshop.library("faulty.c"), VALIDATE, name="loud")
    assert hal.call("device.count").status == "NOT_INITIALIZED"
    written = capfd.readouterr().err
    assert written == (
        "flagos HAL validation: loud: device.count: GEN-03: called before system.init has succeeded "
        "[NOT_INITIALIZED]\n"
    )
