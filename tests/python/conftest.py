"""What the Python tests share: programs in processes of their own, since a device can be claimed but once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

Program = Callable[..., Any]
# What would change the outcome if the environment of the test run had it set.
_LEAVE_OUT = ("FLAGOS_", "TORCH_DEVICE_BACKEND_AUTOLOAD")


def _environment(variables: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_LEAVE_OUT)}
    # Without visible GPUs a CUDA build of torch decides as a CPU build does, wherever the tests run.
    return {**kept, "CUDA_VISIBLE_DEVICES": "", **variables}


def _start(arguments: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    # Python 3.12 warns of every fork of a process with threads, which torch has from the start.
    fork = ["-W", "ignore:This process:DeprecationWarning"]
    command = [sys.executable, "-W", "error", *fork, *arguments]
    environment = _environment(variables)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def run() -> Program:
    """A function that runs a program in a new Python and returns its exit status and what it printed."""
    return lambda program, **variables: _start(["-c", textwrap.dedent(program)], variables)


@pytest.fixture
def run_module() -> Program:
    """A function that runs `python -m <module> <arguments>` and returns the same."""
    return lambda module, *arguments, **variables: _start(["-m", module, *arguments], variables)


@pytest.fixture
def evaluate() -> Program:
    """A function that runs a program, which must succeed silently, and returns its variable `answer`
    (JSON)."""

    def evaluate(program: str, **variables: str) -> Any:
        text = textwrap.dedent(program) + "\nimport json; print('\\n@answer', json.dumps(answer))"
        done = _start(["-c", text], variables)
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        printed, marker, answer = done.stdout.rpartition("\n@answer ")
        assert marker, done.stdout
        assert not (printed + done.stderr).strip(), f"it printed: {printed}{done.stderr}"
        return json.loads(answer)

    return evaluate
