"""The reference backend, which core carries: devices emulated in host memory, through the same HAL as any
other."""

from __future__ import annotations

from pathlib import Path

from torch_fl_base.spec import BackendSpec

HERE = Path(__file__).parent


def backend() -> BackendSpec:
    """Describe the reference backend. Pure data: opens no library and imports no torch."""
    library = HERE / "lib" / "libflagos_hal_reference.so"
    return BackendSpec(name="reference", library=library, built_for_abi=(1, 0), emulated=True)
