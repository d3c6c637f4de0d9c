"""`torch_fl.trace`: which operators ran, by which source, how often and how long."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from torch_fl_base import _native

_lock = threading.Lock()
_running = 0
"""Traces that are open, in all threads; timing is on while there is one."""
_Key = tuple[str, str, int]
_Numbers = tuple[int, int, int]


class TraceRow(NamedTuple):
    """What one source has done for one operator."""

    op: str
    source: str
    calls: int
    host_bytes: int
    """Bytes copied between host and device for it."""
    nanoseconds: int
    """Host time in the operator; work that is only queued goes on after it."""


class Trace:
    """The operators that have run inside `with torch_fl.trace() as trace`, on all threads and devices.

    `rows` may be read inside too: it has what has run so far.
    """

    def __init__(self) -> None:
        self._before: dict[_Key, _Numbers] = {}
        self._after: dict[_Key, _Numbers] | None = {}

    def __enter__(self) -> Trace:
        global _running
        ops = _native.load().ops
        with _lock:
            _running += 1
            ops.set_timing(True)
            self._before, self._after = _numbers(ops.counters()), None
        return self

    def __exit__(self, *error: object) -> None:
        global _running
        ops = _native.load().ops
        with _lock:
            self._after = _numbers(ops.counters())
            _running -= 1
            if _running == 0:
                ops.set_timing(False)

    @property
    def rows(self) -> list[TraceRow]:
        """One row per operator and source; the one that took longest comes first."""
        after = _numbers(_native.load().ops.counters()) if self._after is None else self._after
        sums: dict[tuple[str, str], list[int]] = {}
        for key, numbers in after.items():
            before = self._before.get(key, (0, 0, 0))
            if numbers[0] < before[0]:  # the counters were reset meanwhile
                before = (0, 0, 0)
            row = sums.setdefault(key[:2], [0, 0, 0])
            for index, number in enumerate(numbers):
                row[index] += number - before[index]
        rows = [TraceRow(op, source, *numbers) for (op, source), numbers in sums.items() if numbers[0]]
        return sorted(rows, key=lambda row: (-row.nanoseconds, -row.calls, row.op, row.source))

    def text(self, limit: int | None = None) -> str:
        """Return a table, the longest time first.

        Args:
            limit: number of rows; the sums in the last line are of all.
        """
        rows = self.rows
        if not rows:
            return "no operator of the flagos device has run"
        shown = rows if limit is None else rows[:limit]
        lines = [_HEAD, *([row.op, row.source, *numbers(row)] for row in shown)]
        if len(shown) < len(rows):
            lines.append([f"… and {len(rows) - len(shown)} more", "", "", "", ""])
        lines.append(["all", "", *numbers(total(rows))])
        widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
        lines.insert(1, ["─" * width for width in widths])
        lines.insert(-1, ["─" * width for width in widths])
        return "\n".join("  ".join(_aligned(line, widths)).rstrip() for line in lines)

    def __str__(self) -> str:
        return self.text()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: the rows and their sum, times in nanoseconds."""
        rows = self.rows
        summed = total(rows)._asdict()
        return {
            "rows": [row._asdict() for row in rows],
            "total": {key: summed[key] for key in ("calls", "host_bytes", "nanoseconds")},
        }

    def to_json(self) -> str:
        """Return `to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def to_html(self, path: str | Path) -> None:
        """Write a page with a bar chart and the table; it needs nothing from elsewhere."""
        from torch_fl.trace_page import page

        Path(path).write_text(page(self.rows), encoding="utf-8")

    def to_png(self, path: str | Path) -> None:
        """Write the bar chart as a picture.

        Raises: ImportError if matplotlib is not installed.
        """
        from torch_fl.trace_picture import draw

        draw(self.rows, path)


def trace() -> Trace:
    """Return a context manager that counts, by operator and source, calls, host time and bytes copied.

        with torch_fl.trace() as trace:
            step()
        print(trace.text())

    Timing is on for all threads inside, and makes each call somewhat slower.
    """
    return Trace()


_HEAD = ["operator", "source", "calls", "host bytes", "time"]


def numbers(row: TraceRow) -> list[str]:
    """Return calls, bytes and time of a row as people read them."""
    return [f"{row.calls:,}", size_text(row.host_bytes), time_text(row.nanoseconds)]


def total(rows: Iterable[TraceRow]) -> TraceRow:
    """Return the sum of rows."""
    rows = list(rows)
    return TraceRow(
        "all",
        "",
        sum(row.calls for row in rows),
        sum(row.host_bytes for row in rows),
        sum(row.nanoseconds for row in rows),
    )


def time_text(nanoseconds: int) -> str:
    """Return a time with three digits: "1.23 ms"."""
    amount = float(nanoseconds)
    for unit in ("ns", "µs", "ms"):
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} s" if amount < 999.5 else f"{amount:,.0f} s"


def size_text(count: int) -> str:
    """Return a number of bytes with three digits: "1.5 MiB"."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1024
    return f"{amount:,.3g} GiB" if amount < 1000 else f"{amount:,.0f} GiB"


def _numbers(rows: Iterable[tuple[str, str, int, int, int, int]]) -> dict[_Key, _Numbers]:
    return {(row[0], row[1], row[2]): (row[3], row[4], row[5]) for row in rows}


def _aligned(line: list[str], widths: list[int]) -> list[str]:
    """Pad names on the right, numbers on the left."""
    return [
        text.ljust(width) if column < 2 else text.rjust(width)
        for column, (text, width) in enumerate(zip(line, widths, strict=True))
    ]
