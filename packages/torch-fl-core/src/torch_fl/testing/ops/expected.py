"""The committed list of entries that fail and why, and what it makes of outcomes: a failure that is not
listed fails the run, and so does a listed one that passes."""

from __future__ import annotations

import fnmatch
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch_fl.testing.ops.runner import Entry

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

DEFAULT_LIST = Path(__file__).with_name("expected_failures.toml")
KINDS = ("expected_failure", "unsupported")
MODES = ("zero-copy", "staged", "companion")
_KEYS = {"ops", "dtypes", "checks", "modes", "kind", "reason", "issue"}

# Statuses with which a run is not green.
BAD = ("fail", "crash", "timeout", "surprise")
_FAILED = ("fail", "crash", "timeout")


class BadList(ValueError):
    """The list of expected failures is not well formed; the message names file and entry."""


@dataclass(frozen=True)
class Expectation:
    """One item of the list: which entries, of which kind, why, and where it is followed up.

    Args:
        ops, dtypes, checks: shell-style patterns; an entry must match one of each.
        modes: memory modes in which it fails.
        kind: `unsupported` (the hardware or its library cannot) or `expected_failure` (not yet).
        reason, issue: in words; both required.
    """

    ops: tuple[str, ...]
    kind: str
    reason: str
    issue: str
    dtypes: tuple[str, ...] = ("*",)
    checks: tuple[str, ...] = ("*",)
    modes: tuple[str, ...] = MODES

    def matches(self, entry: Entry, mode: str) -> bool:
        """Return whether the entry is one of those this item speaks of."""
        return (
            mode in self.modes
            and _any(entry.op, self.ops)
            and _any(entry.dtype, self.dtypes)
            and _any(entry.check, self.checks)
        )


def _any(value: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(value, pattern) for pattern in patterns)


def load(path: Path = DEFAULT_LIST) -> list[Expectation]:
    """Read the list. Raises BadList with every complaint about the file at once."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    complaints: list[str] = []
    if document.get("schema") != 1:
        complaints.append(f"schema is {document.get('schema')!r}, expected 1")
    found = [_one(item, f"failure {n}", complaints) for n, item in enumerate(document.get("failure", []), 1)]
    if complaints:
        raise BadList(f"{path.name}: " + "; ".join(complaints))
    return [item for item in found if item is not None]


def _one(item: dict[str, Any], name: str, complaints: list[str]) -> Expectation | None:
    wrong = [f"{name}: unknown key {key!r}" for key in sorted(item.keys() - _KEYS)]
    wrong += [f"{name}: {key} is missing" for key in ("ops", "kind", "reason", "issue") if not item.get(key)]
    if item.get("kind") and item["kind"] not in KINDS:
        wrong.append(f"{name}: kind is {item['kind']!r}, expected one of {', '.join(KINDS)}")
    for mode in item.get("modes", []):
        if mode not in MODES:
            wrong.append(f"{name}: mode is {mode!r}, expected one of {', '.join(MODES)}")
    if wrong:
        complaints += wrong
        return None
    lists = {key: tuple(item[key]) for key in ("ops", "dtypes", "checks", "modes") if key in item}
    return Expectation(kind=item["kind"], reason=item["reason"], issue=item["issue"], **lists)


def apply(entries: list[Entry], expectations: list[Expectation], mode: str) -> list[Entry]:
    """Return the entries with their final status: listed failures become `expected` or `unsupported`, listed
    passes `surprise`."""
    final = []
    for entry in entries:
        match = next((item for item in expectations if item.matches(entry, mode)), None)
        if match is None or entry.status == "skip":
            final.append(entry)
        elif entry.status in _FAILED:
            status = "unsupported" if match.kind == "unsupported" else "expected"
            final.append(
                replace(entry, status=status, message=f"{match.reason} ({match.issue}). {entry.message}")
            )
        else:
            message = f"passes, but is listed as {match.kind}: {match.reason} ({match.issue})"
            final.append(replace(entry, status="surprise", message=message))
    return final


def unused(entries: list[Entry], expectations: list[Expectation], mode: str) -> list[Expectation]:
    """Return the items of this mode that match no entry at all: names that PyTorch no longer has, or typing
    errors."""
    return [
        item
        for item in expectations
        if mode in item.modes and not any(item.matches(entry, mode) for entry in entries)
    ]
