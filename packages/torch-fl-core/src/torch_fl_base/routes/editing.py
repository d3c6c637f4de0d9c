"""Writing entries into a user's route table, leaving the rest of the file as it is."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch_fl_base.routes.errors import Fault, KeyPath, RouteError, key_text
from torch_fl_base.routes.files import read_table
from torch_fl_base.routes.model import SCHEMA, Candidate, LayerName, Table
from torch_fl_base.routes.operators import Catalogue, UnknownOperatorError, short_name
from torch_fl_base.routes.toml_lines import Lines

_HEAD = f'schema = {SCHEMA}\nextends = "base"\n'


def write_entries(
    path: Path,
    entries: Mapping[str, Sequence[Candidate]],
    catalogue: Catalogue,
    reason: str,
    until: str = "",
) -> Table:
    """Write entries into a table, made if there is none, and return it as it is now.

    Args:
        path: of the table; it must be valid before.
        entries: candidates by operator or pattern; an entry that is there is replaced.
        reason: why, for all of them.
    Raises: RouteError if the table is not valid before or would not be afterwards; the file stays as it was.
    """
    text = _HEAD
    if path.exists():
        read_table(path, catalogue, LayerName.USER_FILE)
        with path.open(encoding="utf-8", newline="") as file:  # its line ends are kept
            text = file.read()
    for name, candidates in entries.items():
        text = _with_entry(
            text, path, _short(name), entry_text(_short(name), candidates, reason, until), catalogue
        )
    table = read_table(path, catalogue, LayerName.USER_FILE, text=text)
    _replace(path, text)
    return table


def entry_text(name: str, candidates: Sequence[Candidate], reason: str, until: str = "") -> str:
    """Return an entry as it stands in a file."""
    plain = len(candidates) == 1 and not candidates[0].when and candidates[0].on_error == "raise"
    lines = [f"[ops.{_quoted(name)}]"]
    if plain:
        lines.append(f"source = {_quoted(candidates[0].source)}")
    else:
        lines.append(f"candidates = [{', '.join(map(_candidate_text, candidates))}]")
    lines.append(f"reason = {_quoted(reason)}")
    if until:
        lines.append(f"until = {_quoted(until)}")
    return "\n".join(lines) + "\n"


def _candidate_text(candidate: Candidate) -> str:
    if not candidate.when and candidate.on_error == "raise":
        return _quoted(candidate.source)
    table: dict[str, Any] = {"source": candidate.source}
    if candidate.when:
        table["when"] = dict(candidate.when)
    if candidate.on_error != "raise":
        table["on_error"] = candidate.on_error
    return _value_text(table)


def _value_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{key_text((key,))} = {_value_text(inner)}" for key, inner in value.items())
            + "}"
        )
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value_text, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    """Return a text as a TOML string on one line; TOML's escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _short(name: str) -> str:
    return short_name(name.strip()).removesuffix(".default")


def _with_entry(text: str, path: Path, name: str, entry: str, catalogue: Catalogue) -> str:
    """Return a document with an entry put in the place of the one for the same operator, or at its end."""
    lines = Lines(text)
    rows = [f"{row}\n" for row in text.removesuffix("\n").split("\n")]
    there = next((key for key in lines.keys if len(key) == 2 and _same(key, name, catalogue)), None)
    if there is None:
        return "".join([*rows, "\n", entry])
    spans = [
        (header.line - 1, _end(rows, lines, index))
        for index, header in enumerate(lines.headers)
        if header.path[:2] == there
    ]
    if not spans or lines.keys[there] - 1 not in {start for start, _ in spans}:
        told = f"the entry {name!r} is not a table [ops.{_quoted(name)}] of its own; change it by hand"
        raise RouteError([Fault(told, str(path), lines.keys[there])])
    for start, end in reversed(spans[1:]):
        del rows[start:end]
    start, end = spans[0]
    rows[start:end] = [entry]
    return "".join(rows)


def _same(key: KeyPath, name: str, catalogue: Catalogue) -> bool:
    """Return whether a key names the same operator as `name`; a pattern is only itself."""
    if key[0] != "ops" or not isinstance(key[1], str):
        return False
    if "*" in name or "*" in key[1]:
        return _short(key[1]) == name
    try:
        return catalogue.expand(key[1]) == catalogue.expand(name)
    except UnknownOperatorError:
        return False


def _end(rows: Sequence[str], lines: Lines, index: int) -> int:
    """Return the row behind a table's last key; comments before the next header belong to that one."""
    following = lines.headers[index + 1].line - 1 if index + 1 < len(lines.headers) else len(rows)
    start = lines.headers[index].line
    while following > start and re.fullmatch(r"\s*(#.*)?\s*", rows[following - 1]):
        following -= 1
    return following


def _replace(path: Path, text: str) -> None:
    """Write a file in one step, so that a program that watches it never sees half of it."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with made.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
        if path.exists():
            shutil.copymode(path, made)
        os.replace(made, path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
