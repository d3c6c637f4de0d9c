"""Watching routes: results compared between sources, what runs on the host, counters."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch_fl_base import _env, _native
from torch_fl_base.routes.errors import RouteError, known_names
from torch_fl_base.routes.store import store

MODES = ("error", "warn", "allow")
_lock = threading.Lock()
_checks = 0
"""Regions of `check` that are open, in all threads."""


class Count(NamedTuple):
    """How often a source has served an operator on a device."""

    op: str
    source: str
    device: int
    calls: int
    host_bytes: int
    """Bytes copied between host and device for it."""
    nanoseconds: int
    """Host time; counted only while timing is on (`torch_fl.trace`)."""


class Decline(NamedTuple):
    """How often a source has declined calls of an operator."""

    op: str
    source: str
    calls: int


def counters() -> list[Count]:
    """Return the calls so far by operator, source and device."""
    return [Count(*row) for row in _native.load().ops.counters()]


def declines() -> list[Decline]:
    """Return the declined calls so far by operator and source."""
    return [Decline(*row) for row in store().native().declines()]


@dataclass
class Check:
    """A region in which every operator is run by a second source too; `rows` has results that differ."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    """Keys: op, source, reference, device, arguments, what. Complete when the region has ended."""
    _before: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def __enter__(self) -> Check:
        global _checks
        native = store().native()
        with _lock:
            _checks += 1
            if _checks == 1 and not _env.ROUTE_CHECK.read():
                native.set_check(True)  # forgets older rows
            self._before = list(native.check_report())
        return self

    def __exit__(self, *error: object) -> None:
        global _checks
        native = store().native()
        with _lock:
            self.rows = [row for row in native.check_report() if row not in self._before]
            _checks -= 1
            if _checks == 0 and not _env.ROUTE_CHECK.read():
                native.set_check(False)

    def __str__(self) -> str:
        if not self.rows:
            return "no result differs between the sources"
        return "\n".join(
            "{op} on {device}: {source} differs from {reference}: {what}; {arguments}".format(**row)
            for row in self.rows
        )


def check() -> Check:
    """Return a context manager that runs every operator inside by a second source too and compares; slow.

    Counts for all threads. FLAGOS_ROUTE_CHECK=1 does the same for a whole process.
    """
    return Check()


class fallback:
    """Choose what happens when an operator runs on the host because the device has no kernel for it.

    In effect at once and for all threads; as a context manager, until the end of the region.

    Args:
        mode: "error" raises, "warn" tells each operator once, "allow" is silent.
    Raises: RouteError for another mode.
    """

    def __init__(self, mode: str) -> None:
        if mode not in MODES:
            raise RouteError(f"unknown mode {mode!r} of fallback.{known_names(mode, MODES)}")
        self._before = store().set_fallback(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        store().set_fallback(self._before)
