"""The short form of routes in FLAGOS_ROUTES and on the command line: "mm=cpu; _foreach_*=boxed,cpu"."""

from __future__ import annotations

import re

from torch_fl_base.routes.errors import Fault, RouteError, known_names

Assignment = tuple[str, tuple[str, ...]]
"""An operator or pattern, and its sources in order."""


def parse(text: str, place: str = "FLAGOS_ROUTES") -> tuple[Assignment, ...]:
    """Return the assignments of a text, in its order; operators are not looked up here.

    Raises: RouteError with every part that is malformed or names an unknown source.
    """
    from torch_fl_base.routes.model import SOURCES

    assignments: list[Assignment] = []
    faults: list[Fault] = []
    for part in text.split(";"):
        if not part.strip():
            continue
        name, equals, right = part.partition("=")
        sources = tuple(source.strip() for source in right.split(","))
        if not equals or not re.fullmatch(r"[\w.:*]+", name.strip()) or not all(sources):
            shown = part.strip()
            faults.append(Fault(f"{shown!r} is not <operator>=<source>[,<source>…]", place))
            continue
        for source in sources:
            if source not in SOURCES:
                told = f"unknown source {source!r}.{known_names(source, SOURCES, 'Sources')}"
                faults.append(Fault(f"{name.strip()}: {told}", place))
        assignments.append((name.strip(), sources))
    if faults:
        raise RouteError(faults)
    return tuple(assignments)
