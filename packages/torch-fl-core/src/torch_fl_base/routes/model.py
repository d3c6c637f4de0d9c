"""What routes are made of. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from torch_fl_base.routes.errors import Fault

SCHEMA = 1
"""The grammar of route tables that this core reads."""

SOURCES: dict[str, str] = {
    "native": "the vendor's operator library",
    "boxed": "the kernel of the companion device, the device type that torch itself serves on the same chips",
    "gems": "FlagGems, Triton kernels called from Python",
    "gems_cpp": "FlagGems' C++ library",
    "triton": "Triton kernels of torch-fl and of programs",
    "tileops": "TileOps",
    "cpu": "the host",
}
"""Every source and what it is."""

_HOW_TO_GET = {
    "native": "it comes with the backend's package, where that has an operator library",
    "boxed": "it needs a torch that was built for these chips, and FLAGOS_COMPANION not set to off",
    "gems": "it needs the package flag_gems and triton",
    "gems_cpp": "it needs flag_gems built with its C++ library",
    "triton": "it needs triton, or a function given to torch_fl.routes.register",
    "tileops": "it needs the package tileops",
}


def how_to_get(source: str) -> str:
    """Return what makes a source available that is absent, as a clause."""
    return _HOW_TO_GET.get(source, "torch_fl.routes.register adds a function for it")


ON_ERROR = ("raise", "next")


class LayerName(str, Enum):
    """Who decided a route, highest first. The values are what reports print."""

    CONTEXT = "context"  # torch_fl.routes.use, of one thread
    PROCESS = "process"  # torch_fl.routes.set
    ENVIRONMENT = "environment"
    USER_FILE = "user file"
    VENDOR_TABLE = "vendor table"
    BASE_TABLE = "base table"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Candidate:
    """A source that may serve an operator, and when."""

    source: str
    when: Mapping[str, Any] = field(default_factory=dict)
    """Conditions that must all hold; dtype and devices are lists."""
    on_error: str = "raise"
    """What an exception of this source means: "raise" it, or try the "next" candidate."""

    def native(self) -> dict[str, Any]:
        """Return what the runtime is told."""
        told: dict[str, Any] = {"source": self.source, "on_error": self.on_error}
        if self.when:
            told["when"] = dict(self.when)
        return told

    def __str__(self) -> str:
        text = self.source + (f" if {describe(self.when)}" if self.when else "")
        return text + (", on error the next" if self.on_error == "next" else "")


@dataclass(frozen=True)
class Origin:
    """Who decided a route, where it is written, and why."""

    layer: LayerName
    file: str | None = None
    """The table; for calls of torch_fl.routes the program's file."""
    line: int | None = None
    entry: str = ""
    """The name as it is written there: an operator, a pattern, or "default"."""
    reason: str = ""
    until: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line is not None else self.file or ""
        return f"{self.layer}{f' {place}' if place else ''}{f', entry {self.entry!r}' if self.entry else ''}"


@dataclass(frozen=True)
class Route:
    """The candidates of an operator in order, and who decided so."""

    candidates: tuple[Candidate, ...]
    origin: Origin

    def native(self) -> list[dict[str, Any]]:
        """Return what the runtime is told."""
        return [candidate.native() for candidate in self.candidates]

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources named, in order."""
        return tuple(candidate.source for candidate in self.candidates)


@dataclass(frozen=True)
class Layer:
    """The routes of one layer."""

    routes: Mapping[str, Route] = field(default_factory=dict)
    """By full name: "aten::mean.dim", "aten::mm"."""
    default: Route | None = None
    """For operators that no layer names."""


@dataclass(frozen=True)
class Table(Layer):
    """A route table as read from a file, with what it extends."""

    path: Path = Path()
    evidence: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    """Every file that was read for it."""
    notes: tuple[Fault, ...] = ()
    """What is no fault: entries that could not be checked, or that this torch has no operator for."""


def describe(when: Mapping[str, Any]) -> str:
    """Return conditions in words: "dtype float16 or bfloat16, rank at most 4"."""
    words = []
    for key, value in when.items():
        if key == "args":
            words += [f"{name} {_bounds(bound)}" for name, bound in value.items()]
        elif key == "devices":
            words.append(f"device {_one_of(value)}")
        elif key in ("min_rank", "min_numel"):
            words.append(f"{key[4:]} at least {value}")
        elif key in ("max_rank", "max_numel"):
            words.append(f"{key[4:]} at most {value}")
        elif key == "contiguous":
            words.append("contiguous" if value else "not contiguous")
        elif key == "zero_size":
            words.append("without elements" if value else "with elements")
        else:
            words.append(f"{key.replace('_', ' ')} {_bounds(value)}")
    return ", ".join(words)


_BOUND_WORDS = {
    "min": "at least",
    "max": "at most",
    "multiple_of": "a multiple of",
    "min_len": "of length at least",
    "max_len": "of length at most",
}


def _bounds(value: Any) -> str:
    if isinstance(value, Mapping):
        return " and ".join(f"{_BOUND_WORDS[key]} {bound}" for key, bound in value.items())
    return _one_of(value) if isinstance(value, (list, tuple)) else _one_of([value])


def _one_of(values: Any) -> str:
    return " or ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)
