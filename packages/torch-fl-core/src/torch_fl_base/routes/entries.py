"""Candidates and entries: the part of the grammar that files, FLAGOS_ROUTES and the Python API share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch_fl_base.routes.conditions import Arguments, read_conditions
from torch_fl_base.routes.errors import Complaints, Fault, KeyPath, RouteError, kind_of, known_names
from torch_fl_base.routes.model import ON_ERROR, SOURCES, Candidate, Origin, Route
from torch_fl_base.routes.operators import Catalogue, UnknownOperatorError, name_of

_CANDIDATE_KEYS = ("source", "when", "on_error")


def read_candidates(
    value: Any, path: KeyPath, complaints: Complaints, arguments: Arguments
) -> tuple[Candidate, ...]:
    """Return the candidates of a list; one source is a list of one.

    Args:
        value: a source, or a list of sources and tables {source, when, on_error}.
        arguments: of the operators that they are for.
    Every fault goes to `complaints`; what has one is left out.
    """
    if isinstance(value, (str, Mapping)):
        items: Sequence[Any] = [value]
    elif isinstance(value, (list, tuple)):
        items = value
    else:
        complaints.add(path, f"expected a source or a list of candidates, not {kind_of(value)}")
        return ()
    if not items:
        complaints.add(path, "has no candidate; leave the entry out for the default")
    read: list[Candidate] = []
    for index, item in enumerate(items):
        where = path if items is not value else (*path, index)
        candidate = _candidate(item, where, complaints, arguments)
        if candidate is None:
            continue
        always = next((c.source for c in read if not c.when and c.source in ("cpu", candidate.source)), None)
        if always is not None:
            told = f"{candidate.source!r} is never reached: {always!r} stands before it without condition"
            complaints.add(where, told)
        read.append(candidate)
    return tuple(read)


def _candidate(item: Any, path: KeyPath, complaints: Complaints, arguments: Arguments) -> Candidate | None:
    if isinstance(item, str):
        return Candidate(item) if _source(item, path, complaints) else None
    if not isinstance(item, Mapping):
        complaints.add(path, f"expected a source or a table {{source, when, on_error}}, not {kind_of(item)}")
        return None
    for key in item:
        if key not in _CANDIDATE_KEYS:
            complaints.add((*path, key), f"unknown key.{known_names(key, _CANDIDATE_KEYS)}")
    when = {}
    if "when" in item:
        when = read_conditions(item["when"], (*path, "when"), complaints, arguments)
    on_error = item.get("on_error", "raise")
    if on_error not in ON_ERROR:
        complaints.add((*path, "on_error"), f'expected "raise" or "next", not {on_error!r}')
        on_error = "raise"
    if "source" not in item:
        complaints.add(path, "has no source")
        return None
    source = item["source"]
    return Candidate(source, when, on_error) if _source(source, (*path, "source"), complaints) else None


def _source(name: Any, path: KeyPath, complaints: Complaints) -> bool:
    if isinstance(name, str) and name in SOURCES:
        return True
    if not isinstance(name, str):
        complaints.add(path, f"expected a source, not {kind_of(name)}")
    else:
        complaints.add(path, f"unknown source {name!r}.{known_names(name, SOURCES, 'Sources')}")
    return False


def operators_of(name: str, path: KeyPath, complaints: Complaints, catalogue: Catalogue) -> list[str]:
    """Return the operators that a name or pattern means; none after a complaint."""
    try:
        return catalogue.expand(name)
    except UnknownOperatorError as error:
        complaints.add(path, str(error))
        return []


class Merger:
    """Gathers the entries of one document by operator: a name beats a pattern, a later pattern an earlier
    one."""

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self._named: dict[str, str] = {}

    def add(self, name: str, ops: Sequence[str], route: Route, path: KeyPath, complaints: Complaints) -> None:
        """Take an entry over; a second name for the same operator is a fault."""
        if "*" in name:
            self.routes.update({op: route for op in ops if op not in self._named})
            return
        for op in ops:
            other = self._named.setdefault(op, name)
            if other != name:
                complaints.add(path, f"{name!r} and {other!r} are the same operator; keep one entry")
            self.routes[op] = route


def read_mapping(
    mapping: Mapping[Any, Any], catalogue: Catalogue, origin: Origin, call: str
) -> dict[str, Route | None]:
    """Return the routes that a call of the Python API asks for, by full name.

    Args:
        mapping: an operator or pattern → a source, a list of candidates, or None for "none of this layer".
        origin: of the call; the entry's name is filled in.
        call: the function's name, for errors.
    Raises: RouteError with every fault.
    """
    if not isinstance(mapping, Mapping):
        raise RouteError(f"{call} takes a mapping such as {{'mm': 'cpu'}}, not {kind_of(mapping)}")
    complaints = Complaints(call)
    merger = Merger()
    removed: list[str] = []
    for key, value in mapping.items():
        try:
            name = name_of(key)
        except TypeError as error:
            complaints.faults.append(Fault(str(error).removeprefix("flagos: "), call))
            continue
        path: KeyPath = (name,)
        ops = operators_of(name, path, complaints, catalogue)
        if any(not catalogue.checked(op) for op in ops):
            complaints.add(path, "no operator of this name is registered; import its library before")
        if value is None:
            removed += ops
            continue
        candidates = read_candidates(value, path, complaints, catalogue.arguments_of(ops))
        own = Origin(origin.layer, origin.file, origin.line, name, origin.reason, origin.until)
        merger.add(name, ops, Route(candidates, own), path, complaints)
    complaints.raise_any()
    routes: dict[str, Route | None] = dict.fromkeys(removed)
    routes.update(merger.routes)
    return routes
