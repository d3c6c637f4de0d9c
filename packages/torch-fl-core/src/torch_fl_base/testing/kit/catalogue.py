"""Which tests there are, and which requirements they check."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from torch_fl_base._hal_header import header
from torch_fl_base.testing.kit.checks import marks, requirement

_NAMES = (
    "system",
    "device",
    "memory",
    "stream",
    "order",
    "callback",
    "event",
    "host",
    "peer",
    "ipc",
    "graph",
    "trace",
    "async_alloc",
    "general",
    "manners",
    "failures",
    "fork",
)
MODULES = tuple(f"torch_fl_base.testing.kit.{name}" for name in _NAMES)


def every_test() -> list[Callable[..., None]]:
    """Return all test functions of the kit."""
    found: list[Callable[..., None]] = []
    for module in MODULES:
        members: dict[str, Any] = vars(importlib.import_module(module))
        found += [
            function
            for name, function in members.items()
            if name.startswith("test_") and function.__module__ == module
        ]
    return found


def coverage() -> dict[str, list[str]]:
    """Return the names of the tests of every requirement of the header, in its order; empty lists where
    there is none.

    Raises: ValueError for a test that names a requirement which the header does not have.
    """
    found: dict[str, list[str]] = {identifier: [] for identifier in header().requirements}
    for function in every_test():
        for identifier in (requirement(function.__name__), *marks(function).also):
            if identifier not in found:
                raise ValueError(
                    f"{function.__module__}.{function.__name__}: hal.h has no requirement {identifier!r}"
                )
            found[identifier].append(function.__name__)
    return found
