"""The device level where memory is out of the host's reach, and with a second backend in the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Areas that run operators in the process itself; the others start processes, and look at what the mode does
# not change.
STAGED_AREAS = "autograd copies factories modules operators optimizers rng sdpa storage threads views"


def _run(tmp_path: Path, areas: str, *options: str, **environment: str) -> str:
    path = tmp_path / "test_areas.py"
    path.write_text("".join(f"from torch_fl.testing.device.{area} import *\n" for area in areas.split()))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    settings = ["-W", "error", "-o", "timeout=300"]
    done = subprocess.run(
        [*command, *settings, *options, str(path)],
        env={**os.environ, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_suite_passes_where_the_host_cannot_touch_device_memory(tmp_path: Path) -> None:
    printed = _run(tmp_path, STAGED_AREAS, FLAGOS_REFERENCE_MEMORY_FAULT="1")
    assert " passed" in printed


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ["0", "1"])
def test_copies_between_two_backends(tmp_path: Path, fault: str) -> None:
    printed = _run(
        tmp_path,
        "copies",
        "-k",
        "foreign",
        FLAGOS_BACKENDS="reference,reference:second",
        FLAGOS_REFERENCE_MEMORY_FAULT=fault,
    )
    assert " passed" in printed
    assert "skipped" not in printed, "there was no second backend"
