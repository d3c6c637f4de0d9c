"""A HAL function fails in the middle of operators: one clear error, nothing leaked, the device usable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import gc, json, sys
import torch, torch_fl

def step():
    x = torch.arange(12.0, device="flagos").view(3, 4)
    y = (x @ x.t()).relu().sum(0)
    z = torch.cat([y, y]).sort().values
    z[1:3] = x[0, :2]
    other = z.to("flagos:1").to("flagos:0")
    return (other + z).cpu()

torch.zeros(1, device="flagos"), torch.zeros(1, device="flagos:1")
errors, results = [], []
for _ in range(int(sys.argv[1])):
    try:
        results.append(step())
    except (RuntimeError, torch.OutOfMemoryError) as error:
        errors.append([type(error).__name__, str(error)])
        del error
gc.collect()
good = all(r.equal(results[-1]) for r in results) and results[-1].numel() == 6
left = [torch.flagos.memory_allocated(i) for i in range(2)]
print(json.dumps({"errors": errors, "good": good, "left": left, "done": len(results)}))
"""


def run(fail: str, fault: bool, steps: int = 12) -> Any:
    """Run the steps with one injected failure; returns what the program counted."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAGOS_")}
    variables = {"FLAGOS_REFERENCE_FAIL": fail, "FLAGOS_REFERENCE_MEMORY_FAULT": str(int(fault))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(steps)],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("function", "nth", "fault"),
    [
        ("memory.copy", 8, True),
        ("memory.copy", 15, True),
        ("memory.copy", 26, True),
        ("memory.copy_async", 1, True),
        ("peer.copy_async", 2, False),
        ("peer.copy_async", 1, True),
        ("event.record", 2, False),
        ("stream.wait_event", 1, False),
        ("stream.query", 30, False),
    ],
)
def test_one_failure_costs_one_step(function: str, nth: int, fault: bool) -> None:
    seen = run(f"{function}:{nth}", fault)
    assert seen["done"] == 11, seen["errors"]
    ((kind, text),) = seen["errors"]
    assert kind in ("RuntimeError", "AcceleratorError")
    assert "flagos" in text
    assert function in text
    assert seen["good"]
    assert seen["left"] == [0, 0]


@pytest.mark.parametrize("fault", [False, True])
def test_failed_allocation_is_retried_and_survived(fault: bool) -> None:
    # The first segment of each device fails once: the allocator frees, asks again and goes on.
    seen = run("memory.allocate:1", fault)
    assert seen["done"] == 12, seen["errors"]
    assert seen["good"]
