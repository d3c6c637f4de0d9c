"""What `import torch` costs more because core is installed: time and memory, in fresh processes in turns."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys

from benchmarks.figures import Figure

METHOD = (
    "Fresh processes in turns, after one of each to warm the file cache; differences of medians. "
    "Without: TORCH_DEVICE_BACKEND_AUTOLOAD=0. Memory: resident set after the import."
)

_PROGRAM = """
import json, resource, sys, time
start = time.perf_counter()
import torch
{extra}
seconds = time.perf_counter() - start
with open("/proc/self/statm") as statm:
    resident = int(statm.read().split()[1]) * resource.getpagesize()
private = 0
with open("/proc/self/smaps_rollup") as rollup:
    for line in rollup:
        if line.startswith("Private"):
            private += int(line.split()[1]) * 1024
loaded = [name for name in sys.modules if name.startswith("torch_fl")]
json.dump([seconds * 1e3, resident / 1e6, private / 1e6, len(loaded)], sys.stdout)
"""


def _once(extra: str, autoload: bool) -> list[float]:
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if autoload else "0"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(extra=extra)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    if done.stderr:
        raise RuntimeError(f"importing printed: {done.stderr}")
    result: list[float] = json.loads(done.stdout)
    return result


def measure(*, quick: bool = False) -> list[Figure]:
    """Return what the autoload adds to `import torch`, and what the first use adds to that."""
    kinds = {
        "without": ("", False),
        "with": ("", True),
        "first": ("import torch_fl; torch.ones(1, device='flagos')", True),
    }
    runs: dict[str, list[list[float]]] = {kind: [] for kind in kinds}
    for _ in range(4 if quick else 16):
        for kind, (extra, autoload) in kinds.items():
            runs[kind].append(_once(extra, autoload))
    if runs["with"][0][3] == 0:
        raise RuntimeError(
            "`import torch` does not load core: its entry point is not installed in this environment"
        )
    middle = {
        kind: [statistics.median(column) for column in zip(*found[1:], strict=True)]
        for kind, found in runs.items()
    }
    base, loaded, first = middle["without"], middle["with"], middle["first"]
    return [
        Figure(
            "import torch, time added",
            loaded[0] - base[0],
            "ms",
            30.0,
            details={"without ms": base[0], "with ms": loaded[0]},
        ),
        Figure(
            "import torch, memory added",
            loaded[1] - base[1],
            "MB",
            10.0,
            details={"without MB": base[1], "with MB": loaded[1]},
        ),
        Figure(
            "import torch, private memory added", loaded[2] - base[2], "MB", details={"without MB": base[2]}
        ),
        Figure("import torch_fl and first tensor, time added", first[0] - loaded[0], "ms"),
        Figure("import torch_fl and first tensor, memory added", first[1] - loaded[1], "MB"),
    ]
