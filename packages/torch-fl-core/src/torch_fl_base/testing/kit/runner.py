"""Running the kit on a library from a programme or the command line, and the report of it.

The tests run in a process of their own, test after test. If one takes that process down, it has failed and
the rest go on in a new process.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from torch_fl_base import discovery
from torch_fl_base._hal_header import header
from torch_fl_base.spec import BackendError
from torch_fl_base.testing.kit.catalogue import coverage
from torch_fl_base.testing.kit.checks import requirement
from torch_fl_base.testing.kit.child import Target, run_isolated
from torch_fl_base.testing.kit.describe import describe, machine
from torch_fl_base.testing.kit.quirks import default_quirks_file

OUTCOMES = ("passed", "failed", "crashed", "expected failure", "skipped")
TEST_LIMIT_S = 60.0
"""A test that takes longer is stopped, and with it the process it runs in."""


@dataclass(frozen=True)
class Result:
    """What became of one test."""

    test: str
    requirement: str
    """"" for the kit's checks of its own configuration."""
    outcome: str
    """One of OUTCOMES."""
    message: str
    """Why it failed or was skipped."""
    seconds: float


@dataclass(frozen=True)
class Report:
    """A run of the kit on one library."""

    library: str
    description: dict[str, Any]
    """A describe.Description as plain data."""
    machine: dict[str, Any]
    date: str
    command: str
    seconds: float
    results: tuple[Result, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether the library was tested and nothing failed."""
        return bool(self.results) and not any(
            result.outcome in ("failed", "crashed") for result in self.results
        )

    def counts(self) -> dict[str, int]:
        """Return how many tests had which outcome."""
        found = Counter(result.outcome for result in self.results)
        return {outcome: found[outcome] for outcome in OUTCOMES if found[outcome]}

    def to_json(self) -> str:
        """Return the whole report."""
        return json.dumps({"schema": 1, "ok": self.ok, "counts": self.counts(), **asdict(self)}, indent=1)

    def to_text(self) -> str:
        """Return what a reader wants to see: what was tested, requirements one by one, failures and skips
        with reasons."""
        told = self.description
        devices = ", ".join(sorted({device["name"] for device in told["devices"]})) or "no device"
        sdk = " ".join(part for part in (told["sdk_version"], told["driver_version"]) if part) or "none told"
        lines = [
            f"library   {self.library}",
            f"backend   {told['vendor']} {told['library_version']}, HAL ABI {told['abi']}, SDK {sdk}",
            f"devices   {len(told['devices'])} ({devices})",
            f"groups    required{''.join(', ' + group for group in told['groups'])}",
            f"machine   {self.machine['processor']}, {self.machine['cores']} cores, {self.machine['system']}",
            f"versions  torch-fl-core {self.machine['torch_fl_core']}, HAL ABI {self.machine['abi']}, "
            f"Python {self.machine['python']}",
            f"date      {self.date}",
            f"command   {self.command}",
            "",
        ]
        if told["unavailable"]:
            return "\n".join([*lines, f"not tested: the runtime is unavailable: {told['unavailable']}"])
        lines += self._by_requirement()
        reasons = Counter(result.message for result in self.results if result.outcome == "skipped")
        if reasons:
            lines += ["", "skipped"]
            lines += [f"  {count:4d}  {reason}" for reason, count in reasons.most_common()]
        for outcome in ("expected failure", "failed", "crashed"):
            chosen = [result for result in self.results if result.outcome == outcome]
            if chosen:
                lines += ["", outcome]
            for result in chosen:
                message = result.message.replace("\n", "\n      ")
                lines.append(f"  {result.requirement or 'kit'}  {result.test}\n      {message}")
        if not self.results:
            return "\n".join([*lines, "nothing tested: the filter matches no test and no requirement"])
        summary = ", ".join(f"{count} {outcome}" for outcome, count in self.counts().items())
        verdict = "conforms" if self.ok else "does not conform"
        return "\n".join([*lines, "", f"{summary} in {self.seconds:.1f} s: {verdict}"])

    def _by_requirement(self) -> list[str]:
        lines = []
        for identifier, entry in header().requirements.items():
            found = Counter(result.outcome for result in self.results if result.requirement == identifier)
            if not found:
                continue
            bad = found["failed"] + found["crashed"]
            done = found["passed"] + bad + found["expected failure"]
            word = "FAIL" if bad else "ok" if found["passed"] else "skip"
            name = entry.function or entry.sentence
            lines.append(f"  {word:4}  {identifier}  {found['passed']:3d} of {done:3d}  {name[:70]}")
        return lines


def run(
    library: str | os.PathLike[str],
    quirks: str | os.PathLike[str] | None = None,
    pattern: str | None = None,
    *,
    layers: str | os.PathLike[str] | None = None,
    command: str | None = None,
    show_progress: bool = False,
    test_limit_s: float = TEST_LIMIT_S,
) -> Report:
    """Run the kit on a library.

    Args:
        quirks: a quirks.py; None takes the one beside the library, if there is one.
        pattern: shell patterns or parts of test names, or requirement ids, parted by commas or blanks; None
        runs all. layers: libflagos_hal_layers.so, to test the library through core's loader and validating
        layer. command: what the report gives as the command.
    Raises: BackendError if the library cannot be loaded or pytest is missing.
    """
    if importlib.util.find_spec("pytest") is None:
        raise BackendError("flagos: the conformance kit needs pytest. Install it: pip install pytest")
    path = Path(library).resolve()
    file = Path(quirks).resolve() if quirks is not None else default_quirks_file(path)
    target = Target(
        str(path), str(file) if file is not None else None, os.fspath(layers) if layers is not None else None
    )
    target.open()  # says best, and here, why a library cannot be loaded
    started = time.monotonic()
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    description = run_isolated(target, describe.__module__, describe.__name__, {})
    results: tuple[Result, ...] = ()
    if not description["unavailable"]:
        results = _run_all(target, pattern, show_progress, test_limit_s)
    return Report(
        library=str(path),
        description=description,
        machine=machine(),
        date=date,
        command=command or f"torch_fl_base.testing.hal.run({str(library)!r})",
        seconds=round(time.monotonic() - started, 2),
        results=results,
    )


def _run_all(
    target: Target, pattern: str | None, show_progress: bool, test_limit_s: float
) -> tuple[Result, ...]:
    results: dict[str, Result] = {}
    order: list[str] = []
    with tempfile.TemporaryDirectory(prefix="flagos-conformance-") as folder:
        while True:
            progress, done, log = (Path(folder) / name for name in ("progress", "done", "log"))
            progress.write_text("")
            done.write_text(json.dumps(sorted(results)))
            command = _pytest_command(target, pattern, progress, done)
            returncode, stopped = _run_pytest(target, command, progress, log, show_progress, test_limit_s)
            started = None
            for line in progress.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                if "selected" in entry:
                    order += [name for name in entry["selected"] if name not in order]
                elif "started" in entry:
                    started = entry["started"]
                else:
                    results[entry["finished"]] = _result(entry)
                    started = None
            if started is not None:
                if stopped:
                    what = f"the test did not end within {test_limit_s:.0f} s"
                elif returncode < 0:
                    what = f"the process died of {signal.Signals(-returncode).name}"
                else:
                    what = f"the process ended with {returncode} in the middle of the test"
                message = f"{what}\n{_tail(log)}"
                results[started] = Result(started, requirement(started), "crashed", message, 0.0)
            elif returncode not in (0, 1, 5):
                raise BackendError(f"flagos: pytest ended with {returncode}\n{_tail(log)}")
            if started is None or all(name in results for name in order):
                return tuple(results[name] for name in order if name in results)


def _result(entry: dict[str, Any]) -> Result:
    name = entry["finished"]
    return Result(name, requirement(name), entry["outcome"], entry["message"], entry["seconds"])


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])


def _pytest_command(target: Target, pattern: str | None, progress: Path, done: Path) -> list[str]:
    suite = Path(__file__).with_name("suite.py")
    return [
        *(sys.executable, "-m", "pytest", str(suite), "-c", os.devnull, "--rootdir", str(suite.parent)),
        *("-p", "no:cacheprovider", "-p", "torch_fl_base.testing.kit.plugin", "-q", "-W", "error"),
        *("--flagos-target", json.dumps(asdict(target)), "--flagos-progress", str(progress)),
        *("--flagos-done", str(done)),
        *(("--flagos-filter", pattern) if pattern else ()),
    ]


def _run_pytest(
    target: Target, command: list[str], progress: Path, log: Path, show_progress: bool, test_limit_s: float
) -> tuple[int, bool]:
    """Return the exit status, and whether the process was stopped because a test took too long."""
    environment = {
        **os.environ,
        **target.quirks().environment,
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # other plugins cost time and may change what is collected
    }
    environment.pop("PYTEST_ADDOPTS", None)
    stopped = False
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        while True:
            try:
                returncode = process.wait(0.5)
                break
            except subprocess.TimeoutExpired:
                if show_progress:
                    _show(progress)
            # Every start and end of a test is a write.
            if time.time() - progress.stat().st_mtime > test_limit_s:
                stopped = True
                process.send_signal(signal.SIGABRT)  # faulthandler then says where it was
                try:
                    returncode = process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    returncode = process.wait()
                break
    if show_progress:
        sys.stderr.write("\r\x1b[K")
    return returncode, stopped


def _show(progress: Path) -> None:
    lines = [
        json.loads(line) for line in progress.read_text(encoding="utf-8").splitlines() if line.endswith("}")
    ]
    total = sum(len(line["selected"]) for line in lines if "selected" in line)
    finished = sum("finished" in line for line in lines)
    current = next((line["started"] for line in reversed(lines) if "started" in line), "")
    sys.stderr.write(f"\r\x1b[K{finished:4d} of {total}  {current[:80]}")
    sys.stderr.flush()


# --- command line ---------------------------------------------------------------------------------------


def find_library(name: str) -> Path:
    """Return the HAL library for a path or the name of an installed backend. Raises: BackendError."""
    if os.sep in name or name.endswith(".so"):
        return Path(name)
    records = discovery.discover(environ={})
    for record in records:
        spec = record.spec
        if name != record.name and (spec is None or name not in spec.aliases):
            continue
        if spec is None or spec.unavailable_reason:
            raise BackendError(f"flagos: backend '{name}' is {record.state}: {record.reason}")
        return spec.library
    known = ", ".join(record.name for record in records)
    raise BackendError(
        f"flagos: no installed backend is called '{name}'. Installed: {known}. Or give a path."
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Test a HAL library from the command line.

    Returns: 0 if it conforms, 1 if not, 2 if it could not be tested.
    """
    parser = argparse.ArgumentParser(
        prog="torch-fl-conformance",
        description="Test a HAL library against the requirements of hal.h. Torch is not needed.",
    )
    parser.add_argument("backend", nargs="?", help="name of an installed backend, or path of a library")
    parser.add_argument(
        "--filter", metavar="PATTERN", help="only tests or requirements that match, for example HAL-STR-07"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="also write the report as JSON; - writes it to standard output"
    )
    parser.add_argument("--quirks", metavar="FILE", help="a quirks.py; default: the one beside the library")
    parser.add_argument(
        "--layers", metavar="FILE", help="libflagos_hal_layers.so: test through core's validating layer"
    )
    parser.add_argument("--list", action="store_true", help="print the requirements and their tests")
    options = parser.parse_args(argv)
    if options.list:
        for identifier, names in coverage().items():
            print(identifier, header().requirements[identifier].function, *names, sep="\n    ")
        return 0
    if options.backend is None:
        parser.error("name a backend or a library, or ask for --list")
    words = list(argv) if argv is not None else sys.argv[1:]
    try:
        report = run(
            find_library(options.backend),
            options.quirks,
            options.filter,
            layers=options.layers,
            command=" ".join(["torch-fl-conformance", *words]),
            show_progress=sys.stderr.isatty(),
        )
    except (BackendError, AssertionError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.json == "-":
        print(report.to_json())
    else:
        print(report.to_text())
        if options.json:
            Path(options.json).write_text(f"{report.to_json()}\n", encoding="utf-8")
    if not report.results:
        return 2
    return 0 if report.ok else 1
