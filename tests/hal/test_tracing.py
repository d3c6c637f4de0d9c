"""The tracing layer: one line per call, readable by people and by programs."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hal_native import (
    PRIVATE_COPY,
    QUIET,
    TRACE,
    VALIDATE,
    Layers,
    OpenError,
    in_own_process,
    reference_library,
)

from torch_fl_base._hal import Hal, HalError
from torch_fl_base._hal_header import header
from torch_fl_base._hal_types import ctype

LINE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) (?P<thread>\d+) (?P<backend>\S+) "
    r"(?P<function>\w+\.\w+)\((?P<arguments>.*?)\) (?P<status>[A-Z_]+)"
    r"(?: \((?P<detail>.*)\))? (?P<us>\d+\.\d{3}) us"
)


class Traced:
    """The reference library under the layer, and the lines that it has written."""

    def __init__(self, hal: Hal, path: Path) -> None:
        self.hal = hal
        self._path = path
        self._read = 0

    def lines(self) -> list[dict[str, str]]:
        """Return the new lines, each taken apart; all of them must have the form of the header's example."""
        text = self._path.read_text(encoding="utf-8")
        new, self._read = text[self._read :], len(text)
        assert new.endswith("\n") or not new
        found = []
        for line in new.splitlines():
            match = LINE.fullmatch(line)
            assert match is not None, line
            found.append(match.groupdict())
        return found


@pytest.fixture(scope="module")
def opened(layers: Layers, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    path = tmp_path_factory.mktemp("trace") / "calls.log"
    return Traced(layers.open(reference_library(), TRACE | PRIVATE_COPY, path, name="traced"), path)


@pytest.fixture
def traced(opened: Traced) -> Iterator[Traced]:
    opened.hal.system.init()
    opened.lines()
    yield opened
    opened.hal.system.shutdown()


def test_line_has_time_thread_backend_arguments_status_and_duration(traced: Traced) -> None:
    pointer = traced.hal.memory.allocate(0, 4096)
    stream = traced.hal.stream.create(0, None)
    buffer = traced.hal.host.allocate(4096)
    traced.hal.memory.copy_async(stream, pointer, buffer, 4096, 1)
    traced.hal.stream.synchronize(stream)
    traced.hal.memory.release(0, pointer)
    lines = traced.lines()
    assert [line["function"] for line in lines] == [
        "memory.allocate",
        "stream.create",
        "host.allocate",
        "memory.copy_async",
        "stream.synchronize",
        "memory.release",
    ]
    first, _, _, copy, _, release = lines
    assert first["arguments"] == f"device=0, size=4096, out_pointer={pointer:#x}"
    assert copy["arguments"] == (
        f"stream={stream:#x}, destination={pointer:#x}, source={buffer:#x}, size=4096, kind=HOST_TO_DEVICE"
    )
    assert release["arguments"] == f"device=0, pointer={pointer:#x}"
    assert {line["backend"] for line in lines} == {"traced"}
    assert {line["status"] for line in lines} == {"OK"}
    assert {line["thread"] for line in lines} == {str(threading.get_native_id())}
    then = datetime.strptime(first["time"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
    assert abs((datetime.now(timezone.utc) - then).total_seconds()) < 10
    assert all(0 < float(line["us"]) < 10e6 for line in lines)


def test_outputs_are_shown_by_value_and_null_by_name(traced: Traced) -> None:
    free, total = traced.hal.device.memory_info(1)
    traced.hal.device.set_current(1)
    traced.hal.memory.pointer_info(None)
    traced.hal.event.create(0, 1)
    memory, current, info, event = traced.lines()
    assert memory["arguments"] == f"device=1, out_free={free}, out_total={total}"
    assert current["arguments"] == "device=1"
    assert info["arguments"].startswith("pointer=null, out_info=0x")
    assert event["arguments"].startswith("device=0, flags=0x1, out_event=0x")


def test_failing_call_shows_its_detail_and_does_not_disturb_it(traced: Traced) -> None:
    with pytest.raises(HalError):
        traced.hal.memory.allocate(0, 1 << 60)
    detail = traced.hal.last_error()
    failed = traced.lines()[0]
    assert failed["status"] == "OUT_OF_MEMORY"
    assert failed["detail"].startswith(detail.message)
    assert detail.vendor_name in failed["detail"]
    assert re.fullmatch(r"device=0, size=1152921504606846976, out_pointer=0x[0-9a-f]+", failed["arguments"])


def test_lines_of_many_threads_do_not_mix(traced: Traced) -> None:
    def work() -> None:
        for _ in range(100):
            traced.hal.memory.release(0, traced.hal.memory.allocate(0, 64))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = traced.lines()
    assert len(lines) == 800
    assert len({line["thread"] for line in lines}) == 4


def test_every_function_is_traced(traced: Traced) -> None:
    skipped = {"system.shutdown", "system.init", "trace.start"}
    functions = [
        one for one in header().functions() if traced.hal.has(one.group) and one.qualified not in skipped
    ]
    for function in functions:
        traced.hal.function(function.qualified)(*[ctype(one.type)() for one in function.parameters])
    assert [line["function"] for line in traced.lines()] == [one.qualified for one in functions]
    assert len(functions) > 45


def test_trace_outside_validation_shows_what_the_caller_got(layers: Layers, tmp_path: Path) -> None:
    path = tmp_path / "both.log"
    both = Traced(layers.open(reference_library(), TRACE | VALIDATE | QUIET | PRIVATE_COPY, path), path)
    assert both.hal.call("device.count").status == "NOT_INITIALIZED"
    (line,) = both.lines()
    assert line["detail"].startswith("GEN-03: called before system.init")


STANDARD_ERROR = """
import sys
from hal_native import *
hal = Layers(Path(sys.argv[1])).open(sys.argv[2], TRACE)
hal.system.init()
import os
if os.fork() == 0:
    hal.call("device.count")
    os._exit(0)
os.wait()
hal.system.shutdown()
"""


def test_without_a_path_lines_go_to_standard_error_also_in_a_forked_child(
    layers: Layers, tmp_path: Path
) -> None:
    redirected = f"import os; os.dup2(os.open({str(tmp_path / 'err')!r}, os.O_WRONLY | os.O_CREAT), 2)\n"
    in_own_process(redirected + STANDARD_ERROR, layers.path, reference_library())
    lines = [LINE.fullmatch(line) for line in (tmp_path / "err").read_text().splitlines()]
    assert all(lines)
    assert [(line["function"], line["status"]) for line in lines if line] == [
        ("system.init", "OK"),
        ("device.count", "FORKED"),
        ("system.shutdown", "OK"),
    ]
    assert len({line["thread"] for line in lines if line}) == 2


def test_trace_file_that_cannot_be_written_is_refused_in_words(layers: Layers, tmp_path: Path) -> None:
    with pytest.raises(OpenError, match=r"the trace file '.*/missing/calls.log' cannot be opened") as refused:
        layers.open(reference_library(), TRACE, tmp_path / "missing" / "calls.log")
    assert refused.value.kind == "InitFailed"
    assert "FLAGOS_HAL_TRACE" in str(refused.value)
