"""Tests that need an NVIDIA GPU and a CUDA build of torch; elsewhere they skip and say what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
HERE = Path(__file__).parent


def _missing() -> str | None:
    """Return what is missing here, found out without opening a driver in this process."""
    import torch

    if torch.version.cuda is None:
        return f"this torch ({torch.__version__}) was not built for CUDA"
    program = "import torch; raise SystemExit(0 if torch.cuda.is_available() else 1)"
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    if subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode != 0:
        return "there is no GPU that torch could use"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if item.path.is_relative_to(HERE)]
    missing = _missing() if mine else None
    for item in mine:
        item.add_marker("gpu")
        if missing is not None:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture
def run() -> Run:
    """A function that runs a program in a new Python and returns its exit status and what it printed."""

    def run(program: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program)]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAGOS_")}
        return subprocess.run(command, capture_output=True, text=True, env=kept, timeout=240, check=False)

    return run
