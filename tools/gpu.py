"""Builds core into the Python that runs this, on a machine with a GPU, and runs tests and benchmarks.

python3 tools/gpu.py --output <folder> [part…]

For machines without nox and without a network: it needs torch, pip, setuptools, pybind11, cmake, ninja,
hatchling, pytest and rich, and installs nothing but core and torch-fl-nvidia. Parts, in this order, default
all: build, doctor, conformance, tests, ops, bench (about the reference backend); nvidia (installs the
package), hal, gpu, device, device-ops (about the GPU on its HAL alone), companion, companion-ops, cuda,
models (about the GPU with CUDA as companion). Each leaves <folder>/<part>.log, all together
<folder>/summary.json. Exit status 1 if a part failed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "packages" / "torch-fl-core"
NVIDIA = ROOT / "packages" / "torch-fl-nvidia"

PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
#: Without plugins that the machine may have and that object to running in parallel.
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark"]


def commands(output: Path) -> dict[str, list[list[str]]]:
    """Return the commands of each part."""
    python = sys.executable
    cores = os.cpu_count() or 1
    kit = [python, "-m", "torch_fl.testing.ops", "run", "--slice", "ci", "--workers", str(cores)]
    return {
        "build": [[*PIP, "--force-reinstall", str(CORE)]],
        "doctor": [[python, "-m", "torch_fl.doctor"]],
        "conformance": [[python, "-m", "torch_fl_base.cli", "conformance", "reference"]],
        "tests": [
            [*PYTEST, "-n", str(min(cores, 8)), "tests/runtime", "tests/ops", "tests/device", "tests/python"]
        ],
        "ops": [[*kit, "--output", str(output / "ops-ci.json")]],
        "bench": [
            [python, "-m", "benchmarks.run", "--output", str(output / "benchmarks"), "eager", "native"]
        ],
        "nvidia": [
            [*PIP, "--force-reinstall", str(NVIDIA)],
            [python, "-m", "torch_fl.doctor"],
        ],
        "hal": [[*PYTEST, "-rs", "packages/torch-fl-nvidia/tests/test_hal.py"]],
        "gpu": [[*PYTEST, "tests/gpu"]],
        "device": [[*PYTEST, "-n", str(min(cores, 8)), "tests/device/test_device_suite.py"]],
        "device-ops": [[*kit, "--output", str(output / "device-ops-ci.json")]],
        "companion": [[*PYTEST, "-n", str(min(cores, 8)), "tests/device/test_device_suite.py"]],
        "companion-ops": [[*kit, "--reference", "cuda", "--output", str(output / "companion-ops-ci.json")]],
        "cuda": [[python, "-m", "benchmarks.run", "--output", str(output / "benchmarks"), "cuda_eager"]],
        "models": [[python, "-m", "benchmarks.run", "--output", str(output / "benchmarks"), "cuda_models"]],
    }


_HAL_ALONE = {"FLAGOS_COMPANION": "off", "FLAGOS_FALLBACK": "allow"}
#: What the parts about the GPU run with.
ENVIRONMENT = {
    "hal": {"TORCH_FL_NVIDIA_REAL": "1"},
    "device": {"FLAGOS_BACKENDS": "nvidia", **_HAL_ALONE},
    "device-ops": {"FLAGOS_BACKENDS": "nvidia", **_HAL_ALONE},
    "companion": {"FLAGOS_BACKENDS": "nvidia"},
    "companion-ops": {"FLAGOS_BACKENDS": "nvidia", "FLAGOS_FALLBACK": "allow"},
    "cuda": {"FLAGOS_BACKENDS": "nvidia"},
    "models": {"FLAGOS_BACKENDS": "nvidia"},
}


def run_part(part: str, steps: list[list[str]], output: Path, limit: float) -> dict[str, Any]:
    """Run the commands of a part, stop at the first that fails, and say how it went."""
    started = time.monotonic()
    code = 0
    environment = {**os.environ, **ENVIRONMENT.get(part, {})}
    with (output / f"{part}.log").open("w") as log:
        for step in steps:
            log.write(f"$ {' '.join(step)}\n")
            log.flush()
            try:
                done = subprocess.run(
                    step, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, timeout=limit, env=environment
                )
            except subprocess.TimeoutExpired:
                log.write(f"stopped after {limit:.0f} s\n")
                code = code or 124
                continue
            code = code or done.returncode
    return {"part": part, "exit": code, "seconds": round(time.monotonic() - started, 1)}


def versions() -> dict[str, str | None]:
    """Return what the results depend on."""
    import torch

    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": device,
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the parts that the arguments name; see the head of this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for logs and results")
    parser.add_argument("--limit", type=float, default=240, help="seconds that one command may take")
    parser.add_argument("parts", nargs="*", help="of those above; default all")
    options = parser.parse_args(arguments)
    output = options.output.resolve()
    known = commands(output)
    unknown = [part for part in options.parts if part not in known]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(known)}")
    output.mkdir(parents=True, exist_ok=True)
    results = []
    for part, steps in known.items():
        if options.parts and part not in options.parts:
            continue
        results.append(run_part(part, steps, output, options.limit))
        print(f"{part}: exit status {results[-1]['exit']} after {results[-1]['seconds']} s", flush=True)
        if part == "build" and results[-1]["exit"]:
            break
    summary = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": "python3 tools/gpu.py " + " ".join(options.parts),
        "versions": versions(),
        "parts": results,
    }
    (output / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    return 1 if any(result["exit"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
