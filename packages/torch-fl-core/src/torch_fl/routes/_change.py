"""Changing routes: for all threads (`set`, `reset`, `load`, `reload`), or for a region of one (`use`)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import ContextDecorator
from pathlib import Path
from typing import Any

from torch_fl_base.routes.editing import write_entries
from torch_fl_base.routes.entries import read_mapping
from torch_fl_base.routes.errors import RouteError
from torch_fl_base.routes.model import Candidate, LayerName, Origin, Route
from torch_fl_base.routes.operators import UnknownOperatorError, name_of
from torch_fl_base.routes.store import Previous, absent_text, store

Routes = Mapping[Any, Any]
"""Operator or pattern → a source, or a list of candidates: sources, and tables {source, when, on_error}."""


def set_routes(
    mapping: Routes | Previous, backend: str | None = None, persist: bool = False, *, reason: str = ""
) -> Previous:
    """Set routes for all threads until further notice; returns what they replaced, which `set` takes too.

    Args:
        mapping: {"mm": "cpu"}, {"mm": ["boxed", "cpu"]}, {"mm": [{"source": "gems", "when": {"max_rank": 2}},
            "cpu"]}, {torch.ops.aten.mm.default: "cpu"}, {"_foreach_*": "cpu"}. None takes a route away.
            What an earlier `set` returned undoes it.
        backend: a backend with devices here; None: every one that has a source named for the operator.
        persist: also write the routes into the user's table, with `reason`.
        reason: why; `explain` shows it.
    Opens the devices. Work that runs already is not affected.
    Raises: RouteError for unknown names, or if no source named is there: says what is, and how to get it.
        Nothing has changed then.
    """
    if isinstance(mapping, Previous):
        return store().restore(mapping)
    origin = _here(LayerName.PROCESS, reason)
    routes = read_mapping(mapping, store().catalogue(), origin, "torch_fl.routes.set")
    overlay = _by_backend(routes, backend)
    if persist:
        _persist(routes, backend, reason)
    return store().set(overlay)


class use(ContextDecorator):
    """Routes for a region of this thread, over all others; a context manager and a decorator.

    Regions nest. The backward pass of what is recorded inside runs with the routes of the thread that calls
    `backward`.

    Args:
        mapping, backend: as `set`; no value may be None.
    Raises: as `set`; unknown names at once, absent sources when the region is entered.
    """

    def __init__(self, mapping: Routes, backend: str | None = None) -> None:
        origin = _here(LayerName.CONTEXT)
        routes = read_mapping(mapping, store().catalogue(), origin, "torch_fl.routes.use")
        if None in routes.values():
            raise RouteError("torch_fl.routes.use takes a source or candidates for each operator, not None")
        self._routes = routes
        self._backend = backend

    def __enter__(self) -> None:
        overlay = _by_backend(self._routes, self._backend)
        store().push(
            {name: {op: r for op, r in mine.items() if r is not None} for name, mine in overlay.items()}
        )

    def __exit__(self, *error: object) -> None:
        store().pop()


def reset(ops: str | Iterable[Any] | None = None) -> None:
    """Take away what `set` has set: for the operators or patterns named, or for all."""
    if ops is None:
        store().reset()
        return
    names = [ops] if isinstance(ops, str) or hasattr(ops, "_schema") else list(ops)
    try:
        store().reset(full for name in names for full in store().catalogue().expand(name_of(name)))
    except UnknownOperatorError as error:
        raise RouteError(str(error)) from None


def load(path: str | Path | None) -> None:
    """Use a route table as the user's file, in place of the one that FLAGOS_ROUTES_FILE names; None: that one
    again.

    Raises: RouteError with every fault of the file, by line; the routes stay as they were then.
    """
    store().load(None if path is None else Path(path))


def reload() -> None:
    """Read all route tables again; raises as `load`."""
    store().reload()


def _by_backend(
    routes: Mapping[str, Route | None], backend: str | None
) -> dict[str, dict[str, Route | None]]:
    """Return routes by backend, each where one of its sources is present.

    Raises: RouteError for every entry that is present nowhere.
    """
    backends = store().chosen_backends(backend)
    overlay: dict[str, dict[str, Route | None]] = {name: {} for name in backends}
    absent: dict[str, str] = {}
    served: list[str] = []
    for op, route in routes.items():
        for name in backends:
            if route is None:
                overlay[name][op] = None
                continue
            present = store().capability(op, name)
            if set(route.sources).isdisjoint(present):
                absent.setdefault(route.origin.entry, f"on {name} {absent_text(route, op, present)}")
            else:
                overlay[name][op] = route
                served.append(route.origin.entry)
    faults = [told for entry, told in absent.items() if entry not in served]
    if faults:
        raise RouteError("\n  ".join(faults))
    return {name: mine for name, mine in overlay.items() if mine}


def _persist(routes: Mapping[str, Route | None], backend: str | None, reason: str) -> None:
    """Write routes into the user's table.

    Raises: RouteError if there is none, or it cannot hold them.
    """
    path = store().user_file()
    if path is None:
        raise RouteError("persist needs a table to write into: set FLAGOS_ROUTES_FILE, or load one")
    if not reason.strip():
        raise RouteError("persist needs a reason: every entry of a route table has one")
    if backend is not None or None in routes.values():
        raise RouteError(
            "persist writes routes for all backends, and takes none away; edit the table for that"
        )
    entries: dict[str, tuple[Candidate, ...]] = {
        route.origin.entry: route.candidates for route in routes.values() if route is not None
    }
    write_entries(path, entries, store().catalogue(), reason)


def _here(layer: LayerName, reason: str = "") -> Origin:
    """Return the origin of routes that the calling program sets: its file and line."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return Origin(layer, frame.f_code.co_filename, frame.f_lineno, reason=reason)
