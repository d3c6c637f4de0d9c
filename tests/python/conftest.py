"""What the Python tests share: programs in processes of their own, since a device can be claimed but once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.python.routes_support import CATALOGUE, VENDOR, Read
from tests.python.test_routes_fake import FakeRoutes, import_part, install
from torch_fl_base.routes.files import read_table
from torch_fl_base.routes.model import LayerName, Table
from torch_fl_base.routes.operators import Catalogue
from torch_fl_base.routes.store import store

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


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeRoutes:
    """The stand-in; backend alpha has a table of its own."""
    native = install(monkeypatch)
    (tmp_path / "vendor.toml").write_text(VENDOR)
    store().configure({"alpha": tmp_path / "vendor.toml"})
    routes: FakeRoutes = native.routes
    return routes


@pytest.fixture
def routes(fake: FakeRoutes, monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch_fl.routes; everything is published, as the opening of the devices does."""
    part = import_part(monkeypatch, "torch_fl.routes")
    store().publish()
    fake.log.clear()
    return part


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """A function that reads a table from its text; `schema = 1` is its first line."""

    def read(text: str, catalogue: Catalogue = CATALOGUE) -> Table:
        path = tmp_path / "t.toml"
        path.write_text("schema = 1\n" + textwrap.dedent(text), encoding="utf-8")
        return read_table(path, catalogue, LayerName.USER_FILE)

    return read
