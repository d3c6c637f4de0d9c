"""The routes of this process: all layers together, and what of them the runtime is told."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch_fl_base import _env, _log, _native
from torch_fl_base.routes.errors import RouteError, did_you_mean
from torch_fl_base.routes.layers import Written, default_of, merged, read_written, resolve
from torch_fl_base.routes.model import Layer, LayerName, Route, how_to_get
from torch_fl_base.routes.operators import Catalogue, of_torch, short_name

Overlay = dict[str, dict[str, Route]]
"""Routes by backend and operator."""


class Previous(NamedTuple):
    """What `Store.set` replaced, to be given to `Store.restore`: None where no route had been set."""

    routes: dict[str, dict[str, Route | None]]


class Store:
    """All routes of a process. Its lock guards the layers, and that the runtime gets changes in their order.

    Args:
        native: returns the bindings of routes, torch_fl._C.routes.
        catalogue: returns the operators.
        environ: read instead of os.environ.
    """

    def __init__(
        self,
        native: Callable[[], Any] = lambda: _native.load().routes,
        catalogue: Callable[[], Catalogue] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._native = native
        self._make_catalogue = catalogue or of_torch
        self._environ = environ
        self._lock = threading.RLock()
        self._catalogue: Catalogue | None = None
        self._vendor_files: dict[str, Path] = {}
        self._user_file: Path | None = None
        self._written: Written | None = None
        self._process: dict[str, dict[str, Route]] = {}
        self._open = False
        self._held_back: frozenset[str] = frozenset()
        """Operators with a route that the runtime does not know yet: their library is not imported."""
        self._fallback: str | None = None
        self._threads = threading.local()

    # --- what is written ---------------------------------------------------------------------------------

    def configure(self, vendor_files: Mapping[str, Path]) -> None:
        """Take over the tables of the backends; they are read by `check`, `publish` or the first question."""
        with self._lock:
            self._vendor_files = dict(vendor_files)
            self._written = None

    def check(self) -> None:
        """Read everything that is written, unless that was done.

        Raises: RouteError with every fault; BackendError for a bad variable.
        """
        with self._lock:
            self.written()

    def written(self) -> Written:
        """Return the layers under the program's calls; raises as `check`."""
        with self._lock:
            if self._written is None:
                self._written = self._read(self._user_file)
            return self._written

    def _read(self, loaded: Path | None) -> Written:
        assignments = _env.ROUTES.read(self._environ)
        user_file = loaded or self._named_file()
        return read_written(self.catalogue(), self._vendor_files, assignments, user_file)

    def _named_file(self) -> Path | None:
        named = _env.ROUTES_FILE.read(self._environ)
        return Path(named).expanduser() if named else None

    def user_file(self) -> Path | None:
        """Return the user's table: what `load` was given, else FLAGOS_ROUTES_FILE; None if there is none."""
        with self._lock:
            return self._user_file or self._named_file()

    def load(self, path: Path | None) -> None:
        """Read every table again, the user's from `path`, and publish; None: from FLAGOS_ROUTES_FILE.

        Raises: RouteError with every fault; everything stays as it was then.
        """
        with self._lock:
            self._written = self._read(path)
            self._user_file = path
            if self._open:
                self._publish()

    def reload(self) -> None:
        """Read every table again and publish; raises as `load`."""
        with self._lock:
            self.load(self._user_file)

    def files(self) -> list[Path]:
        """Return every table that was read."""
        return self.written().files()

    def catalogue(self) -> Catalogue:
        """Return the operators."""
        with self._lock:
            if self._catalogue is None:
                self._catalogue = self._make_catalogue()
            return self._catalogue

    # --- the runtime -------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Give the runtime the routes of all backends. Called once the devices are open.

        Raises: as `check`.
        """
        with self._lock:
            self.check()
            self._publish()
            self._open = True
            self.native().set_fallback(self.fallback)
            if _env.ROUTE_CHECK.read(self._environ):
                self.native().set_check(True)

    def _publish(self) -> None:
        native = self.native()
        known = frozenset(native.operators())
        held_back: set[str] = set()
        for backend in native.backends():
            layers = self._layers(backend)
            routes = merged(layers)
            held_back |= routes.keys() - known
            told = {op: route.native() for op, route in routes.items() if op in known}
            native.publish(backend, told, default_of(layers).native())
            self._warn_of_absent(backend, routes, known)
        self._held_back = frozenset(held_back)

    def native(self) -> Any:
        """Return the bindings of routes."""
        return self._native()

    def backends(self) -> list[str]:
        """Return the backends in the order of their devices; opens them.

        Raises: RouteError or BackendError if a table or a variable is bad.
        """
        self.check()
        names = list(self.native().backends())
        with self._lock:
            if not self._open:  # core's bindings call `publish` at activation; a stand-in may not
                self.publish()
            if self._held_back:
                self._try_held_back()
        return names

    def _try_held_back(self) -> None:
        """Give the runtime the routes of operators whose library has been imported since."""
        native = self.native()
        now_known = self._held_back & frozenset(native.operators())
        if now_known:
            for backend in native.backends():
                native.update(backend, {op: self.lookup(backend, op).native() for op in now_known})
            self._held_back -= now_known

    def chosen_backends(self, backend: str | None) -> list[str]:
        """Return the one backend named, or all; opens them.

        Raises: RouteError for a name that is none of them.
        """
        names = self.backends()
        if backend is None:
            return names
        if backend not in names:
            raise RouteError(
                f"no backend {backend!r} has devices in this process.{did_you_mean(backend, names)} "
                f"There: {', '.join(names) or 'none'}."
            )
        return [backend]

    def capability(self, op: str, backend: str) -> list[str]:
        """Return the sources that implement an operator on a backend here and now."""
        try:
            return list(self.native().capability(op, backend))
        except ValueError:  # an operator that the runtime has not met
            return ["cpu"]

    @property
    def fallback(self) -> str:
        """What happens when an operator runs on the host: "error", "warn", "allow"."""
        return self._fallback or _env.FALLBACK.read(self._environ)

    def set_fallback(self, mode: str) -> str:
        """Choose what happens when an operator runs on the host; returns the mode before."""
        with self._lock:
            before = self.fallback
            self.native().set_fallback(mode)
            self._fallback = mode
            return before

    # --- calls of programs -------------------------------------------------------------------------------

    def set(self, overlay: Mapping[str, Mapping[str, Route | None]]) -> Previous:
        """Set routes of the process layer by backend, for all threads; None takes one away.

        Raises: RouteError if the runtime refuses one; nothing has changed then.
        """
        with self._lock:
            before: dict[str, dict[str, Route | None]] = {}
            try:
                for backend, routes in overlay.items():
                    before[backend] = self._exchange(backend, routes)
                    self._update(backend, routes)
            except ValueError as error:
                for backend, routes in before.items():
                    self._exchange(backend, routes)
                    with contextlib.suppress(ValueError):  # the same operator is refused again
                        self._update(backend, routes)
                raise RouteError(str(error).removeprefix("flagos: ")) from None
            return Previous(before)

    def _exchange(self, backend: str, routes: Mapping[str, Route | None]) -> dict[str, Route | None]:
        """Put routes into the process layer and return those that were there."""
        mine = self._process.setdefault(backend, {})
        before = {op: mine.get(op) for op in routes}
        mine.update({op: route for op, route in routes.items() if route is not None})
        for op in [op for op, route in routes.items() if route is None]:
            mine.pop(op, None)
        return before

    def restore(self, previous: Previous) -> Previous:
        """Undo a `set`."""
        return self.set(previous.routes)

    def reset(self, ops: Iterable[str] | None = None) -> None:
        """Take routes of the process layer away: of these operators, or all."""
        with self._lock:
            chosen = None if ops is None else frozenset(ops)
            for backend, mine in self._process.items():
                gone = [op for op in mine if chosen is None or op in chosen]
                for op in gone:
                    del mine[op]
                if gone:
                    self._update(backend, gone)

    def _update(self, backend: str, ops: Iterable[str]) -> None:
        """Tell the runtime the routes of these operators as the layers have them now."""
        layers = self._layers(backend)
        told: dict[str, Any] = {}
        for op in ops:
            route = next((layer.routes[op] for layer in layers if op in layer.routes), None)
            told[op] = None if route is None else route.native()
        self.native().update(backend, told)

    def refresh(self, op: str) -> None:
        """Tell the runtime an operator's route again, since a source has got or lost an implementation."""
        with self._lock:
            for backend in self.native().backends() if self._open else ():
                self._update(backend, [op])

    def push(self, overlay: Overlay) -> None:
        """Lay routes over all others for this thread, until `pop`.

        Raises: RouteError if the runtime refuses one.
        """
        told = {name: {op: route.native() for op, route in mine.items()} for name, mine in overlay.items()}
        try:
            self.native().push(told)
        except ValueError as error:
            raise RouteError(str(error).removeprefix("flagos: ")) from None
        self._stack().append(overlay)

    def pop(self) -> None:
        """Take the last routes of this thread away."""
        self.native().pop()
        self._stack().pop()

    def _stack(self) -> list[Overlay]:
        stack: list[Overlay] | None = getattr(self._threads, "stack", None)
        if stack is None:
            stack = self._threads.stack = []
        return stack

    # --- questions ---------------------------------------------------------------------------------------

    def _layers(self, backend: str) -> list[Layer]:
        """Return the layers of all threads, highest first."""
        return [Layer(self._process.get(backend, {})), *self.written().of(backend)]

    def lookup(self, backend: str, op: str) -> Route:
        """Return the route of an operator in this thread."""
        with self._lock:
            overlays = [Layer(overlay.get(backend, {})) for overlay in reversed(self._stack())]
            return resolve(op, [*overlays, *self._layers(backend)])

    def routes(self, backend: str) -> tuple[dict[str, Route], Route]:
        """Return the routes of operators that any layer names, in this thread, and that of all others."""
        with self._lock:
            overlays = [Layer(overlay.get(backend, {})) for overlay in reversed(self._stack())]
            layers = [*overlays, *self._layers(backend)]
            return merged(layers), default_of(layers)

    def present(self, route: Route, op: str, backend: str) -> bool:
        """Return whether any source that a route names can serve an operator."""
        return not set(route.sources).isdisjoint(self.capability(op, backend))

    def _warn_of_absent(self, backend: str, routes: Mapping[str, Route], known: frozenset[str]) -> None:
        """Log wishes of the user that have no effect; a vendor's table may name what a machine lacks."""
        wishes: dict[str, list[tuple[str, Route]]] = {}
        for op, route in routes.items():
            if route.origin.layer in (LayerName.ENVIRONMENT, LayerName.USER_FILE) and op in known:
                wishes.setdefault(str(route.origin), []).append((op, route))
        for origin, served in wishes.items():
            if any(self.present(route, op, backend) for op, route in served):
                continue
            op, route = served[0]
            _log.logger("routes").warning(
                "%s on %s has no effect: %s",
                origin,
                backend,
                absent_text(route, op, self.capability(op, backend)),
            )


def absent_text(route: Route, op: str, present: Sequence[str]) -> str:
    """Return why none of a route's sources can serve an operator, and what to do."""
    absent = [source for source in dict.fromkeys(route.sources) if source not in present]
    ways = "; ".join(f"{source}: {how_to_get(source)}" for source in absent)
    there = ", ".join(present) or "none"
    return f"{short_name(op)} has no source {' or '.join(absent)} here. Present: {there}. {ways}."


_store: Store | None = None
_store_lock = threading.Lock()


def store() -> Store:
    """Return the routes of this process."""
    global _store
    with _store_lock:
        if _store is None:
            _store = Store()
        return _store
