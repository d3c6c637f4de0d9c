"""Running a test in a process of its own, and the programme that such a process runs."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch_fl_base._hal import Hal, load
from torch_fl_base._hal_header import header
from torch_fl_base.testing.kit import checks
from torch_fl_base.testing.kit.bench import Bench
from torch_fl_base.testing.kit.checks import Skipped, marks, skip
from torch_fl_base.testing.kit.quirks import Quirks, load_quirks

LIMIT_S = 40.0
"""An isolated test that takes longer is stopped and has failed."""


@dataclass(frozen=True)
class Target:
    """What is tested: plain enough to be sent to another process."""

    library: str
    quirks_file: str | None = None
    layers: str | None = None
    """libflagos_hal_layers.so to open the library through, with validation; None: as it is."""

    @staticmethod
    def from_json(text: str) -> Target:
        """Return what asdict and json.dumps made a text of."""
        return Target(**json.loads(text))

    def quirks(self) -> Quirks:
        """Return the quirks; defaults if there is no file.

        Through layers without fault injection: they call the library, so that the nth call is not the test's.
        """
        quirks = load_quirks(Path(self.quirks_file)) if self.quirks_file else Quirks()
        return replace(quirks, inject=None) if self.layers is not None else quirks

    @functools.cache  # noqa: B019 - a handful of targets
    def functions(self) -> frozenset[str]:
        """Return the functions that the library has itself."""
        hal = self.open()
        return frozenset(
            function.qualified for function in header().functions() if hal.has(function.qualified)
        )

    def open(self) -> Hal:
        """Load the library, without init."""
        quirks = self.quirks()
        os.environ.update(quirks.environment)
        name = quirks.name or "tested"
        if self.layers is not None:
            from torch_fl_base.testing.kit.layers import open_with_layers

            return open_with_layers(self.layers, name, self.library)
        return load(name, self.library)


def run_isolated(target: Target, module: str, name: str, case: dict[str, Any]) -> Any:
    """Run a test in a new process and raise here what it raised there, or what became of the process.

    Returns: what the function returned, for functions that are no tests.
    """
    function = getattr(importlib.import_module(module), name)
    environment = dict(os.environ)
    quirks = target.quirks()
    if "qualified" in case and case["qualified"] not in target.functions():
        skip(f"the library has no function {case['qualified']}")
    if marks(function).needs and getattr(quirks, marks(function).needs) is None:
        skip(f"quirks.{marks(function).needs} is not given")
    environment.update(quirks.environment)
    maker = marks(function).environment
    if maker is not None:
        environment.update(maker(quirks, **case))
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    order = {"target": asdict(target), "module": module, "name": name, "case": case}
    with tempfile.TemporaryDirectory(prefix="flagos-conformance-") as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, "-X", "faulthandler", "-m", __name__, json.dumps(order), str(answer)]
        returncode, output, in_time = _run(command, environment)
        result = json.loads(answer.read_text()) if answer.is_file() else {}
    if not in_time:
        raise AssertionError(f"the test did not end within {LIMIT_S:.0f} s\n{_tail(output)}")
    outcome = result.get("outcome")
    if returncode < 0:
        what = signal.Signals(-returncode).name
        stage = "after the test, at exit" if outcome else "in the test"
        raise AssertionError(f"the process died of {what} {stage}\n{_tail(output)}")
    if outcome == "skipped":
        skip(result["message"])
    if outcome != "passed" or returncode != 0:
        message = result.get("message", f"the process ended with {returncode} before the test did")
        raise AssertionError(f"{message}\n{_tail(output)}".rstrip())
    return result["value"]


def _run(command: list[str], environment: dict[str, str]) -> tuple[int, bytes, bool]:
    """Return the exit status, what was printed, and whether it ended in time."""
    # A file, not a pipe: a grandchild that outlives the child would keep a pipe open, and reading would not
    # end.
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        in_time = True
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            in_time = False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # its own session: what it has forked as well
        process.wait()
        printed.seek(0)
        return process.returncode, printed.read(), in_time


def _tail(output: bytes) -> str:
    lines = output.decode("utf-8", errors="replace").splitlines()
    return "\n".join(f"    | {line}" for line in lines[-25:])


def execute(order: dict[str, Any]) -> dict[str, Any]:
    """Run the ordered test here and return its outcome."""
    function = getattr(importlib.import_module(order["module"]), order["name"])
    target = Target(**order["target"])
    try:
        hal = target.open()
        bench = Bench(hal, target.quirks())
        if marks(function).initialised:
            hal.system.init()
        try:
            value = function(bench, **order["case"])
        finally:
            bench.close()
        if marks(function).initialised and not bench.leaves_initialised:
            hal.system.shutdown()
    except Skipped as reason:
        return {"outcome": "skipped", "message": str(reason)}
    except Exception as error:  # noqa: BLE001 - whatever it was is the test's result; the parent shows it
        frames = traceback.extract_tb(error.__traceback__)
        places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
        return {"outcome": "failed", "message": f"{type(error).__name__}: {error} [{places}]"}
    return {"outcome": "passed", "message": "", "value": value}


def main() -> None:
    """Run as `python -m torch_fl_base.testing.kit.child <order> <answer file>`."""
    checks.in_child = True
    order = json.loads(sys.argv[1])
    faulthandler.dump_traceback_later(LIMIT_S - 2, exit=False)
    result = execute(order)
    Path(sys.argv[2]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
