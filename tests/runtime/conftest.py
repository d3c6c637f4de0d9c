"""What the runtime's tests share: programs in processes of their own, for what the environment decides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

Evaluate = Callable[..., Any]

_BARE_PRELUDE = """\
import json, os, threading, time
import torch
from torch_fl_base import _native, reference
native = _native.load()
devices, streams, generators = native.devices, native.streams, native.generators
REFERENCE = str(reference.backend().library)

def caught(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None
"""

_PRELUDE = """\
import json, threading, time
import torch, torch_fl
from torch_fl_base import _native
flagos = torch.flagos
native = _native.load()
memory = native.memory
MIB = 1 << 20

def caught(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None

def stat(name, device=0):
    return memory.stats(device)[name]["all"]["current"]
"""


def _run(prelude: str, parts: tuple[str, ...], variables: dict[str, str]) -> Any:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAGOS_")}
    program = "".join(textwrap.dedent(part) for part in parts)
    text = prelude + program + "\nprint('\\n@answer', json.dumps(answer), flush=True)\n"
    done = subprocess.run(
        # Python 3.12 warns of every fork of a process with threads, which torch has from the start.
        [sys.executable, "-W", "error", "-W", "ignore:This process:DeprecationWarning", "-c", text],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    _, marker, answer = done.stdout.rpartition("\n@answer ")
    assert marker, done.stdout + done.stderr
    assert not done.stderr.strip(), f"it printed: {done.stderr}"
    return json.loads(answer)


@pytest.fixture
def evaluate() -> Evaluate:
    """A function that runs a program (in parts) in a new Python and returns its variable `answer`, by JSON.

    It must succeed and print no errors. Keyword arguments are environment variables; other FLAGOS_ ones are
    taken away.
    """
    return lambda *parts, **variables: _run(_PRELUDE, parts, variables)


@pytest.fixture
def evaluate_bare() -> Evaluate:
    """As `evaluate`, but the program has not imported torch_fl: emulated backends wait, and the list of
    backends may still be replaced."""
    return lambda *parts, **variables: _run(_BARE_PRELUDE, parts, variables)
