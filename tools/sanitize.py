"""Runs the HAL kit and the stress programs under a sanitizer; any report is a failure.

python -m tools.sanitize [address|thread|…] [--seconds N] [--only part…]

The sanitized libraries lie in `.cache/build/sanitize-<name>`; nothing installed is touched. AddressSanitizer
comes with UndefinedBehaviorSanitizer.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "packages" / "torch-fl-core"

#: What a sanitizer is told to compile with, which library carries it, and its options at run time.
SANITIZERS = {
    "address": ("address,undefined", "libasan.so", "ASAN_OPTIONS", "halt_on_error=1:abort_on_error=0"),
    "thread": (
        "thread",
        "libtsan.so",
        "TSAN_OPTIONS",
        "halt_on_error=1:second_deadlock_stack=1:die_after_fork=0",
    ),
}
#: A sanitizer's report in the output of a program.
MARKS = ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "WARNING: ThreadSanitizer", "runtime error:")


@dataclass(frozen=True)
class Outcome:
    """What became of one part."""

    part: str
    passed: bool
    seconds: float
    output: str


def report_in(output: str) -> bool:
    """Return whether the output has a report of a sanitizer."""
    return any(mark in output for mark in MARKS)


class Sanitized:
    """The programs and libraries of one sanitizer."""

    def __init__(self, name: str, seconds: int) -> None:
        self.name, self.seconds = name, seconds
        self.flags, self.library, self.variable, self.options = SANITIZERS[name]
        self.build = ROOT / ".cache" / "build" / f"sanitize-{name}"
        self.reference = self.build / "out" / "torch_fl_base" / "lib" / "libflagos_hal_reference.so"

    def compile(self, target: str) -> str:
        """Build one target; returns what the compiler said, raises CalledProcessError if it fails."""
        configure = [
            "cmake",
            "-S",
            str(CORE),
            "-B",
            str(self.build),
            "-G",
            "Ninja",
            f"-DFLAGOS_SANITIZE={self.flags}",
        ]
        configure += [f"-DFLAGOS_PYTHON={sys.executable}", f"-DFLAGOS_TESTS_DIR={ROOT / 'tests'}"]
        said = ""
        for command in (configure, ["cmake", "--build", str(self.build), "--target", target]):
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            said += done.stdout
            if done.returncode != 0:
                raise subprocess.CalledProcessError(done.returncode, command, said)
        return said

    def run(self, *command: str | Path, preload: bool = False, **options: str) -> tuple[int, str]:
        """Run a program with the sanitizer's options; `preload` for programs that are not built with it."""
        extra = "".join(f":{key}={value}" for key, value in options.items())
        if self.name == "thread":
            extra += f":suppressions={ROOT / 'tools' / 'tsan_suppressions.txt'}"
        environment = {
            **os.environ,
            self.variable: self.options + extra,
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        }
        if preload:
            compiler = os.environ.get("CXX", "c++").split()
            found = subprocess.run(
                [*compiler, f"-print-file-name={self.library}"], capture_output=True, text=True
            )
            environment["LD_PRELOAD"] = found.stdout.strip()
        done = subprocess.run(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        return done.returncode, done.stdout

    def stress_reference(self) -> tuple[int, str]:
        """Threads over streams, events, copies and callbacks of the reference HAL."""
        self.compile("reference_stress")
        return self.run(self.build / "reference_stress", "60", "6")

    def stress_layers(self) -> tuple[int, str]:
        """The same through core's loader and its validating and tracing layers."""
        self.compile("layers_stress")
        self.compile("flagos_hal_reference")
        return self.run(self.build / "layers_stress", self.reference, "30", "6")

    def stress_allocators(self) -> tuple[int, str]:
        """Threads over the caching allocators, streams and events of the runtime."""
        self.compile("allocator_stress")
        self.compile("flagos_hal_reference")
        return self.run(self.build / "allocator_stress", self.reference, str(self.seconds), "6", "1")

    def stress_streams(self) -> tuple[int, str]:
        """Threads that change devices and streams, use events and draw numbers, up to a shutdown."""
        self.compile("stream_stress")
        self.compile("flagos_hal_reference")
        return self.run(self.build / "stream_stress", self.reference, str(self.seconds), "6", "1")

    def kit(self) -> tuple[int, str]:
        """The HAL level of the conformance kit on the sanitized library. Python itself is not sanitized and
        leaks by design.
        """
        self.compile("flagos_hal_reference")
        quirks = CORE / "src" / "torch_fl_base" / "testing" / "kit" / "reference_quirks.py"
        command: list[str | Path] = [sys.executable, "-m", "torch_fl_base.testing.kit", self.reference]
        command += ["--quirks", quirks]
        extra = {"detect_leaks": "0"} if self.name == "address" else {}
        return self.run(*command, preload=True, **extra)

    def parts(self) -> dict[str, Callable[[], tuple[int, str]]]:
        """Return the parts by name."""
        return {
            "reference": self.stress_reference,
            "layers": self.stress_layers,
            "kit": self.kit,
            "allocators": self.stress_allocators,
            "streams": self.stress_streams,
        }


def main(arguments: list[str]) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="nox -s sanitize --", description="Run kit and stress under sanitizers."
    )
    parser.add_argument(
        "sanitizers", nargs="*", choices=[*SANITIZERS, []], help="address, thread (default: both)"
    )
    parser.add_argument(
        "--seconds", type=int, default=20, help="how long the runtime's stress runs (%(default)s)"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=["reference", "layers", "kit", "allocators", "streams"],
        help="these parts",
    )
    options = parser.parse_args(arguments)
    if shutil.which("cmake") is None:
        parser.error("cmake is not on PATH")
    outcomes: list[Outcome] = []
    for name in options.sanitizers or SANITIZERS:
        for part, run in Sanitized(name, options.seconds).parts().items():
            if options.only and part not in options.only:
                continue
            started = time.monotonic()
            try:
                status, output = run()
            except subprocess.CalledProcessError as error:
                status, output = error.returncode, error.output
            passed = status == 0 and not report_in(output)
            outcomes.append(Outcome(f"{name}: {part}", passed, time.monotonic() - started, output))
            print(
                f"{'passed' if passed else 'FAILED'}  {outcomes[-1].part}  ({outcomes[-1].seconds:.0f} s)",
                flush=True,
            )
            if not passed:
                print(output[-6000:])
    failed = sum(not outcome.passed for outcome in outcomes)
    print(f"{len(outcomes) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
