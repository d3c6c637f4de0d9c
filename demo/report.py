"""The closing table of the demo, and what it says about the sources that served the device."""

from __future__ import annotations

import collections
import importlib.util
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

Counts = dict[tuple[str, str], tuple[int, int]]
"""(source, operator) → (calls, bytes copied between host and device for it)."""


def source_counts() -> Counts:
    """Return what the router has counted so far; empty where torch-fl-core is not installed."""
    if importlib.util.find_spec("torch_fl") is None:
        return {}
    import torch_fl._C as native

    counts: Counts = {}
    for op, source, _device, calls, copied, _time in native.ops.counters():
        before, bytes_before = counts.get((source, op), (0, 0))
        counts[source, op] = (before + calls, bytes_before + copied)
    return counts


@dataclass
class Report:
    """Lines of a table; each may be a claim that holds or does not."""

    title: str
    lines: list[tuple[str, str, bool | None]] = field(default_factory=list)

    def add(self, subject: str, finding: str, holds: bool | None = None) -> None:
        """Add a line; `holds` is None for what only informs."""
        self.lines.append((subject, finding, holds))

    @property
    def holds(self) -> bool:
        """Whether every claim holds."""
        return all(holds is not False for _, _, holds in self.lines)

    def add_sources(self, before: Counts, after: Counts, *, expected: bool) -> None:
        """Add one line per source with its calls and busiest operators; without any it is a broken claim if
        `expected`.
        """
        by_source: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        copied: collections.Counter[str] = collections.Counter()
        for (source, op), (calls, host_bytes) in after.items():
            calls_before, bytes_before = before.get((source, op), (0, 0))
            if calls > calls_before:
                by_source[source][op] += calls - calls_before
                copied[source] += host_bytes - bytes_before
        for source, ops in sorted(by_source.items(), key=lambda item: -item[1].total()):
            busiest = ", ".join(f"{op.removeprefix('aten::')} {count:,}" for op, count in ops.most_common(4))
            moved = f"{copied[source] / 2**20:,.1f} MiB copied between host and device"
            self.add(
                f"source {source}", f"{ops.total():,} calls of {len(ops)} operators ({busiest}, …); {moved}"
            )
        if expected:
            total = sum(ops.total() for ops in by_source.values())
            self.add("the device did the work", f"{total:,} calls were routed", total > 0)

    def print(self, console: Console) -> None:
        """Print the table and one closing sentence."""
        table = Table(title=self.title, show_lines=False)
        table.add_column("")
        table.add_column("what was seen", overflow="fold")
        table.add_column("holds", justify="center")
        for subject, finding, holds in self.lines:
            table.add_row(
                subject,
                finding,
                {None: "", True: "[green]yes[/green]", False: "[bold red]NO[/bold red]"}[holds],
            )
        console.print(table, highlight=False)
        broken = [subject for subject, _, holds in self.lines if holds is False]
        console.print("All of it holds." if not broken else f"This does not hold: {'; '.join(broken)}.")
