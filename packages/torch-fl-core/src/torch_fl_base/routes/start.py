"""What claiming the device does about routes. Light, since `import torch` alone may run it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from torch_fl_base import _env, _native
from torch_fl_base.discovery import Record, State

if TYPE_CHECKING:
    from torch_fl_base.routes.store import Store

_vendor_files: dict[str, Path] = {}
_new = False
"""Whether the store has yet to learn `_vendor_files`."""
_registered = False


def start(records: Iterable[Record], explicit: bool) -> None:
    """Arrange that the routes are published when the devices open; may be called again.

    Args:
        records: of discovery; the tables of those that may be opened count.
        explicit: the program imported torch_fl: everything is read now, so that it is told what is wrong.
            Else only what FLAGOS_ROUTES or FLAGOS_ROUTES_FILE asks for is; the rest at the first use.
    Raises: RouteError with every fault of every table; BackendError for a bad variable.
    """
    global _new, _registered
    _vendor_files.clear()
    for record in records:
        if record.state is State.WAITING and record.spec is not None and record.spec.routes is not None:
            _vendor_files[record.name] = record.spec.routes
    _new = True
    if explicit or _asked_for():
        check()
    if not _registered:
        native = _native.load().routes
        native.on_open(lambda: _configured().publish())
        native.on_fallback(_warn)
        _registered = True


def _warn(operator: str, device: str) -> None:
    from torch_fl_base.routes.fallback import warn

    warn(operator, device)


def check() -> None:
    """Read every table, unless that was done; raises as `start`."""
    if _vendor_files or _asked_for():  # else there is core's own table alone, which the first use reads
        _configured().check()


def _asked_for() -> bool:
    """Return whether the environment has routes."""
    return not {_env.ROUTES.name, _env.ROUTES_FILE.name}.isdisjoint(_env.in_effect())


def _configured() -> Store:
    """Return the store, which knows the tables of the backends."""
    global _new
    from torch_fl_base.routes.store import store

    routes = store()
    if _new:
        routes.configure(_vendor_files)
        _new = False
    return routes
