"""What a report says about the library and the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch_fl_base._hal_header import header
from torch_fl_base.testing.kit.bench import Bench
from torch_fl_base.testing.kit.checks import isolated


@dataclass(frozen=True)
class Description:
    """The library as it describes itself, and its devices."""

    vendor: str
    library_version: str
    abi: str
    sdk_version: str
    driver_version: str
    sdk_path: str
    groups: list[str]
    """Optional groups that the library has."""
    capabilities: dict[str, int]
    devices: list[dict[str, Any]]
    unavailable: str
    """Why init failed with UNAVAILABLE; "" if it did not."""


@isolated(initialised=False)
def describe(bench: Bench) -> dict[str, Any]:
    """Return a Description as plain data. Calls init and shutdown."""
    hal = bench.hal
    outcome = hal.call("system.init")
    unavailable = bench.detail().message if outcome.status == "UNAVAILABLE" else ""
    if outcome.status not in ("OK", "UNAVAILABLE"):
        raise hal.error("system.init", (), outcome.status)
    info = hal.system.info()
    capabilities: dict[str, int] = {}
    devices: list[dict[str, Any]] = []
    if not unavailable:
        for name in header().constants:
            if name.startswith("FLAGOS_HAL_CAP_") and not name.endswith("_"):
                short = name.removeprefix("FLAGOS_HAL_CAP_")
                capabilities[short] = bench.capability(short)
        for device in range(hal.device.count()):
            properties = hal.device.properties(device)
            devices.append(
                {
                    "name": properties.name.decode(),
                    "arch": properties.arch.decode(),
                    "total_memory": properties.total_memory,
                }
            )
        hal.system.shutdown()
    return asdict(
        Description(
            vendor=info.vendor.decode(),
            library_version=info.library_version.decode(),
            abi=f"{hal.abi[0]}.{hal.abi[1]}",
            sdk_version=info.sdk_version.decode(),
            driver_version=info.driver_version.decode(),
            sdk_path=info.sdk_path.decode(),
            groups=[group for group in header().optional_groups if hal.has(group)],
            capabilities=capabilities,
            devices=devices,
            unavailable=unavailable,
        )
    )


def machine() -> dict[str, Any]:
    """Return what hardware and software the tests ran on."""
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else ""
    try:
        core = importlib.metadata.version("torch-fl-core")
    except importlib.metadata.PackageNotFoundError:
        core = "source tree"
    return {
        "processor": model or platform.machine(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "torch_fl_core": core,
        "abi": ".".join(str(part) for part in header().abi),
    }
