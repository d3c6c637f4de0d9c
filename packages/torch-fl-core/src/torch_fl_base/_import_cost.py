"""What core adds to `import torch`: time and memory, measured in new processes that take turns with and
without it.

`python -m torch_fl_base._import_cost` prints it as JSON; benchmarks/ calls `measure`. Where core is not
installed by pip, the entry point is stood in for by the same call at the same place.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from typing import Any

# Both load the same modules of torch; the second then does what torch does with the entry point. Time is that
# of the process, so that a busy machine adds less noise than the wall clock would.
_PROGRAM = """
import json, resource, sys, time
wall, cpu = time.perf_counter(), time.process_time()
import torch
if {with_core}:
    from importlib.metadata import entry_points
    entry_points(group="torch.backends")
    from torch_fl_base import autoload
    autoload.autoload()
    assert autoload.failure is None, autoload.failure
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu,
                  resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


def measure(rounds: int = 11) -> dict[str, Any]:
    """Return medians over `rounds` pairs of processes: ms and MiB that core adds, and those of torch alone.

    Raises: subprocess.CalledProcessError if a process fails, its error on standard error.
    """
    alone, with_core = [], []
    _run(True)  # writes the byte code, reads the files
    for _ in range(rounds):
        alone.append(_run(False))
        with_core.append(_run(True))
    torch_wall, torch_cpu, torch_kib = (statistics.median(column) for column in zip(*alone, strict=True))
    wall, cpu, kib = (
        statistics.median(after - before for before, after in zip(first, second, strict=True))
        for first, second in zip(zip(*alone, strict=True), zip(*with_core, strict=True), strict=True)
    )
    return {
        "rounds": rounds,
        "torch_ms": torch_wall * 1e3,
        "torch_cpu_ms": torch_cpu * 1e3,
        "torch_mib": torch_kib / 1024,
        "core_adds_ms": wall * 1e3,
        "core_adds_cpu_ms": cpu * 1e3,
        "core_adds_mib": kib / 1024,
    }


def _run(with_core: bool) -> list[float]:
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed packages are
    command = [sys.executable, "-c", _PROGRAM.format(with_core=with_core)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [float(value) for value in json.loads(done.stdout.strip().splitlines()[-1])]


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 11), indent=2))
