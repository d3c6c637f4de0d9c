"""What a vendor tells the kit about a library: where it is, what it cannot do, and how to provoke its rare
states."""

from __future__ import annotations

import fnmatch
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from torch_fl_base.spec import BackendError

if TYPE_CHECKING:
    from torch_fl_base._hal import Hal
    from torch_fl_base.testing.kit.gate import Gate


@dataclass(frozen=True)
class Exemption:
    """Tests that a library is excused from."""

    pattern: str
    """Shell pattern on the test's name without its `test_`, or on its requirement id: "str_07_*",
    "HAL-STR-07"."""
    reason: str
    """What the hardware or the library does instead, in a sentence."""
    issue: str = ""
    """Where the matter is followed; "" only for `unsupported`."""

    def covers(self, name: str, requirements: tuple[str, ...]) -> bool:
        """Return whether the pattern names a test, given with its case in brackets and its requirement
        ids."""
        short = name.removeprefix("test_")
        plain = short.partition("[")[0]
        candidates = (short, plain, *requirements)
        return any(
            fnmatch.fnmatchcase(candidate, _literal_brackets(self.pattern)) for candidate in candidates
        )


def _literal_brackets(pattern: str) -> str:
    return pattern.replace("[", "[[]")


@dataclass(frozen=True)
class Quirks:
    """A library and its peculiarities. A file quirks.py defines one as QUIRKS."""

    library: str | Path | None = None
    """The HAL library; relative to the file's folder. The command line may name another."""
    name: str = ""
    """The backend's name; by default what the library calls itself."""
    unsupported: tuple[Exemption, ...] = ()
    """What the hardware cannot do. These tests are not run."""
    expected_failures: tuple[Exemption, ...] = ()
    """What does not work yet. These tests run; one that passes is reported as a failure, so that the list
    stays true."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Set before the library is loaded."""
    checks_handles: bool = True
    """Whether the library tells handles that are not its own, or were released, from live ones (GEN-08)."""
    private_memory: bool = True
    """Whether no other process allocates on the devices meanwhile, so that memory_info can be compared
    exactly."""
    make_busy: Callable[[Hal, int], Gate] | None = None
    """Holds a stream (given by handle) up until the returned gate is opened. None: through
    stream.host_callback."""
    inject: Callable[[str, int], Mapping[str, str]] | None = None
    """Environment under which the nth call (from 1) of a function, "memory.allocate", fails. None: no fault
    injection."""
    fail_work: Callable[[int], Mapping[str, str]] | None = None
    """Environment under which the nth queued fill (from 1) fails on the device, after the call said OK. None:
    cannot be provoked."""
    lose_device: Callable[[int], Mapping[str, str]] | None = None
    """Environment under which the given device is lost at its first copy, so that GEN-11 can be seen. None:
    cannot be provoked."""

    def __post_init__(self) -> None:
        for exemption in (*self.unsupported, *self.expected_failures):
            if not exemption.reason:
                raise BackendError(f"flagos: quirks: the exemption {exemption.pattern!r} gives no reason")
        for exemption in self.expected_failures:
            if not exemption.issue:
                raise BackendError(
                    f"flagos: quirks: the expected failure {exemption.pattern!r} names no issue"
                )


def load_quirks(path: Path) -> Quirks:
    """Return QUIRKS of a quirks.py; its library becomes absolute. Raises: BackendError if the file has
    none."""
    spec = importlib.util.spec_from_file_location("flagos_conformance_quirks", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise BackendError(f"flagos: no quirks file {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    quirks = getattr(module, "QUIRKS", None)
    if not isinstance(quirks, Quirks):
        raise BackendError(f"flagos: {path} does not define QUIRKS, a torch_fl_base.testing.hal.Quirks")
    if quirks.library is not None:
        object.__setattr__(quirks, "library", path.parent / quirks.library)
    return quirks


def default_quirks_file(library: Path) -> Path | None:
    """Return the quirks that lie beside a library, or core's own for the reference backend; None if there
    are none."""
    beside = library.parent / "quirks.py"
    if beside.is_file():
        return beside
    if library.name == "libflagos_hal_reference.so":
        return Path(__file__).with_name("reference_quirks.py")
    return None
