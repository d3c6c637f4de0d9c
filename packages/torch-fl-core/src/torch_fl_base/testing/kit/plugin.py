"""The pytest plugin of the command line: what is tested, which tests, and a line of progress for each, crash
or no crash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torch_fl_base.testing.kit.checks import marks, requirement
from torch_fl_base.testing.kit.quirks import Exemption


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that the runner passes."""
    parser.addoption("--flagos-target")
    parser.addoption("--flagos-progress")
    parser.addoption("--flagos-filter")
    parser.addoption("--flagos-done")


class Progress:
    """Writes one JSON line when a test starts and one when it has ended."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._outcome = ("passed", "")
        self._seconds = 0.0

    def _write(self, **line: object) -> None:
        self._file.write(f"{json.dumps(line)}\n")
        self._file.flush()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test starts."""
        self._outcome, self._seconds = ("passed", ""), 0.0
        self._write(started=nodeid.partition("::")[2])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test has ended; the worst of the three counts."""
        self._seconds += report.duration
        if report.failed:
            surprise = "XPASS(strict)" in str(report.longrepr)
            text = "expected to fail, but passes: take it off the list" if surprise else _reason(report)
            self._outcome = ("failed", text)
        elif report.skipped and self._outcome[0] == "passed":
            if hasattr(report, "wasxfail"):
                self._outcome = ("expected failure", report.wasxfail)
            else:
                text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
                self._outcome = ("skipped", text.removeprefix("Skipped: "))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A test has ended."""
        name = nodeid.partition("::")[2]
        outcome, message = self._outcome
        self._write(finished=name, outcome=outcome, message=message, seconds=round(self._seconds, 4))


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    return text.removeprefix("AssertionError: ")


def pytest_configure(config: pytest.Config) -> None:
    """Start writing progress."""
    path = config.getoption("--flagos-progress")
    if path:
        config.pluginmanager.register(Progress(Path(path)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that the filter names and that have not run before a crash."""
    pattern = config.getoption("--flagos-filter")
    done_file = config.getoption("--flagos-done")
    done = set(json.loads(Path(done_file).read_text())) if done_file else set()
    items[:] = [item for item in items if item.name not in done and (not pattern or _wanted(item, pattern))]
    first_lines = [item.name for item in items]
    path = config.getoption("--flagos-progress")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps({'selected': first_lines})}\n")


def _wanted(item: pytest.Item, pattern: str) -> bool:
    original = getattr(getattr(item, "function", None), "conformance_of", None)
    requirements = () if original is None else (requirement(original.__name__), *marks(original).also)
    for word in pattern.replace(",", " ").split():
        prefixed = any(identifier.startswith(word) for identifier in requirements)
        if prefixed or word in item.name or Exemption(word, "filter", "").covers(item.name, requirements):
            return True
    return False
