"""The mthreads backend of torch-fl: its description. Opens no library and imports no torch."""

from __future__ import annotations

from pathlib import Path

from torch_fl_base.spec import BackendSpec
from torch_fl_mthreads._version import __version__

__all__ = ["__version__", "backend"]


def backend() -> BackendSpec:
    """Describe the backend. Pure data."""
    return BackendSpec(
        name="mthreads",
        library=Path(__file__).parent / "libflagos_hal_mthreads.so",
        built_for_abi=(1, 0),
        probe_paths=("/dev/mtgpu.*",),
        aliases=("musa",),
        unavailable_reason=f"torch-fl-mthreads {__version__} brings no HAL library yet",
    )
