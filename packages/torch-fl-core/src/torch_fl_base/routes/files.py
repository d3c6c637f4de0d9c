"""Route tables: TOML files with `schema = 1`. docs/routing.md describes the grammar.

Every fault of a file is collected, with its line, and all are raised at once.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch_fl_base import _native
from torch_fl_base.routes.entries import Merger, operators_of, read_candidates
from torch_fl_base.routes.errors import Complaints, Fault, KeyPath, RouteError, kind_of, known_names
from torch_fl_base.routes.model import SCHEMA, LayerName, Origin, Route, Table
from torch_fl_base.routes.operators import Catalogue, UnknownOperatorError
from torch_fl_base.routes.toml_lines import Lines

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

BASE = Path(__file__).with_name("base.toml")
_KEYS = ("schema", "extends", "default", "evidence", "ops")
_ENTRY_KEYS = ("source", "candidates", "reason", "until")
_CANDIDATE_KEYS = ("when", "on_error")
"""Keys of a candidate that are easily put beside `source`."""


def read_table(
    path: Path, catalogue: Catalogue, layer: LayerName, *, text: str | None = None, base: Path = BASE
) -> Table:
    """Return the table of a file, with what it extends.

    The base table lies under every other one (layers), so that `extends = "base"` adds nothing here.

    Args:
        text: the file's content, if it is not to be read.
        base: the file that "base" means.
    Raises: RouteError with every fault of the file and of those that it extends.
    """
    return _Reader(catalogue, layer, base).read(path, (), text)


class _Reader:
    def __init__(self, catalogue: Catalogue, layer: LayerName, base: Path) -> None:
        self._catalogue = catalogue
        self._layer = layer
        self._base = base
        self._missing: list[Fault] = []

    def read(self, path: Path, around: tuple[Path, ...], text: str | None = None) -> Table:
        """Read one file.

        Args:
            around: the files that extend this one, outermost first.
        """
        place = str(path)
        document, lines = _parse(path, text)
        complaints = Complaints(place, lines.of)
        if not self._schema(document, complaints):
            complaints.raise_any()
        for key in document:
            if key not in _KEYS:
                complaints.add((key,), f"unknown key.{known_names(key, _KEYS)}")
        extended = self._extended(document, path, around, complaints)
        default = extended.default
        if "default" in document:
            candidates = read_candidates(
                document["default"], ("default",), complaints, self._catalogue.arguments_of([])
            )
            origin = Origin(self._layer, place, lines.of(("default",)), "default")
            default = Route(candidates, origin)
        evidence = dict(self._evidence(document, complaints))
        other_torch = self._other_torch(evidence)
        self._missing = []
        merger = self._entries(document, place, lines, complaints, other_torch)
        complaints.raise_any()
        notes = [
            Fault(f"{op}: its library is not imported: the name is not checked", place, route.origin.line)
            for op, route in merger.routes.items()
            if not self._catalogue.checked(op)
        ]
        return Table(
            routes={**extended.routes, **merger.routes},
            default=default,
            path=path,
            evidence=evidence or extended.evidence,
            files=(path, *extended.files),
            notes=(*extended.notes, *self._missing, *notes),
        )

    def _schema(self, document: Mapping[str, Any], complaints: Complaints) -> bool:
        """Return whether the rest of the document can be understood."""
        schema = document.get("schema")
        if schema is None:
            complaints.add((), f"has no schema; write schema = {SCHEMA} at its top")
        elif type(schema) is not int:
            complaints.add(("schema",), f"expected an integer, not {kind_of(schema)}")
        elif schema != SCHEMA:
            complaints.add(("schema",), f"{schema} is not known; this torch-fl-core reads schema {SCHEMA}")
            return False
        return True

    def _extended(
        self, document: Mapping[str, Any], path: Path, around: tuple[Path, ...], complaints: Complaints
    ) -> Table:
        extends = document.get("extends")
        nothing = Table()
        if extends is None:
            return nothing
        if not isinstance(extends, str) or not extends:
            complaints.add(("extends",), f'expected "base" or a path, not {kind_of(extends)}')
            return nothing
        chain = (*around, path)
        if extends == "base":
            if path.resolve() == self._base.resolve():
                complaints.add(("extends",), 'is cyclic: this is "base"')
            return nothing
        other = path.parent / extends
        resolved = [file.resolve() for file in chain]
        if other.resolve() in resolved:
            cycle = [*chain[resolved.index(other.resolve()) :], other]
            complaints.add(("extends",), f"is cyclic: {' -> '.join(file.name for file in cycle)}")
            return nothing
        if not other.is_file():
            complaints.add(("extends",), f'there is no file {other}; "base" means core\'s own table')
            return nothing
        try:
            return self.read(other, chain)
        except RouteError as error:
            complaints.faults += error.faults
            return nothing

    def _evidence(self, document: Mapping[str, Any], complaints: Complaints) -> Mapping[str, str]:
        evidence = document.get("evidence", {})
        if not isinstance(evidence, dict):
            complaints.add(("evidence",), f"expected a table, not {kind_of(evidence)}")
            return {}
        for key, value in evidence.items():
            if not isinstance(value, str):
                complaints.add(("evidence", key), f"expected a text in quotes, not {kind_of(value)}")
        return evidence

    def _entries(
        self,
        document: Mapping[str, Any],
        place: str,
        lines: Lines,
        complaints: Complaints,
        other_torch: str | None,
    ) -> Merger:
        merger = Merger()
        entries = document.get("ops", {})
        if not isinstance(entries, dict):
            complaints.add(("ops",), f"expected tables [ops.<name>], not {kind_of(entries)}")
            return merger
        for name, entry in entries.items():
            path = ("ops", name)
            if not isinstance(entry, dict):
                complaints.add(path, f"expected a table with {', '.join(_ENTRY_KEYS)}, not {kind_of(entry)}")
                continue
            if not _check_entry(entry, name, complaints):
                continue
            ops = self._operators(name, path, complaints, other_torch)
            key = "source" if "source" in entry else "candidates"
            value = entry.get(key)
            if key == "source" and not isinstance(value, str):
                complaints.add((*path, key), f"expected a source, not {kind_of(value)}")
                continue
            if key == "candidates" and not isinstance(value, list):
                if value is not None:
                    complaints.add((*path, key), f"expected a list, not {kind_of(value)}")
                continue
            arguments = self._catalogue.arguments_of(ops)
            candidates = read_candidates(value, (*path, key), complaints, arguments)
            reason, until = str(entry.get("reason", "")), str(entry.get("until", ""))
            origin = Origin(self._layer, place, lines.of(path), name, reason, until)
            merger.add(name, ops, Route(candidates, origin), path, complaints)
        return merger

    def _other_torch(self, evidence: Mapping[str, Any]) -> str | None:
        """Return the torch minor that a table was made for, if this torch has another."""
        made_for = str(evidence.get("torch", ""))
        minor = _native.minor(made_for) if made_for else self._catalogue.torch_minor
        return None if minor == self._catalogue.torch_minor else minor

    def _operators(
        self, name: str, path: KeyPath, complaints: Complaints, other_torch: str | None
    ) -> list[str]:
        """Return the operators that a name means.

        Operators come and go between minors of torch, and one table serves several: what is missing here is
        noted, not refused, where the table says that it was made for another minor.
        """
        if other_torch is None:
            return operators_of(name, path, complaints, self._catalogue)
        try:
            return self._catalogue.expand(name)
        except UnknownOperatorError as error:
            told = f"left out: {error} The table was made for torch {other_torch}."
            self._missing.append(Fault(told, complaints.place, complaints.line_of(path)))
            return []


def _parse(path: Path, text: str | None) -> tuple[dict[str, Any], Lines]:
    """Return a document and its lines.

    Raises: RouteError if the file cannot be read or is no TOML.
    """
    try:
        text = path.read_text(encoding="utf-8") if text is None else text
        return tomllib.loads(text), Lines(text)
    except OSError as error:
        raise RouteError([Fault(f"cannot be read: {error.strerror or error}", str(path))]) from None
    except UnicodeDecodeError as error:
        raise RouteError([Fault(f"is not UTF-8: {error.reason}", str(path))]) from None
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        found = re.search(r"\(at line (\d+), column \d+\)", message)
        line = int(found[1]) if found else len(str(text).splitlines()) or 1
        raise RouteError([Fault(f"is no valid TOML: {message}", str(path), line)]) from None


def _check_entry(entry: Mapping[str, Any], name: str, complaints: Complaints) -> bool:
    """Complain of what is wrong with an entry as a whole; False if it is not even one."""
    path = ("ops", name)
    known = (*_ENTRY_KEYS, *_CANDIDATE_KEYS)
    unquoted = [key for key, value in entry.items() if key not in known and isinstance(value, dict)]
    for key in unquoted:
        # [ops.mean.dim] is a table `dim` in a table `mean`.
        complaints.add((*path, key), f'a name with a dot stands in quotes: [ops."{name}.{key}"]')
    if len(unquoted) == len(entry) > 0:
        return False
    for key in entry:
        if key in _CANDIDATE_KEYS:
            complaints.add((*path, key), f"belongs to a candidate: candidates = [{{source = …, {key} = …}}]")
        elif key not in (*_ENTRY_KEYS, *unquoted):
            complaints.add((*path, key), f"unknown key.{known_names(key, _ENTRY_KEYS)}")
    if "source" in entry and "candidates" in entry:
        complaints.add((*path, "candidates"), "give either source or candidates")
    elif "source" not in entry and "candidates" not in entry:
        complaints.add(path, "has neither source nor candidates")
    reason = entry.get("reason")
    if reason is None:
        complaints.add(path, "has no reason: say what goes wrong otherwise, where and when it was seen")
    elif not isinstance(reason, str) or not reason.strip():
        complaints.add((*path, "reason"), "expected a text that says why")
    until = entry.get("until")
    if until is not None and (not isinstance(until, str) or not until.strip()):
        complaints.add((*path, "until"), 'expected a text such as "issue 12"')
    return True
