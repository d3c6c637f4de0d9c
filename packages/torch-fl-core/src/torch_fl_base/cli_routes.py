"""The command `torch-fl routes`: list, explain, lint, set, diff.

`list` and `explain` open the devices; the others read tables only.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torch_fl_base.routes.errors import RouteError, known_names
from torch_fl_base.routes.model import SOURCES, Candidate, Layer, LayerName, Route
from torch_fl_base.spec import BackendError

app = typer.Typer(help="Which source serves an operator, and the tables that say so.", no_args_is_help=True)

_JSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def _complete_operator(incomplete: str) -> list[str]:
    from torch_fl_base.routes.operators import aten_names

    return [name for name in aten_names() if name.startswith(incomplete)]


def _complete_source(incomplete: str) -> list[tuple[str, str]]:
    return [(name, text) for name, text in SOURCES.items() if name.startswith(incomplete)]


def _complete_assignment(incomplete: str) -> list[str]:
    op, equals, sources = incomplete.partition("=")
    if not equals:
        return [f"{name}=" for name in _complete_operator(op)]
    done, comma, last = sources.rpartition(",")
    return [f"{op}={done}{comma}{name}" for name, _ in _complete_source(last)]


def _complete_backend(incomplete: str) -> list[str]:
    from torch_fl_base import discovery

    return [record.name for record in discovery.discover({}) if record.name.startswith(incomplete)]


_BACKEND = Annotated[
    str | None,
    typer.Option("--backend", "-b", help="One backend with devices here.", autocompletion=_complete_backend),
]


@contextmanager
def _told() -> Iterator[None]:
    """Print an error of ours and end with status 1."""
    try:
        yield
    except (BackendError, ImportError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


def _routes() -> Any:
    """Return torch_fl.routes; claims the device."""
    importlib.import_module("torch_fl")
    return importlib.import_module("torch_fl.routes")


@app.command("list")
def list_command(
    backend: _BACKEND = None,
    source: Annotated[
        str | None,
        typer.Option("--source", "-s", help="Only what this source serves.", autocompletion=_complete_source),
    ] = None,
    op: Annotated[
        str | None,
        typer.Option(
            "--op",
            "-o",
            help="An operator with all its overloads, or a pattern.",
            autocompletion=_complete_operator,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", "-a", help="Also operators that no table names.")] = False,
    as_json: _JSON = False,
) -> None:
    """List operators with the source that serves them and who decided so.

    Without options: those that a table or FLAGOS_ROUTES names. --op, --source and --all show others too.
    """
    if source is not None and source not in SOURCES:
        raise typer.BadParameter(f"unknown source {source!r}.{known_names(source, SOURCES, 'Sources')}")
    with _told():
        every_row = _routes().table(backend)
    rows = [row for row in every_row if source in (None, row.source) and (op is None or _fits(op, row.op))]
    if not (every or source or op):
        rows = [row for row in rows if row.decided_by.entry != "default"]
    if as_json:
        print(json.dumps([row.to_dict() for row in rows], indent=2))
        return
    table = _table("operator", "backend", "source", "candidates", "decided by", "reason")
    for row in rows:
        cells = (
            row.op,
            row.backend,
            row.source,
            ", ".join(row.candidates),
            str(row.decided_by),
            row.decided_by.reason,
        )
        table.add_row(*map(escape, cells))
    console = Console()
    if rows:
        console.print(table)
    console.print(f"{len(rows)} of {len(every_row)} routes", highlight=False)


def _fits(pattern: str, full: str) -> bool:
    """Return whether an operator is meant by a pattern, or by its name with or without the overload."""
    from fnmatch import fnmatchcase

    from torch_fl_base.routes.operators import full_name

    wanted = full_name(pattern)
    return wanted in (full, full.partition(".")[0]) or ("*" in wanted and fnmatchcase(full, wanted))


@app.command("explain")
def explain_command(
    op: Annotated[str, typer.Argument(help="Such as mean.dim.", autocompletion=_complete_operator)],
    backend: _BACKEND = None,
    as_json: _JSON = False,
) -> None:
    """Tell what serves an operator on each backend, which line decided so, and what else could."""
    with _told():
        routes = _routes()
        names = _backends() if backend is None else [backend]
        answers = [routes.explain(op, backend=name) for name in names]
    if as_json:
        print(json.dumps([answer.to_dict() for answer in answers], indent=2))
    else:
        print("\n\n".join(map(str, answers)))


def _backends() -> list[str]:
    from torch_fl_base.routes.store import store

    return store().backends()


@app.command("lint")
def lint_command(
    files: Annotated[list[Path], typer.Argument(help="Route tables.")],
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import", "-i", help="A library whose operators the tables name, such as torchvision."
        ),
    ] = None,
) -> None:
    """Check route tables, with what they extend, against this torch; opens no device.

    Prints every fault as `path:line: message`. Exit status 1: there is one.
    """
    from torch_fl_base.routes.files import read_table

    with _told():
        for module in modules or ():
            importlib.import_module(module)
        catalogue = _catalogue()
    faults = 0
    for file in files:
        try:
            table = read_table(file, catalogue, LayerName.USER_FILE)
        except RouteError as error:
            faults += len(error.faults)
            for fault in error.faults:
                print(fault)
            continue
        for note in table.notes:
            print(f"{note.place}:{note.line}: note: {note.message}")
        print(f"{file}: no faults; operators named: {len(table.routes)}")
    raise typer.Exit(1 if faults else 0)


def _catalogue() -> Any:
    """Return the operators of this torch."""
    from torch_fl_base.routes.operators import of_torch

    try:
        return of_torch()
    except ModuleNotFoundError:
        raise BackendError(
            "flagos: torch is not installed; the names of operators are checked against it"
        ) from None


@app.command("set")
def set_command(
    assignments: Annotated[
        list[str],
        typer.Argument(help="<operator>=<source>[,<source>…]", autocompletion=_complete_assignment),
    ],
    file: Annotated[
        Path,
        typer.Option("--file", "-f", envvar="FLAGOS_ROUTES_FILE", help="The table; made if it is not there."),
    ],
    reason: Annotated[
        str, typer.Option("--reason", "-r", help="Why: what goes wrong otherwise, where it was seen.")
    ],
    until: Annotated[str, typer.Option("--until", "-u", help='When it can go, such as "issue 12".')] = "",
) -> None:
    """Write entries into a route table of your own; the rest of the file stays as it is.

    An entry for the same operator is replaced. Nothing is written if the table would have a fault.
    """
    from torch_fl_base.routes.editing import write_entries
    from torch_fl_base.routes.shorthand import parse

    if not reason.strip():
        raise typer.BadParameter("--reason is empty: every entry of a route table has a reason")
    with _told():
        wanted = parse("; ".join(assignments), "routes set")
        entries = {name: tuple(map(Candidate, sources)) for name, sources in wanted}
        table = write_entries(file, entries, _catalogue(), reason, until)
    for note in table.notes:
        typer.echo(str(note), err=True)
    print(f"{file}: {', '.join(assignments)}. FLAGOS_ROUTES_FILE={file} uses it.")


@app.command("diff")
def diff_command(
    first: Annotated[
        str, typer.Argument(help="A table, a backend, or base.", autocompletion=_complete_backend)
    ],
    second: Annotated[str, typer.Argument(help="The other one.", autocompletion=_complete_backend)],
    as_json: _JSON = False,
) -> None:
    """Tell where two route tables differ, with all that they extend; opens no device.

    Exit status 1: they do.
    """
    from torch_fl_base.routes.layers import default_of, merged

    with _told():
        catalogue = _catalogue()
        layers = [_layers(name, catalogue) for name in (first, second)]
    routes = [merged(each) for each in layers]
    defaults = [default_of(each) for each in layers]
    rows: list[tuple[str, Route, Route]] = []
    if defaults[0].candidates != defaults[1].candidates:
        rows.append(("default", defaults[0], defaults[1]))
    for op in sorted(routes[0].keys() | routes[1].keys()):
        left, right = (mine.get(op, default) for mine, default in zip(routes, defaults, strict=True))
        if left.candidates != right.candidates:
            rows.append((op, left, right))
    if as_json:
        print(
            json.dumps([{"op": op, "first": _plain(a), "second": _plain(b)} for op, a, b in rows], indent=2)
        )
    else:
        table = _table("operator", first, second)
        for op, left, right in _folded(rows):
            table.add_row(*map(escape, (op, _words(left), _words(right))))
        Console().print(table if rows else "no difference")
    raise typer.Exit(1 if rows else 0)


def _layers(name: str, catalogue: Any) -> Sequence[Layer]:
    """Return the layers of a table or a backend, highest first.

    Raises: RouteError if there is no such table or backend, or it has faults.
    """
    from torch_fl_base import discovery
    from torch_fl_base.routes.files import BASE, read_table

    base = read_table(BASE, catalogue, LayerName.BASE_TABLE)
    if name == "base":
        return [base]
    if Path(name).is_file():
        return [read_table(Path(name), catalogue, LayerName.USER_FILE), base]
    specs = {record.name: record.spec for record in discovery.discover({}) if record.spec is not None}
    spec = specs.get(name)
    if spec is None:
        known = known_names(name, specs, "Backends")
        raise RouteError(f"{name!r} is neither a file nor an installed backend.{known}")
    return [read_table(spec.routes, catalogue, LayerName.VENDOR_TABLE), base] if spec.routes else [base]


def _table(*heads: str) -> Table:
    """Return a table whose cells are broken over lines rather than cut."""
    table = Table()
    for head in heads:
        table.add_column(escape(head), overflow="fold")
    return table


def _folded(rows: Sequence[tuple[str, Route, Route]]) -> Iterator[tuple[str, Route, Route]]:
    """Put the operators of one pattern into one row."""
    groups: dict[tuple[int, int], list[tuple[str, Route, Route]]] = {}
    for row in rows:
        groups.setdefault((id(row[1]), id(row[2])), []).append(row)
    for group in groups.values():
        op, left, right = group[0]
        patterns = [route.origin.entry for route in (left, right) if "*" in route.origin.entry]
        yield (
            (f"{' and '.join(dict.fromkeys(patterns))} ({len(group)} operators)" if patterns else op),
            left,
            right,
        )


def _words(route: Route) -> str:
    reason = f" ({route.origin.reason})" if route.origin.reason else ""
    return ", ".join(map(str, route.candidates)) + reason


def _plain(route: Route) -> dict[str, Any]:
    return {"candidates": [str(candidate) for candidate in route.candidates], "reason": route.origin.reason}
