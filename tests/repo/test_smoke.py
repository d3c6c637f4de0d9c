"""The smoke test of the minors, on this torch, in both ways that `cpu` reaches device memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest


@pytest.mark.parametrize("fault", ["0", "1"])
def test_the_smoke_test_passes(run: Callable[..., subprocess.CompletedProcess[str]], fault: str) -> None:
    out = run(sys.executable, "tests/smoke.py", env={"FLAGOS_REFERENCE_MEMORY_FAULT": fault}).stdout
    assert "passed" in out
