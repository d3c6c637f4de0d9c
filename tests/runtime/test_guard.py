"""The guard and the hooks as C++ reaches them (guard_check.cpp), and what they do for Python."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Evaluate = Callable[..., Any]
HERE = Path(__file__).parent

CHECK = """
import ctypes
library = ctypes.CDLL({library!r})
def check(name, *arguments):
    function = getattr(library, "check_" + name)
    function.restype = ctypes.c_char_p
    return function(*arguments).decode()
"""


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The prelude that offers `check(name, ...)`, over the compiled guard_check.cpp."""
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"the C++ compiler {compiler[0]} is not on PATH; set CXX")
    import torch
    from torch.utils.cpp_extension import include_paths

    cache = shutil.which("ccache")
    if cache and "ccache" not in compiler[0]:
        compiler.insert(0, cache)
    folder = tmp_path_factory.mktemp("guard")
    made, linked = folder / "guard_check.o", folder / "guard_check.so"
    standard = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"
    options = ["-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", standard]
    for path in include_paths():
        options += ["-isystem", path]
    libraries = Path(torch.__file__).parent / "lib"
    for command in (
        [*compiler, *options, "-c", str(HERE / "guard_check.cpp"), "-o", str(made)],
        [compiler[-1], "-shared", str(made), "-o", str(linked), f"-L{libraries}", "-lc10", "-ltorch_cpu"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return CHECK.format(library=str(linked))


@pytest.mark.needs_compiler
def test_the_guard_and_the_hooks_keep_pytorchs_rules(evaluate: Evaluate, checks: str) -> None:
    answer = evaluate(
        checks,
        """
        second = torch.ones(64, device="flagos:1")
        host = torch.ones(64)
        addresses = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (second, host)]
        answer = {
            "streams": check("streams"),
            "events": check("events"),
            "pointers": check("pointers", *addresses),
        }
        """,
    )
    assert answer == {"streams": "", "events": "", "pointers": ""}


@pytest.mark.needs_compiler
def test_a_device_is_opened_when_it_is_used_not_when_it_is_named(evaluate: Evaluate, checks: str) -> None:
    program = "native.devices.activate(); answer = check('devices_are_remembered_and_used_late')"
    assert evaluate(checks, program) == ""


@pytest.mark.needs_compiler
def test_guards_that_stand_at_the_shutdown_are_undone_quietly(evaluate: Evaluate, checks: str) -> None:
    answer = evaluate(
        checks,
        """
        down = ctypes.CFUNCTYPE(None)(native.devices.shutdown)
        answer = check("guards_outlive", down)
        """,
    )
    assert answer == ""


def test_a_storage_that_grows_keeps_its_content_in_stream_order(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        side = torch.Stream("flagos:1")
        data = torch.arange(16, dtype=torch.uint8, device="flagos:1")
        with side:
            storage = data.untyped_storage()
            storage.resize_(4096)
            grown = [storage.nbytes(), data.tolist()]
            storage.resize_(8)
            empty = torch.empty(0, dtype=torch.uint8, device="flagos:1")
            small = [storage.nbytes(), empty.set_(storage).tolist()]
            storage.resize_(0)
            empty = [storage.nbytes(), storage.data_ptr()]
        answer = [grown, small, empty, str(storage.device)]
        """,
        FLAGOS_REFERENCE_LATENCY="copy:20000",
    )
    assert answer == [[4096, list(range(16))], [8, list(range(8))], [0, 0], "flagos:1"]


def test_a_storage_that_cannot_grow_stays_as_it_was(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        data = torch.arange(16, dtype=torch.uint8, device="flagos")
        storage = data.untyped_storage()
        copy = caught(storage.resize_, 64)
        memory_error = caught(storage.resize_, 1 << 40)
        answer = [copy, memory_error[0], storage.nbytes(), data.tolist()]
        storage.resize_(64)
        answer.append(storage.nbytes())
        """,
        FLAGOS_REFERENCE_FAIL="memory.copy_async:1",
        FLAGOS_REFERENCE_MEMORY="256MiB",
    )
    copy, memory_error, size, values, grown = answer
    assert copy is not None
    assert "flagos:0 (reference, local 0)" in copy[1]
    assert memory_error == "OutOfMemoryError"
    assert (size, values, grown) == (16, list(range(16)), 64)
