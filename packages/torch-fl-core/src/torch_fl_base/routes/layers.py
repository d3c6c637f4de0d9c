"""The layers of routes under the calls of programs, and what they make of an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_fl_base.routes.entries import Merger, operators_of
from torch_fl_base.routes.errors import Complaints, Fault, RouteError
from torch_fl_base.routes.files import BASE, read_table
from torch_fl_base.routes.model import Candidate, Layer, LayerName, Origin, Route, Table
from torch_fl_base.routes.operators import Catalogue
from torch_fl_base.routes.shorthand import Assignment


@dataclass(frozen=True)
class Written:
    """What is written outside the program: environment, user file, tables of backends, base."""

    environment: Layer
    user: Table | None
    vendors: Mapping[str, Table]
    """By backend."""
    base: Table

    def of(self, backend: str) -> list[Layer]:
        """Return the layers of a backend, highest first."""
        layers = [self.environment, self.user, self.vendors.get(backend), self.base]
        return [layer for layer in layers if layer is not None]

    def files(self) -> list[Path]:
        """Return every file that was read."""
        tables = [self.user, *self.vendors.values(), self.base]
        return list(dict.fromkeys(file for table in tables if table is not None for file in table.files))


def read_written(
    catalogue: Catalogue,
    vendor_files: Mapping[str, Path],
    assignments: Sequence[Assignment] = (),
    user_file: Path | None = None,
    base: Path = BASE,
) -> Written:
    """Return all layers under the program's own calls.

    Args:
        vendor_files: the table of each backend that has one.
        assignments: FLAGOS_ROUTES.
    Raises: RouteError with every fault of every file and of FLAGOS_ROUTES.
    """
    faults: list[Fault] = []
    tables: dict[Path, Table] = {}

    def read(path: Path, layer: LayerName) -> Table:
        if path not in tables:
            try:
                tables[path] = read_table(path, catalogue, layer, base=base)
            except RouteError as error:
                faults.extend(error.faults)
                tables[path] = Table(path=path)
        return tables[path]

    bottom = read(base, LayerName.BASE_TABLE)
    vendors = {backend: read(path, LayerName.VENDOR_TABLE) for backend, path in vendor_files.items()}
    user = None if user_file is None else read(user_file, LayerName.USER_FILE)
    try:
        environment = environment_layer(assignments, catalogue)
    except RouteError as error:
        faults.extend(error.faults)
        environment = Layer()
    if faults:
        raise RouteError(faults)
    return Written(environment, user, vendors, bottom)


def environment_layer(assignments: Sequence[Assignment], catalogue: Catalogue) -> Layer:
    """Return the layer of FLAGOS_ROUTES.

    Raises: RouteError with every unknown operator.
    """
    complaints = Complaints("FLAGOS_ROUTES")
    merger = Merger()
    for name, sources in assignments:
        ops = operators_of(name, (), complaints, catalogue)
        origin = Origin(LayerName.ENVIRONMENT, "FLAGOS_ROUTES", None, name)
        route = Route(tuple(map(Candidate, sources)), origin)
        merger.add(name, ops, route, (), complaints)
    complaints.raise_any()
    return Layer(merger.routes)


def resolve(op: str, layers: Sequence[Layer]) -> Route:
    """Return the route of an operator: of the highest layer that names it, else the highest default.

    Raises: KeyError if no layer has a default; the base table has one.
    """
    for layer in layers:
        route = layer.routes.get(op)
        if route is not None:
            return route
    return default_of(layers)


def default_of(layers: Sequence[Layer]) -> Route:
    """Return the route of operators that no layer names.

    Raises: KeyError as `resolve`.
    """
    for layer in layers:
        if layer.default is not None:
            return layer.default
    raise KeyError("no layer has a default")


def merged(layers: Sequence[Layer]) -> dict[str, Route]:
    """Return the routes of all operators that a layer names."""
    routes: dict[str, Route] = {}
    for layer in reversed(layers):
        routes.update(layer.routes)
    return routes
