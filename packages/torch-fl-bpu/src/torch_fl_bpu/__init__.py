"""The bpu backend of torch-fl: its description. Opens no library and imports no torch."""

from __future__ import annotations

from pathlib import Path

from torch_fl_base.spec import BackendSpec
from torch_fl_bpu._version import __version__

__all__ = ["__version__", "backend"]


def backend() -> BackendSpec:
    """Describe the backend. Pure data."""
    return BackendSpec(
        name="bpu",
        library=Path(__file__).parent / "libflagos_hal_bpu.so",
        built_for_abi=(1, 0),
        probe_paths=("/dev/bpu_core[0-9]*",),
        aliases=("drobotics",),
        unavailable_reason=f"torch-fl-bpu {__version__} brings no HAL library yet",
    )
