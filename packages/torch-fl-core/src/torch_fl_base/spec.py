"""The description of a backend, and the error that everything of ours raises."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ENTRY_POINT_GROUP = "torch_fl.backends"
"""Each entry is a function without arguments that returns a BackendSpec and imports nothing heavy."""


class BackendError(RuntimeError):
    """Something about backends, devices or their configuration is wrong; the message says what to do."""


@dataclass(frozen=True)
class BackendSpec:
    """What core must know of a backend before it opens the backend's library. Pure data.

    Raises: BackendError for a name or alias that is no lower-case identifier.
    """

    name: str
    """What FLAGOS_BACKENDS and the reports call it."""
    library: Path
    """The HAL library (include/flagos/hal.h). It need not exist if `unavailable_reason` is given."""
    routes: Path | None = None
    """The backend's routes.toml; None: core's base table as it is."""
    built_for_abi: tuple[int, int] = (1, 0)
    """Version of hal.h that the library was compiled with."""
    probe_paths: tuple[str, ...] = ()
    """Glob patterns of device nodes. Where none exists the library is not opened unless FLAGOS_BACKENDS names
    the backend."""
    aliases: tuple[str, ...] = ()
    """Other names accepted in FLAGOS_BACKENDS."""
    emulated: bool = False
    """No hardware: joins only where nothing else has a device, or where FLAGOS_BACKENDS names it."""
    companion: str | None = None
    """The device type under which a build of torch for these chips serves them itself ("cuda"). Where the
    process has it, core uses its memory, streams and kernels (FLAGOS_COMPANION=off: the HAL alone)."""
    unavailable_reason: str | None = None
    """Why this build of the package cannot be used (for instance: its library is not written yet)."""
    distribution: str | None = None
    """The Python distribution that brought it; discovery fills it in."""
    version: str | None = None
    """Version of that distribution; discovery fills it in."""

    def __post_init__(self) -> None:
        for name in (self.name, *self.aliases):
            if not (name.isascii() and name.isidentifier() and name[0].isalpha() and name.islower()):
                raise BackendError(
                    f"flagos: {name!r} is no backend name: lower-case letters, digits and '_', a letter first"
                )
