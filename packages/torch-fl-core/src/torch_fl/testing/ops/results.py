"""The result file of a run: who measured what where, totals, one letter per entry, and every outcome that is
not a pass."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from torch_fl.testing.environment import provenance
from torch_fl.testing.ops.database import CHECKS, DTYPES
from torch_fl.testing.ops.expected import BAD
from torch_fl.testing.ops.runner import Entry

SCHEMA = 1
STATUSES = ("pass", "fail", "crash", "timeout", "surprise", "expected", "unsupported", "skip")
LETTERS = {
    "pass": ".",
    "fail": "F",
    "crash": "C",
    "timeout": "T",
    "surprise": "S",
    "expected": "x",
    "unsupported": "u",
    "skip": "s",
}
_NO_ENTRY = "-"


def totals(entries: list[Entry]) -> dict[str, int]:
    """Return how many entries have each status, all statuses named."""
    counts = Counter(entry.status for entry in entries)
    return {status: counts[status] for status in STATUSES}


def _grouped(entries: list[Entry], key: str, order: tuple[str, ...]) -> dict[str, dict[str, int]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(getattr(entry, key), []).append(entry)
    return {name: totals(groups[name]) for name in order if name in groups}


def _letters(entries: list[Entry]) -> dict[str, dict[str, str]]:
    table: dict[str, dict[str, dict[str, str]]] = {}
    for entry in entries:
        table.setdefault(entry.op, {}).setdefault(entry.dtype, {})[entry.check] = LETTERS[entry.status]
    return {
        op: {
            dtype: "".join(by_dtype[dtype].get(check, _NO_ENTRY) for check in CHECKS)
            for dtype in DTYPES
            if dtype in by_dtype
        }
        for op, by_dtype in sorted(table.items())
    }


def document(
    entries: list[Entry],
    *,
    device: str,
    mode: str,
    selection: str,
    exact: bool,
    reference: str = "cpu",
    seconds: float,
    arguments: list[str],
) -> dict[str, Any]:
    """Return the whole result as plain data.

    Args:
        entries: with their final status.
        device, mode, selection, exact, reference: what was run and how it was compared.
        seconds: wall time of the run.
        arguments: of the command line, for the record.
    """
    not_passed = [entry for entry in entries if entry.status not in ("pass", "skip")]
    return {
        "schema": SCHEMA,
        "kind": "ops",
        "device": device,
        "mode": mode,
        "selection": selection,
        "comparison": ("bit for bit" if exact else "within torch.testing's tolerance")
        + (f" with {reference}" if reference != "cpu" else ""),
        **provenance(device.split(":")[0], "torch_fl.testing.ops", arguments),
        "seconds": round(seconds, 1),
        "calls": sum(entry.calls for entry in entries),
        "operators": len({entry.op for entry in entries}),
        "totals": totals(entries),
        "by_dtype": _grouped(entries, "dtype", DTYPES),
        "by_check": _grouped(entries, "check", CHECKS),
        "not_passed": [
            {
                "entry": f"{entry.op}:{entry.dtype}:{entry.check}",
                "status": entry.status,
                "message": entry.message,
            }
            for entry in sorted(
                not_passed, key=lambda e: (e.op, DTYPES.index(e.dtype), CHECKS.index(e.check))
            )
        ],
        "checks": list(CHECKS),
        "letters": {letter: status for status, letter in LETTERS.items()} | {_NO_ENTRY: "no such entry"},
        "entries": _letters(entries),
    }


def write(result: dict[str, Any], path: Path) -> None:
    """Write a result so that a change of one operator changes one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {key: value for key, value in result.items() if key != "entries"}
    text = json.dumps(head, indent=1, ensure_ascii=False)
    rows = ",\n".join(
        f"  {json.dumps(op)}: {json.dumps(by_dtype)}" for op, by_dtype in result["entries"].items()
    )
    path.write_text(text[:-2] + ',\n "entries": {\n' + rows + "\n }\n}\n", encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """Read a result file. Raises ValueError if it is none, or of another schema."""
    result = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(result, dict) or result.get("kind") != "ops" or result.get("schema") != SCHEMA:
        raise ValueError(
            f"{path.name} is no result of `python -m torch_fl.testing.ops run` with schema {SCHEMA}"
        )
    return result


def green(result: dict[str, Any]) -> bool:
    """Return whether nothing failed that was not expected to, and nothing passed that was."""
    return not any(result["totals"][status] for status in BAD)


def attempted(counts: dict[str, int]) -> int:
    """Return how many entries had something to compare: all but the skipped."""
    return sum(counts.values()) - counts["skip"]
