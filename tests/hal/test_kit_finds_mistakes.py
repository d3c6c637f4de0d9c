"""The conformance kit finds every mistake (BREAK_<NAME>) that minimal_hal.c can be built with."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torch_fl_base._hal_header import include_dir

HERE = Path(__file__).parent
SOURCE = HERE / "minimal_hal.c"

# Mistake by mistake, the tests that must find it: requirement ids or test names, as --filter takes them.
SYNCHRONOUS: dict[str, str] = {
    # outputs and details
    "NULL_OUTPUT": "GEN-01",
    "OUTPUT_ON_FAILURE": "GEN-01",
    "PARTIAL_OUTPUT": "GEN-01",
    "NO_MESSAGE": "GEN-02",
    "WRONG_FUNCTION": "GEN-02",
    "VENDOR_NAME_NULL": "GEN-02",
    "SHARED_ERROR": "HAL-SYS-04",
    "READING_CLEARS": "HAL-SYS-04",
    "LAST_ERROR_NULL": "HAL-SYS-04",
    "OVERRUN": "HAL-DEV-04",
    "INFO_NULL": "HAL-SYS-03",
    # life cycle and fork
    "BEFORE_INIT": "GEN-03",
    "RELEASE_BEFORE_INIT": "GEN-03",
    "NO_FORK_CHECK": "GEN-04",
    "INIT_TWICE": "HAL-SYS-01",
    "SLOW_INIT": "HAL-SYS-01",
    "INIT_ONCE": "HAL-SYS-02",
    "SHUTDOWN_TWICE": "HAL-SYS-02",
    "ANY_CAPABILITY": "HAL-SYS-05",
    "QUERY_NULL": "HAL-QRY-01",
    "ANY_MAJOR": "HAL-QRY-01",
    "MINOR_REFUSED": "HAL-QRY-01",
    "EXTRA_EXPORT": "HAL-QRY-01",
    # devices and threads
    "MINUS_ONE": "GEN-05",
    "DEVICE_BOUND": "GEN-05",
    "CURRENT_MOVES": "GEN-06",
    "SHARED_CURRENT": "HAL-DEV-03",
    "SET_FIRST": "HAL-DEV-02",
    "RACE": "GEN-06",
    "NAME_UNTERMINATED": "HAL-DEV-04",
    "GUESSED_PROPERTY": "HAL-DEV-04",
    "FREE_CONSTANT": "HAL-DEV-05",
    # sizes, handles, flags
    "ZERO_SIZE": "HAL-MEM-01",
    "ZERO_COPY": "GEN-07",
    "NULL_STREAM": "GEN-08",
    "NULL_EVENT": "GEN-08",
    "STREAM_FLAGS": "GEN-10",
    "EVENT_FLAGS": "GEN-10",
    "ANY_KIND": "GEN-10",
    # manners
    "PRINTS": "GEN-09",
    "SETS_ENVIRONMENT": "GEN-09",
    # memory
    "OVERFLOW": "GEN-12",
    "OOM_LEAKS": "GEN-12",
    "UNALIGNED": "HAL-MEM-01",
    "RELEASE_NULL": "HAL-MEM-02",
    "RELEASE_ANYTHING": "HAL-MEM-02",
    "INTERIOR_RELEASE": "HAL-MEM-02",
    "WRONG_DEVICE_RELEASE": "HAL-MEM-02",
    "RELEASE_KEEPS": "HAL-MEM-02",
    "COPY_SHORT": "HAL-MEM-03",
    "COPY_LONG": "HAL-MEM-03",
    "ANY_VALUE": "HAL-MEM-05",
    "FILL_WORDS": "HAL-MEM-05",
    "BASE_ONLY": "HAL-MEM-07",
    "ONE_PAST_END": "HAL-MEM-07",
    "UNKNOWN_POINTER": "HAL-MEM-07",
    # streams and events
    "PRIORITY_REFUSED": "HAL-STR-01",
    "DESTROY_DEFAULT": "HAL-STR-02",
    "DEFAULT_PER_CALL": "HAL-STR-03",
    "ONE_DEFAULT": "HAL-STR-03",
    "PRIORITY_RANGE": "HAL-STR-04",
    "CLAIMS_ASYNC": "HAL-STR-05",
    "WAIT_ONE_DEVICE": "HAL-STR-07",
    "NATIVE_HANDLE": "HAL-STR-08",
    "STREAM_DEVICE": "HAL-STR-09",
    "INTERPROCESS": "HAL-EVT-01",
    "RECORD_ELSEWHERE": "HAL-EVT-03",
    "UNRECORDED_PENDING": "HAL-EVT-04",
    "ELAPSED_UNTIMED": "HAL-EVT-06",
    "ELAPSED_UNRECORDED": "HAL-EVT-06",
    "ELAPSED_UNSIGNED": "HAL-EVT-06",
    "ELAPSED_SECONDS": "HAL-EVT-06",
}

ASYNCHRONOUS: dict[str, str] = {
    "THREADS_STAY": "GEN-09",
    "NOT_READY_IS_ERROR": "GEN-02",
    "HEALTH_WAITS": "HAL-DEV-07",
    "SYNCHRONIZE_FORGETS_DEFAULT": "HAL-DEV-06",
    "SYNCHRONIZE_FORGETS_STREAMS": "HAL-DEV-06",
    "COPY_AT_ONCE": "HAL-MEM-04",
    "COPY_BLOCKS": "HAL-MEM-04",
    "LAST_COMES_FIRST": "HAL-MEM-06",
    "ONE_QUEUE": "HAL-STR-01",
    "DESTROY_DROPS": "HAL-STR-02",
    "QUERY_BLOCKS": "HAL-STR-05",
    "QUERY_OPTIMISTIC": "HAL-STR-05",
    "SYNCHRONIZE_RETURNS": "HAL-STR-06",
    "WAIT_IGNORED": "HAL-STR-07",
    "WAIT_BLOCKS": "HAL-STR-07",
    "CALLBACK_TWICE": "HAL-STR-10",
    "CALLBACK_DETACHED": "HAL-STR-10",
    "DESTROY_FREES_WAITERS": "HAL-EVT-02",
    "RECORD_ONCE": "HAL-EVT-03",
    "RECORD_BLOCKS": "HAL-EVT-03",
    "RECORD_REACHED": "HAL-EVT-04",
    "EVENT_SYNCHRONIZE_RETURNS": "HAL-EVT-05",
    "ELAPSED_PENDING": "HAL-EVT-06",
}

MISTAKES = [(name, False, where) for name, where in SYNCHRONOUS.items()]
MISTAKES += [(name, True, where) for name, where in ASYNCHRONOUS.items()]
COMPILER = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")

pytestmark = [
    pytest.mark.needs_compiler,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler: neither $CC nor cc nor gcc is there"),
]


def build(folder: Path, *defines: str) -> Path:
    """Compile minimal_hal.c with some macros and return the library."""
    library = folder / f"minimal_{'_'.join(defines).lower() or 'plain'}.so"
    command = [
        str(COMPILER),
        "-std=gnu99",
        "-O0",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        "-pthread",
        "-w",
    ]
    command += [f"-D{define}" for define in defines]
    subprocess.run([*command, "-I", str(include_dir()), str(SOURCE), "-o", str(library)], check=True)
    return library


@pytest.mark.parametrize(
    ("mistake", "asynchronous", "where"), MISTAKES, ids=[f"{mistake}" for mistake, _, _ in MISTAKES]
)
def test_mistake_is_found(tmp_path: Path, mistake: str, asynchronous: bool, where: str) -> None:
    defines = [f"BREAK_{mistake}", *(["ASYNC"] if asynchronous else [])]
    library = build(tmp_path, *defines)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.run(
        [sys.executable, str(HERE / "kit_driver.py"), str(library), where],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    lines = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    assert any("started" in line for line in lines), f"no test was run\n{process.stderr}"
    if process.returncode < 0:
        return  # it took the process down in one of these tests, which the kit reports as such
    assert process.returncode == 0, process.stderr
    survived = next((line["ran"] for line in lines if "ran" in line), None)
    assert survived is None, f"{survived} tests of {where} passed although {mistake} is broken"


def test_every_switch_of_the_source_is_tried() -> None:
    switches = set(re.findall(r"BREAK_(\w+)", SOURCE.read_text(encoding="utf-8")))
    switches.discard("")
    assert switches - {"NAME"} == {*SYNCHRONOUS, *ASYNCHRONOUS}
