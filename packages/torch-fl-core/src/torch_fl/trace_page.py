"""The page of a trace: a bar chart and the table, in one file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import Template

from torch_fl._trace import TraceRow, numbers, time_text, total

COLOURS = {
    "native": "#2f6f4f",
    "boxed": "#3b6ea5",
    "gems": "#7a5195",
    "gems_cpp": "#9c6fb5",
    "triton": "#bc5090",
    "tileops": "#dd8a3c",
    "cpu": "#c0392b",
}
"""The host stands out: what runs there is what one looks for."""
OTHER = "#777777"
MOST_BARS = 40
_ROW = 22
_NAMES = 300
_BARS = 560

_PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>torch-fl trace</title>
<style>
body { font: 14px/1.4 sans-serif; margin: 2em auto; max-width: 1000px; color: #222; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: 2px 10px; text-align: right; border-bottom: 1px solid #ddd; }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
tfoot td { font-weight: bold; }
svg text { font: 12px sans-serif; fill: #222; }
.key { display: inline-block; width: 0.8em; height: 0.8em; margin: 0 0.3em 0 1em; }
</style>
</head>
<body>
<h1>Operators on flagos</h1>
<p>$summary</p>
<p>$legend</p>
$chart
<table>
<thead><tr><th>operator</th><th>source</th><th>calls</th><th>host bytes</th><th>time</th></tr></thead>
<tbody>
$rows
</tbody>
<tfoot><tr><td>all</td><td></td>$sums</tr></tfoot>
</table>
</body>
</html>
""")


def page(rows: Sequence[TraceRow]) -> str:
    """Return the HTML page of a trace's rows."""
    summed = total(rows)
    on_host = total(row for row in rows if row.source == "cpu")
    share = f", {on_host.calls:,} of them on the host" if on_host.calls else ""
    sources = list(dict.fromkeys(row.source for row in rows))
    return _PAGE.substitute(
        summary=f"{summed.calls:,} calls of {len({row.op for row in rows}):,} operators{share}; "
        f"{time_text(summed.nanoseconds)} of host time.",
        legend="".join(
            f'<span class="key" style="background:{COLOURS.get(source, OTHER)}"></span>{escape(source)}'
            for source in sources
        ),
        chart=chart(rows),
        rows="\n".join(
            f"<tr><td>{escape(row.op)}</td><td>{escape(row.source)}</td>{_cells(row)}</tr>" for row in rows
        ),
        sums=_cells(summed),
    )


def _cells(row: TraceRow) -> str:
    return "".join(f"<td>{escape(text)}</td>" for text in numbers(row))


def chart(rows: Sequence[TraceRow]) -> str:
    """Return an SVG element: the time of each operator, or its calls where no time was taken."""
    shown = list(rows[:MOST_BARS])
    by_time = any(row.nanoseconds for row in shown)
    values = [row.nanoseconds if by_time else row.calls for row in shown]
    longest = max(values, default=0) or 1
    bars = []
    for index, (row, value) in enumerate(zip(shown, values, strict=True)):
        y = index * _ROW
        width = _BARS * value / longest
        label = time_text(value) if by_time else f"{value:,}"
        bars.append(
            f'<text x="{_NAMES - 8}" y="{y + 15}" text-anchor="end">{escape(row.op)}</text>'
            f'<rect x="{_NAMES}" y="{y + 3}" width="{width:.2f}" height="{_ROW - 6}" '
            f'fill="{COLOURS.get(row.source, OTHER)}">'
            f"<title>{escape(f'{row.op}, {row.source}: {row.calls:,} calls')}</title></rect>"
            f'<text x="{_NAMES + width + 6:.2f}" y="{y + 15}">{escape(label)}</text>'
        )
    size = f'width="{_NAMES + _BARS + 100}" height="{max(_ROW, len(shown) * _ROW)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{"".join(bars)}</svg>'
