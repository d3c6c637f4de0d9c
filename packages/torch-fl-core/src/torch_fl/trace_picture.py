"""The bar chart of a trace as a picture, where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch_fl._trace import TraceRow
from torch_fl.trace_page import COLOURS, MOST_BARS, OTHER


def draw(rows: Sequence[TraceRow], path: str | Path) -> None:
    """Write the bar chart of a trace's rows to a file; the format follows its name.

    Raises: ImportError if matplotlib is not installed, with what can be done.
    """
    try:
        # Not pyplot, which would choose a window system and keep every figure.
        from matplotlib.figure import Figure  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ImportError(
            "flagos: a picture needs matplotlib: pip install matplotlib. to_html draws the chart without it."
        ) from None
    shown = list(reversed(rows[:MOST_BARS]))
    by_time = any(row.nanoseconds for row in shown)
    figure: Any = Figure(figsize=(10, 1 + 0.28 * len(shown)))
    axes = figure.subplots()
    axes.barh(
        range(len(shown)),
        [row.nanoseconds / 1e6 if by_time else row.calls for row in shown],
        color=[COLOURS.get(row.source, OTHER) for row in shown],
    )
    axes.set_yticks(range(len(shown)), [f"{row.op} ({row.source})" for row in shown])
    axes.set_xlabel("host time, ms" if by_time else "calls")
    figure.tight_layout()
    figure.savefig(path)
