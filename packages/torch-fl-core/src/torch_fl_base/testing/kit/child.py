"""Running a test in a process of its own, and the programme that such a process runs."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_fl_base._hal import Hal, load
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

    def quirks(self) -> Quirks:
        """Return the quirks; defaults if there is no file."""
        return load_quirks(Path(self.quirks_file)) if self.quirks_file else Quirks()

    def open(self) -> Hal:
        """Load the library, without init."""
        quirks = self.quirks()
        os.environ.update(quirks.environment)
        name = quirks.name or "tested"
        if self.layers is not None:
            from torch_fl_base.testing.kit.layers import open_with_layers

            return open_with_layers(self.layers, name, self.library)
        return load(name, self.library)


def run_isolated(target: Target, module: str, name: str, case: dict[str, Any]) -> None:
    """Run a test in a new process and raise here what it raised there, or what became of the process."""
    function = getattr(importlib.import_module(module), name)
    environment = dict(os.environ)
    quirks = target.quirks()
    environment.update(quirks.environment)
    maker = marks(function).environment
    if maker is not None:
        environment.update(maker(quirks, **case))
    order = {"target": target.__dict__, "module": module, "name": name, "case": case, "path": sys.path}
    with tempfile.TemporaryDirectory(prefix="flagos-conformance-") as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, "-X", "faulthandler", "-m", __name__, json.dumps(order), str(answer)]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its own session: the test's forks as well
            output, _ = process.communicate()
            raise AssertionError(f"the test did not end within {LIMIT_S:.0f} s\n{_tail(output)}") from None
        result = json.loads(answer.read_text()) if answer.is_file() else {}
    outcome = result.get("outcome")
    if process.returncode < 0:
        what = signal.Signals(-process.returncode).name
        stage = "after the test, at exit" if outcome else "in the test"
        raise AssertionError(f"the process died of {what} {stage}\n{_tail(output)}")
    if outcome == "skipped":
        skip(result["message"])
    if outcome != "passed" or process.returncode != 0:
        message = result.get("message", f"the process ended with {process.returncode} before the test did")
        raise AssertionError(f"{message}\n{_tail(output)}".rstrip())


def _tail(output: bytes) -> str:
    lines = output.decode("utf-8", errors="replace").splitlines()
    return "\n".join(f"    | {line}" for line in lines[-25:])


def execute(order: dict[str, Any]) -> dict[str, str]:
    """Run the ordered test here and return its outcome."""
    function = getattr(importlib.import_module(order["module"]), order["name"])
    target = Target(**order["target"])
    try:
        hal = target.open()
        bench = Bench(hal, target.quirks())
        if marks(function).initialised:
            hal.system.init()
        try:
            function(bench, **order["case"])
        finally:
            bench.close()
        if marks(function).initialised:
            hal.system.shutdown()
    except Skipped as reason:
        return {"outcome": "skipped", "message": str(reason)}
    except Exception as error:  # whatever it was is the test's result; the parent shows it
        frames = traceback.extract_tb(error.__traceback__)
        places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
        return {"outcome": "failed", "message": f"{type(error).__name__}: {error} [{places}]"}
    return {"outcome": "passed", "message": ""}


def main() -> None:
    """Run as `python -m torch_fl_base.testing.kit.child <order> <answer file>`."""
    order = json.loads(sys.argv[1])
    sys.path[:] = order["path"]
    faulthandler.dump_traceback_later(LIMIT_S - 2, exit=False)
    result = execute(order)
    Path(sys.argv[2]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
