"""What a benchmark gives: figures with their targets, a table of them, a result file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from torch_fl.testing.environment import provenance

RESULTS = Path(__file__).with_name("results")
SCHEMA = 1


@dataclass(frozen=True)
class Figure:
    """One measured number.

    Args:
        name: what was measured.
        value: in `unit`; the median where there were several rounds.
        unit: "×", "ns", "ms", "MB".
        at_most, at_least: the target, if there is one.
        details: what the value was made from.
    """

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    details: dict[str, float | str] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.at_most is not None:
            return self.value <= self.at_most
        if self.at_least is not None:
            return self.value >= self.at_least
        return None

    @property
    def target(self) -> str:
        """The target in words."""
        if self.at_most is not None:
            return f"≤ {self.at_most:g} {self.unit}"
        return f"≥ {self.at_least:g} {self.unit}" if self.at_least is not None else ""


def show(title: str, figures: Sequence[Figure], console: Console) -> None:
    """Print figures as a table."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in ("", "measured", "target", "verdict", "from"):
        table.add_column(heading, justify="right" if heading == "measured" else "left")
    for figure in figures:
        verdict = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[figure.met]
        details = ", ".join(
            f"{key} {value:,.1f}" if isinstance(value, float) else f"{key} {value}"
            for key, value in figure.details.items()
        )
        table.add_row(figure.name, f"{figure.value:,.2f} {figure.unit}", figure.target, verdict, details)
    console.print(table)


def write(
    name: str, figures: Sequence[Figure], method: str, arguments: list[str], folder: Path = RESULTS
) -> Path:
    """Write a result file with hardware, versions, date and command; return its path.

    Args:
        name: of the benchmark; the file's name.
        figures: in order.
        method: how they were measured, in a sentence.
        arguments: of the command line.
    """
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "benchmark",
        "name": name,
        **provenance("flagos", "benchmarks.run", arguments),
        "method": method,
        "figures": [
            {**asdict(figure), "value": _rounded(figure.value), "target": figure.target, "met": figure.met}
            for figure in figures
        ],
    }
    for figure in document["figures"]:
        del figure["at_most"], figure["at_least"]
        figure["details"] = {
            key: _rounded(value) if isinstance(value, float) else value
            for key, value in figure["details"].items()
        }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
