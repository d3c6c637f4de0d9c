"""The demo: what it claims is checked, and a claim that does not hold ends it with an error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from demo.report import Report

Run = Callable[..., subprocess.CompletedProcess[str]]
SMALL = ("--steps", "40", "--width", "32", "--batch", "8")


@pytest.mark.slow
def test_the_demo_holds_on_the_reference_backend(run: Run) -> None:
    out = run(sys.executable, "-m", "demo.train", *SMALL, timeout=280).stdout
    for part in (
        "device flagos:0",
        "loss goes down",
        "losses equal, first 20 steps",
        "checkpoint, on flagos:0",
        "checkpoint, on cpu",
        "training goes on from it",
        "time per step (median)",
        "source cpu",
        "All of it holds.",
    ):
        assert part in out
    assert "NO" not in out.split()


def test_a_claim_that_does_not_hold_ends_the_demo_with_an_error(run: Run) -> None:
    # Without learning, the loss does not go down.
    done = run(
        sys.executable,
        "-m",
        "demo.train",
        *SMALL[2:],
        "--device",
        "cpu",
        "--steps",
        "3",
        "--rate",
        "0",
        fails=True,
    )
    assert done.returncode == 1
    assert "This does not hold: loss goes down" in done.stdout


def test_a_report_holds_only_if_every_claim_does() -> None:
    report = Report("")
    report.add("fact", "for information")
    report.add("claim", "seen", True)
    assert report.holds
    report.add("other claim", "not seen", False)
    assert not report.holds


def test_a_device_that_routed_no_call_did_not_do_the_work() -> None:
    report = Report("")
    before = {("cpu", "aten::add"): (5, 0)}
    report.add_sources(before, before, expected=True)
    assert not report.holds


def test_calls_are_counted_from_the_start_of_the_training() -> None:
    report = Report("")
    report.add_sources(
        {("cpu", "aten::add"): (5, 0)},
        {("cpu", "aten::add"): (7, 2**20), ("cpu", "aten::mm"): (3, 0)},
        expected=True,
    )
    subject, finding, _ = report.lines[0]
    assert subject == "source cpu"
    assert finding == "5 calls of 2 operators (mm 3, add 2, …); 1.0 MiB copied between host and device"
    assert report.holds
