"""What a measured number or a test result must carry to be evidence: hardware, versions, date, command."""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in {"model name", "Model", "cpu model"}:
            return value.strip()
    return platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (OSError, ValueError):
        return None


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _devices(device_type: str) -> list[dict[str, Any]]:
    """Name, backend and memory of each device of the type, as its module states them."""
    module = getattr(torch, device_type, None)
    if device_type == "cpu" or module is None:
        return []
    found = []
    for index in range(module.device_count()):
        properties = module.get_device_properties(index)
        found.append(
            {
                "index": index,
                "name": getattr(properties, "name", None),
                "backend": getattr(properties, "backend", None),
                "total_memory": getattr(properties, "total_memory", None),
            }
        )
    return found


def hardware(device_type: str = "cpu") -> dict[str, Any]:
    """Return CPU model, cores this process may use, memory and the devices; no host name, no path."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": _memory_gib(),
        "machine": platform.machine(),
        "devices": _devices(device_type),
    }


def versions() -> dict[str, str | None]:
    """Return the versions that decide a result: Python, torch, numpy, core."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": _version("numpy"),
        "torch-fl-core": _version("torch-fl-core"),
        "kernel": platform.release(),
    }


def date() -> str:
    """Return the present time in UTC, to the second, as ISO 8601."""
    return datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0).isoformat()


def command(module: str, arguments: list[str] | None = None) -> str:
    """Return the command line that repeats this run, without the paths of this machine."""
    words = sys.argv[1:] if arguments is None else arguments
    return shlex.join(["python", "-m", module, *words])


def provenance(device_type: str, module: str, arguments: list[str] | None = None) -> dict[str, Any]:
    """Return hardware, versions, date and command as one record for a result file."""
    return {
        "hardware": hardware(device_type),
        "versions": versions(),
        "date": date(),
        "command": command(module, arguments),
    }
