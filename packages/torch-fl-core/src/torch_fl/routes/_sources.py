"""Implementations from Python: functions that serve an operator as one of the sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch_fl_base.routes.errors import RouteError, known_names
from torch_fl_base.routes.model import SOURCES
from torch_fl_base.routes.operators import UnknownOperatorError, name_of
from torch_fl_base.routes.store import store

Function = TypeVar("Function", bound=Callable[..., Any])
_CORES_OWN = ("boxed", "cpu")


def register(source: str, op: Any, function: Any = None, backend: str | None = None) -> Any:
    """Let a function serve an operator as `source`; without `function` return a decorator.

    Args:
        source: "native", "gems", "gems_cpp", "triton" or "tileops". It runs where a route names it.
        op: "mm.out", "aten::mm.out" or torch.ops.aten.mm.out.
        function: called as the operator, with flagos tensors. It returns the result, or NotImplemented before
            it has written to an argument: the next candidate serves the call then.
        backend: None: on every backend.
    Returns: the function. A later call for the same source, operator and backend replaces it.
    Opens the devices only if `backend` is given.
    Raises: RouteError for an unknown source or operator.
    """
    full = _checked(source, op)
    if function is None:

        def decorate(function: Function) -> Function:
            register(source, full, function, backend)
            return function

        return decorate
    if not callable(function):
        raise RouteError(f"torch_fl.routes.register takes a function, not a {type(function).__name__}")
    _tell(store().native().register_python, source, full, backend, function)
    store().refresh(full)
    return function


def unregister(source: str, op: Any, backend: str | None = None) -> None:
    """Take back what `register` has registered; raises as it does."""
    full = _checked(source, op)
    _tell(store().native().unregister_python, source, full, backend)
    store().refresh(full)


def _tell(change: Callable[..., Any], source: str, op: str, backend: str | None, *function: Any) -> None:
    if backend is not None:
        store().chosen_backends(backend)
    try:
        change(source, op, backend, *function)
    except ValueError as error:
        raise RouteError(str(error).removeprefix("flagos: ")) from None


def _checked(source: str, op: Any) -> str:
    """Return the operator's full name."""
    if source not in SOURCES:
        raise RouteError(f"unknown source {source!r}.{known_names(source, SOURCES, 'Sources')}")
    if source in _CORES_OWN:
        others = ", ".join(name for name in SOURCES if name not in _CORES_OWN)
        raise RouteError(f"the source {source!r} is core's own; register a function as one of {others}")
    try:
        found = store().catalogue().expand(name_of(op))
    except UnknownOperatorError as error:
        raise RouteError(str(error)) from None
    if len(found) > 1 or "*" in name_of(op):
        raise RouteError(f"{op!r} is a pattern; a function serves one operator")
    return found[0]
