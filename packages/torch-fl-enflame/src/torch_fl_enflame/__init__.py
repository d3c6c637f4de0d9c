"""The enflame backend of torch-fl: its description. Opens no library and imports no torch."""

from __future__ import annotations

from pathlib import Path

from torch_fl_base.spec import BackendSpec
from torch_fl_enflame._version import __version__

__all__ = ["__version__", "backend"]


def backend() -> BackendSpec:
    """Describe the backend. Pure data."""
    return BackendSpec(
        name="enflame",
        library=Path(__file__).parent / "libflagos_hal_enflame.so",
        built_for_abi=(1, 0),
        probe_paths=("/dev/gcu*",),
        aliases=("gcu", "tops"),
        unavailable_reason=f"torch-fl-enflame {__version__} brings no HAL library yet",
    )
