"""The nvidia backend of torch-fl: its description. Opens no library and imports no torch."""

from __future__ import annotations

from pathlib import Path

from torch_fl_base.spec import BackendSpec
from torch_fl_nvidia._version import __version__

__all__ = ["__version__", "backend"]


def backend() -> BackendSpec:
    """Describe the backend. Pure data."""
    here = Path(__file__).parent
    return BackendSpec(
        name="nvidia",
        library=here / "libflagos_hal_nvidia.so",
        routes=here / "routes.toml",
        built_for_abi=(1, 0),
        probe_paths=("/dev/nvidia[0-9]*",),
        aliases=("cuda",),
        companion="cuda",
    )
