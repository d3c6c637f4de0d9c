"""torch_fl.trace over a stand-in for the counters: the numbers add up in every form."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.python.test_routes_fake import FakeOps, import_part, install

BEFORE = [("aten::mm", "boxed", 0, 10, 0, 500)]
AFTER = [
    ("aten::mm", "boxed", 0, 12, 0, 2_000_500),
    ("aten::mm", "boxed", 1, 3, 0, 1_000_000),
    ("aten::mm", "cpu", 0, 1, 3 << 20, 9_500_000),
    ("aten::add.Tensor", "boxed", 0, 1000, 0, 0),
    ("aten::<&>", "gems", 0, 1, 0, 1),
]
NOTHING = [("aten::mul.Tensor", "cpu", 0, 0, 0, 0)]


@pytest.fixture
def ops(monkeypatch: pytest.MonkeyPatch) -> FakeOps:
    native = install(monkeypatch)
    fake: FakeOps = native.ops
    fake.rows = list(BEFORE)
    return fake


@pytest.fixture
def module(ops: FakeOps, monkeypatch: pytest.MonkeyPatch) -> Any:
    for part in ("torch_fl.trace_page", "torch_fl.trace_picture"):
        monkeypatch.delitem(sys.modules, part, raising=False)
    return import_part(monkeypatch, "torch_fl._trace")


@pytest.fixture
def trace(module: Any, ops: FakeOps) -> Any:
    """A trace in which AFTER has been reached."""
    with module.trace() as trace:
        ops.rows = [*AFTER, *NOTHING]
    return trace


def test_rows_are_what_has_happened_inside_summed_over_devices(trace: Any) -> None:
    assert [tuple(row) for row in trace.rows] == [
        ("aten::mm", "cpu", 1, 3 << 20, 9_500_000),
        ("aten::mm", "boxed", 5, 0, 3_000_000),
        ("aten::<&>", "gems", 1, 0, 1),
        ("aten::add.Tensor", "boxed", 1000, 0, 0),
    ]


def test_rows_do_not_change_after_the_end(trace: Any, ops: FakeOps) -> None:
    rows = trace.rows
    ops.rows = []
    assert trace.rows == rows


def test_rows_may_be_read_inside(module: Any, ops: FakeOps) -> None:
    with module.trace() as trace:
        assert trace.rows == []
        ops.rows = list(AFTER)
        assert trace.rows[0].calls == 1


def test_counters_that_are_reset_inside_count_from_zero(module: Any, ops: FakeOps) -> None:
    with module.trace() as trace:
        ops.rows = [("aten::mm", "boxed", 0, 2, 0, 7)]
    assert [tuple(row) for row in trace.rows] == [("aten::mm", "boxed", 2, 0, 7)]


def test_timing_is_on_until_the_last_trace_ends(module: Any, ops: FakeOps) -> None:
    states = []
    with module.trace():
        with module.trace():
            states.append(ops.timing)
        states.append(ops.timing)
    states.append(ops.timing)
    with pytest.raises(ZeroDivisionError), module.trace():
        raise ZeroDivisionError
    states.append(ops.timing)
    assert states == [True, True, False, False]


def test_text_is_a_table_with_sums(trace: Any) -> None:
    lines = trace.text().splitlines()
    assert lines[0].split() == ["operator", "source", "calls", "host", "bytes", "time"]
    assert lines[2].split() == ["aten::mm", "cpu", "1", "3", "MiB", "9.5", "ms"]
    assert lines[-1].split() == ["all", "1,007", "3", "MiB", "12.5", "ms"]
    assert len({len(line) for line in (lines[0], lines[2], lines[-1])}) == 1
    assert str(trace) == trace.text()


def test_text_of_few_rows_has_the_sums_of_all(trace: Any) -> None:
    lines = trace.text(limit=1).splitlines()
    assert "… and 3 more" in lines
    assert lines[-1].split()[:2] == ["all", "1,007"]


def test_text_of_nothing(module: Any) -> None:
    with module.trace() as trace:
        pass
    assert trace.text() == "no operator of the flagos device has run"
    assert module.Trace().rows == []


def test_json_has_the_numbers(trace: Any) -> None:
    data = json.loads(trace.to_json())
    assert data == trace.to_dict()
    assert data["total"] == {"calls": 1007, "host_bytes": 3 << 20, "nanoseconds": 12_500_001}
    assert sum(row["calls"] for row in data["rows"]) == 1007


class Page(HTMLParser):
    """What a page is made of; tags must be closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag == "td":
            self.cells[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.cells[-1][-1] += data


def test_page_is_whole_and_needs_nothing_else(trace: Any, tmp_path: Path) -> None:
    trace.to_html(tmp_path / "trace.html")
    text = (tmp_path / "trace.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.open == []
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
    assert not re.findall(r"(?:src|href|url)\s*[=(]", text)
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]
    rows = [row for row in page.cells if row]
    assert rows[0] == ["aten::mm", "cpu", "1", "3 MiB", "9.5 ms"]
    assert rows[2][0] == "aten::<&>"
    assert rows[-1] == ["all", "", "1,007", "3 MiB", "12.5 ms"]
    bars = [float(attributes["width"] or "") for tag, attributes in page.tags if tag == "rect"]
    assert bars == sorted(bars, reverse=True)
    assert bars[1] / bars[0] == pytest.approx(3 / 9.5, abs=1e-3)
    assert "1 of them on the host" in text


def test_page_without_times_draws_calls(module: Any, ops: FakeOps, tmp_path: Path) -> None:
    with module.trace() as trace:
        ops.rows = [("aten::mm", "boxed", 0, 14, 0, 500), ("aten::add", "boxed", 0, 2, 0, 0)]
    trace.to_html(tmp_path / "t.html")
    widths = re.findall(r'<rect [^>]*width="([\d.]+)"', (tmp_path / "t.html").read_text(encoding="utf-8"))
    assert float(widths[0]) == 2 * float(widths[1])


def test_page_of_nothing_is_a_page(module: Any, tmp_path: Path) -> None:
    module.Trace().to_html(tmp_path / "t.html")
    page = Page()
    page.feed((tmp_path / "t.html").read_text(encoding="utf-8"))
    assert page.open == []


def test_picture_without_matplotlib_says_what_to_do(
    trace: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install matplotlib\. to_html draws the chart without it"):
        trace.to_png(tmp_path / "t.png")


def test_picture_is_drawn_by_matplotlib(trace: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[str, Any]] = []

    class Figure:
        """Notes what is asked of it; it is its own axes."""

        def __init__(self, figsize: object) -> None:
            pass

        def __getattr__(self, name: str) -> Any:
            def note(*args: Any, **kwargs: Any) -> Any:
                called.append((name, args))
                return self

            return note

    stand_in = ModuleType("matplotlib.figure")
    stand_in.Figure = Figure  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "matplotlib", ModuleType("matplotlib"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", stand_in)
    trace.to_png(tmp_path / "t.png")
    arguments = dict(called)
    assert arguments["barh"][1] == [0.0, 1e-6, 3.0, 9.5]
    assert arguments["savefig"] == (tmp_path / "t.png",)


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1234, "1.23 µs"),
        (12_345_678, "12.3 ms"),
        (999_600_000, "1 s"),
        (5 * 10**12, "5,000 s"),
    ],
)
def test_times_have_three_digits(nanoseconds: int, text: str, module: Any) -> None:
    assert module.time_text(nanoseconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1024, "1 KiB"), (1 << 30, "1 GiB"), (5000 << 30, "5,000 GiB")],
)
def test_sizes_have_three_digits(count: int, text: str, module: Any) -> None:
    assert module.size_text(count) == text
