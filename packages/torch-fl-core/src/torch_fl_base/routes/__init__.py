"""Routing of operators: which source serves an operator on a backend, and who decided so.

A *source* implements operators (`model.SOURCES`). A *route* is an ordered list of candidates: sources, each
with an optional condition; `cpu` is always the tail. Route tables are TOML files (`files`), and the same
grammar holds for FLAGOS_ROUTES and the Python API. The layers, highest first: `torch_fl.routes.use` in one
thread, `torch_fl.routes.set`, FLAGOS_ROUTES, the user's file, the backend's table, core's base.toml.

This package imports torch in functions only. The API is `torch_fl.routes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_fl_base.routes.errors import RouteError

__all__ = ["RouteError"]


def __getattr__(name: str) -> Any:
    """Import RouteError at its first use: `import torch` runs this file, and needs `start` alone."""
    if name == "RouteError":
        from torch_fl_base.routes.errors import RouteError

        return RouteError
    raise AttributeError(f"module 'torch_fl_base.routes' has no attribute {name!r}")
