"""A stand-in for the bindings of routes, torch_fl._C.routes, and how the tests of the API get it.

It keeps to what the bindings say: names that are not known are ValueErrors, absent sources are left out,
`cpu` is the tail.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from torch_fl_base import _native
from torch_fl_base.routes import store as store_module

SOURCES = ("native", "boxed", "gems", "gems_cpp", "triton", "tileops", "cpu")
TORCH_FL = Path(_native.__file__).parents[1] / "torch_fl"


@cache
def routable() -> tuple[str, ...]:
    """The aten operators that core would route: with a kernel for the CPU, and `_foreach_*`."""

    def has(op: str, key: str) -> bool:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op, key))

    def routed(op: str) -> bool:
        loop = op.startswith("aten::_foreach_") and has(op, "CompositeExplicitAutograd")
        return op.startswith("aten::") and (loop or has(op, "CPU"))

    return tuple(filter(routed, torch._C._dispatch_get_all_op_names()))


class FakeRoutes:
    """Two backends: alpha has boxed kernels for everything but bmm, beta has none."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Any]] = {}
        self.order: dict[str, list[Any]] = {}
        self.present: dict[tuple[str, str], set[str]] = {}
        self.log: list[str] = []
        self.check = False
        self.fallback_mode = "unset"
        self.rows: list[dict[str, Any]] = []
        self.extra_operators: list[str] = []
        self.on_open_callbacks: list[Callable[[], None]] = []
        self._overlays = threading.local()

    def sources(self) -> list[str]:
        return list(SOURCES)

    def operators(self) -> list[str]:
        return [*routable(), *self.extra_operators]

    def backends(self) -> list[str]:
        self.log.append("backends")
        return ["alpha", "beta"]

    def on_open(self, callback: Callable[[], None]) -> None:
        self.on_open_callbacks.append(callback)

    def on_fallback(self, callback: Callable[[str, str], None]) -> None:
        self.on_fallback_callback = callback

    def capability(self, op: str, backend: str) -> list[str]:
        self._known(op)
        boxed = {"boxed"} if backend == "alpha" and op != "aten::bmm" else set()
        added = self.present.get((op, backend), set())
        return [source for source in SOURCES if source in boxed | added | {"cpu"}]

    def publish(self, backend: str, routes: dict[str, Any], default: list[Any]) -> int:
        self.log.append(f"publish {backend}")
        for op in routes:
            self._known(op)
        self.tables[backend], self.order[backend] = dict(routes), default
        return 1

    def update(self, backend: str, routes: dict[str, Any]) -> int:
        self.log.append(f"update {backend} {len(routes)}")
        for op in routes:
            self._known(op)
        for op, candidates in routes.items():
            if candidates is None:
                self.tables[backend].pop(op, None)
            else:
                self.tables[backend][op] = candidates
        return 1

    def push(self, routes: dict[str, Any]) -> None:
        self._stack().append(routes)

    def pop(self) -> None:
        self._stack().pop()

    def decide(self, op: str, backend: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        rows = []
        chosen = ""
        for candidate in self.candidates(op, backend):
            unmet = self._unmet(candidate.get("when", {}), args)
            state = "not reached" if chosen else f"declined by condition: {unmet}" if unmet else "chosen"
            chosen = chosen or ("" if unmet else candidate["source"])
            rows.append({"source": candidate["source"], "state": state})
        return {"source": chosen, "candidates": rows, "backend": backend, "device": 0}

    def register_python(self, source: str, op: str, backend: str | None, function: Any) -> None:
        self._known(op)
        for name in ("alpha", "beta") if backend is None else (backend,):
            self.present.setdefault((op, name), set()).add(source)

    def unregister_python(self, source: str, op: str, backend: str | None) -> None:
        for name in ("alpha", "beta") if backend is None else (backend,):
            self.present.get((op, name), set()).discard(source)

    def set_check(self, on: bool) -> None:
        self.log.append(f"check {on}")
        self.check = on
        if on:
            self.rows = []

    def check_report(self) -> list[dict[str, Any]]:
        return list(self.rows)

    def set_fallback(self, mode: str) -> None:
        self.fallback_mode = mode

    def declines(self) -> list[tuple[str, str, int]]:
        return [("aten::mm", "gems", 3)]

    # What follows is not part of the bindings.

    def candidates(self, op: str, backend: str) -> list[dict[str, Any]]:
        """The candidates that are left for an operator on this thread."""
        found = self.tables[backend].get(op, self.order[backend])
        for overlay in self._stack():
            found = overlay.get(backend, {}).get(op, found)
        left = [candidate for candidate in found if candidate["source"] in self.capability(op, backend)]
        return (
            left if left and left[-1]["source"] == "cpu" else [*left, {"source": "cpu", "on_error": "raise"}]
        )

    def serves(self, op: str, backend: str = "alpha") -> str:
        """The source that serves calls that meet no condition."""
        return next(str(c["source"]) for c in self.candidates(op, backend) if not c.get("when"))

    def _known(self, op: str) -> None:
        if op not in self.operators():
            raise ValueError(f"flagos: no operator '{op}' is routed")

    def _stack(self) -> list[dict[str, Any]]:
        if not hasattr(self._overlays, "stack"):
            self._overlays.stack = []
        stack: list[dict[str, Any]] = self._overlays.stack
        return stack

    @staticmethod
    def _unmet(when: dict[str, Any], args: tuple[Any, ...]) -> str:
        dtype = str(args[0].dtype).removeprefix("torch.") if args else ""
        return f"dtype is {dtype}" if "dtype" in when and dtype not in when["dtype"] else ""


class FakeOps:
    """torch_fl._C.ops: counters that a test moves."""

    def __init__(self) -> None:
        self.timing = False
        self.rows: list[tuple[str, str, int, int, int, int]] = []

    def register(self) -> None:
        pass

    def counters(self) -> list[tuple[str, str, int, int, int, int]]:
        return list(self.rows)

    def set_timing(self, on: bool) -> None:
        self.timing = on


def install(patch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Put the stand-ins in the place of the bindings, with routes as in a new process."""
    devices = SimpleNamespace(properties=lambda index: {"backend": "alpha"})
    native = SimpleNamespace(routes=FakeRoutes(), ops=FakeOps(), devices=devices)
    patch.setattr(_native, "load", lambda: native)
    patch.setattr(store_module, "_store", None)
    for name in ("FLAGOS_ROUTES", "FLAGOS_ROUTES_FILE", "FLAGOS_ROUTE_CHECK", "FLAGOS_FALLBACK"):
        patch.delenv(name, raising=False)
    return native


def import_part(patch: pytest.MonkeyPatch, name: str) -> ModuleType:
    """Import a part of torch_fl without what `import torch_fl` does: claiming the device."""
    if "torch_fl" not in sys.modules:
        package = ModuleType("torch_fl")
        package.__path__ = [str(TORCH_FL)]
        patch.setitem(sys.modules, "torch_fl", package)
    for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        patch.delitem(sys.modules, loaded)
    part = importlib.import_module(name)
    for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        patch.setitem(sys.modules, loaded, sys.modules[loaded])
    return part


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    return install(monkeypatch)


def test_stand_in_has_what_the_bindings_have(evaluate: Any) -> None:
    bindings = evaluate("import torch_fl; answer = dir(torch_fl._C.routes)")
    names = {name for name in vars(FakeRoutes) if not name.startswith("_")}
    assert names - {"candidates", "serves"} <= set(bindings)


def test_stand_in_leaves_absent_sources_out(native: SimpleNamespace) -> None:
    fake = native.routes
    for backend in fake.backends():
        fake.publish(backend, {}, [{"source": "native"}, {"source": "boxed"}, {"source": "cpu"}])
    assert (fake.serves("aten::mm", "alpha"), fake.serves("aten::mm", "beta")) == ("boxed", "cpu")
