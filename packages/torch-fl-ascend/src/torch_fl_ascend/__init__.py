"""The ascend backend of torch-fl: its description. Opens no library and imports no torch."""

from __future__ import annotations

from pathlib import Path

from torch_fl_ascend._version import __version__
from torch_fl_base.spec import BackendSpec

__all__ = ["__version__", "backend"]


def backend() -> BackendSpec:
    """Describe the backend. Pure data."""
    return BackendSpec(
        name="ascend",
        library=Path(__file__).parent / "libflagos_hal_ascend.so",
        built_for_abi=(1, 0),
        probe_paths=("/dev/davinci[0-9]*",),
        aliases=("npu", "cann"),
        unavailable_reason=f"torch-fl-ascend {__version__} brings no HAL library yet",
    )
