"""CI's slice of PyTorch's operator database on the reference backend, in both memory modes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mode", ["zero-copy", "staged"])
def test_every_operator_does_what_cpu_does(mode: str, tmp_path: Path) -> None:
    result = tmp_path / "ops.json"
    environment = {**os.environ, "FLAGOS_REFERENCE_MEMORY_FAULT": "1" if mode == "staged" else "0"}
    command = [
        "run",
        "--slice",
        "ci",
        "--workers",
        str(len(os.sched_getaffinity(0))),
        "--output",
        str(result),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "torch_fl.testing.ops", *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    document = json.loads(result.read_text(encoding="utf-8"))
    assert document["mode"] == mode
    assert document["operators"] > 600
