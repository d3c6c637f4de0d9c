"""The thead backend of torch-fl: its description. Opens no library and imports no torch."""

from __future__ import annotations

from pathlib import Path

from torch_fl_base.spec import BackendSpec
from torch_fl_thead._version import __version__

__all__ = ["__version__", "backend"]


def backend() -> BackendSpec:
    """Describe the backend. Pure data."""
    return BackendSpec(
        name="thead",
        library=Path(__file__).parent / "libflagos_hal_thead.so",
        built_for_abi=(1, 0),
        probe_paths=("/dev/alixpu_ppu[0-9]*",),
        aliases=("ppu",),
        unavailable_reason=f"torch-fl-thead {__version__} brings no HAL library yet",
    )
