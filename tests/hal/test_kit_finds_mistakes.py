"""The conformance kit finds every mistake that minimal_hal.c and broken_reference.c can be built with."""

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
from torch_fl_base.reference import backend

HERE = Path(__file__).parent

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

MANAGED: dict[str, str] = {
    "ACCESS_BITS": "HAL-HST-05",
    "ACCESS_ANYWHERE": "HAL-HST-05",
    "ACCESS_STALE": "HAL-HST-05",
    "ACCESS_LOST": "HAL-HST-06",
}

# In the optional groups, by broken_reference.c.
OPTIONAL: dict[str, str] = {
    "HOST_ZERO": "HAL-HST-01",
    "HOST_NOT_PINNED": "HAL-HST-01",
    "HOST_NO_LIMIT": "HAL-HST-01",
    "HOST_RELEASE_ANYTHING": "HAL-HST-02",
    "HOST_RELEASE_NULL": "HAL-HST-02",
    "REGISTER_OVERLAP": "HAL-HST-03",
    "REGISTER_NOTHING": "HAL-HST-03",
    "UNREGISTER_KEEPS": "HAL-HST-04",
    "PEER_ITSELF": "HAL-PER-01",
    "PEER_ENABLE_ITSELF": "HAL-PER-02",
    "PEER_DISABLE_STRICT": "HAL-PER-03",
    "PEER_COPY_SHORT": "HAL-PER-04",
    "PEER_COPY_WAITS": "HAL-PER-04",
    "PEER_COPY_UNORDERED": "HAL-PER-04",
    "EXPORT_INTERIOR": "HAL-IPC-01",
    "IMPORT_COPIES": "HAL-IPC-02",
    "CLOSE_ANYTHING": "HAL-IPC-03",
    "CAPTURE_RUNS": "HAL-GRF-01",
    "CAPTURE_ANY_MODE": "HAL-GRF-01",
    "CAPTURE_TWICE": "HAL-GRF-01",
    "END_WITHOUT_CAPTURE": "HAL-GRF-02",
    "CAPTURE_SURVIVES": "HAL-GRF-02",
    "NEVER_CAPTURING": "HAL-GRF-03",
    "LAUNCH_ONCE": "HAL-GRF-04",
    "LAUNCH_WAITS": "HAL-GRF-04",
    "GRAPH_DESTROY_WAITS": "HAL-GRF-05",
    "EXCHANGE_FORGETS": "HAL-GRF-06",
    "TRACE_TWICE": "HAL-TRC-01",
    "TRACE_CONTEXT": "HAL-TRC-01",
    "TRACE_GOES_ON": "HAL-TRC-02",
    "TRACE_CLOCK": "HAL-TRC-03",
    "NO_CORRELATION": "HAL-TRC-04",
    "CORRELATION_SHARED": "HAL-TRC-04",
    "ASYNC_ZERO": "HAL-ASY-01",
    "ASYNC_NO_LIMIT": "HAL-ASY-01",
    "RELEASE_ASYNC_WAITS": "HAL-ASY-02",
    "RELEASE_ASYNC_LEAKS": "HAL-ASY-02",
}

COMPILER = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")

pytestmark = [
    pytest.mark.needs_compiler,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler: neither $CC nor cc nor gcc is there"),
]


def build(folder: Path, source: str, *defines: str) -> Path:
    """Compile a library with some macros."""
    library = folder / f"{source}.so"
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
    subprocess.run(
        [*command, "-I", str(include_dir()), str(HERE / source), "-o", str(library), "-ldl"], check=True
    )
    return library


def found(library: Path, where: str, **variables: str) -> str:
    """Return what the kit's tests `where` have to say against a library; "" if they all pass."""
    environment = {
        **os.environ,
        **variables,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    process = subprocess.run(
        [sys.executable, str(HERE / "kit_driver.py"), str(library), where],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    lines = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    assert any("started" in line for line in lines), f"no test was run\n{process.stderr}"
    if "failed" in lines[-1]:
        return str(lines[-1]["message"])
    if process.returncode < 0:  # one of these tests took the process down, which the kit reports as such
        return f"crash in {lines[-1]['started']}"
    assert process.returncode == 0, process.stderr
    assert lines[-1]["ran"] > 0, f"all tests of {where} were skipped"
    return ""


@pytest.mark.parametrize("mistake", SYNCHRONOUS)
def test_mistake_is_found(tmp_path: Path, mistake: str) -> None:
    assert found(build(tmp_path, "minimal_hal.c", f"BREAK_{mistake}"), SYNCHRONOUS[mistake])


@pytest.mark.parametrize("mistake", ASYNCHRONOUS)
def test_mistake_in_asynchronous_streams_is_found(tmp_path: Path, mistake: str) -> None:
    assert found(build(tmp_path, "minimal_hal.c", f"BREAK_{mistake}", "ASYNC"), ASYNCHRONOUS[mistake])


@pytest.mark.parametrize("mistake", MANAGED)
def test_mistake_in_managed_memory_is_found(tmp_path: Path, mistake: str) -> None:
    assert found(build(tmp_path, "minimal_hal.c", f"BREAK_{mistake}", "MANAGED"), MANAGED[mistake])


def reference() -> Path:
    """Return the reference HAL: the installed one, or that of the variable TORCH_FL_TEST_REFERENCE."""
    library = Path(os.environ.get("TORCH_FL_TEST_REFERENCE") or backend().library)
    if not library.is_file():
        pytest.skip(f"{library} is not built")
    return library


IPC = {"FLAGOS_REFERENCE_IPC": "1"}


@pytest.mark.parametrize("mistake", OPTIONAL)
def test_mistake_in_an_optional_group_is_found(tmp_path: Path, mistake: str) -> None:
    wrapped = f'WRAPPED="{reference()}"'
    library = build(tmp_path, "broken_reference.c", f"BREAK_{mistake}", wrapped)
    assert found(library, OPTIONAL[mistake], **(IPC if OPTIONAL[mistake].startswith("HAL-IPC") else {}))


@pytest.mark.parametrize("group", ["HST", "PER", "IPC", "GRF", "TRC", "ASY"])
def test_wrapper_without_a_mistake_passes(tmp_path: Path, group: str) -> None:
    library = build(tmp_path, "broken_reference.c", f'WRAPPED="{reference()}"')
    assert found(library, f"HAL-{group}-*", **(IPC if group == "IPC" else {})) == ""


@pytest.mark.parametrize(
    ("source", "tried"),
    [("minimal_hal.c", {*SYNCHRONOUS, *ASYNCHRONOUS, *MANAGED}), ("broken_reference.c", {*OPTIONAL})],
    ids=["minimal", "reference"],
)
def test_every_switch_of_the_source_is_tried(source: str, tried: set[str]) -> None:
    assert set(re.findall(r"BREAK_(\w+)", (HERE / source).read_text(encoding="utf-8"))) == tried
