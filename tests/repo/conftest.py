"""What the tests of the repository share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run() -> Run:
    """Run a command in the repository's root and return what came of it; fails the test where it fails."""

    def run(
        *command: str | Path,
        env: dict[str, str] | None = None,
        fails: bool = False,
        timeout: float = 240,
        cwd: Path = ROOT,
    ) -> subprocess.CompletedProcess[str]:
        words = [str(word) for word in command]
        done = subprocess.run(
            words, capture_output=True, text=True, cwd=cwd, env={**os.environ, **(env or {})}, timeout=timeout
        )
        if (done.returncode != 0) is not fails:
            pytest.fail(f"{' '.join(words)}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    return run


@pytest.fixture
def python(run: Run) -> Run:
    """Run code in a fresh interpreter with warnings as errors."""

    def python(code: str, **options: object) -> subprocess.CompletedProcess[str]:
        return run(sys.executable, "-W", "error", "-c", code, **options)

    return python


@pytest.fixture(scope="session")
def build_wheel(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Build the wheel of a vendor package with the installed hatchling, and return it."""

    def build(package: Path) -> Path:
        folder = tmp_path_factory.mktemp("wheel")
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=package)
        assert done.returncode == 0, done.stdout + done.stderr
        (wheel,) = folder.glob("*.whl")
        return wheel

    return build


@pytest.fixture(scope="session")
def install_wheel() -> Callable[[Path, Path], None]:
    """Install a wheel into a folder, to be put on PYTHONPATH."""

    def install(wheel: Path, folder: Path) -> None:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--target",
            str(folder),
        ]
        done = subprocess.run([*pip, str(wheel)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    return install
