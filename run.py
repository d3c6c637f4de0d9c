#!/usr/bin/env python3
"""Runs a session of noxfile.py with nothing but Python to start from: `python3 run.py demo`, `python3 run.py
tests`.

For machines where pip refuses to touch the system's Python (PEP 668), or has no nox. nox goes into
`.cache/nox`, never into the Python that runs this file. Where nox is installed, `nox -s demo` is the same.
Arguments after the session's name reach the
session: `python3 run.py demo --torch 2.12`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NOX = HERE / ".cache" / "nox" / f"py{sys.version_info[0]}.{sys.version_info[1]}"


def nox_command() -> tuple[list[str], dict[str, str]]:
    """Return the command that starts nox, and what the environment needs for it; installs nox if it is
    nowhere.
    """
    if importlib.util.find_spec("nox"):
        return [sys.executable, "-m", "nox"], {}
    python = NOX / "venv" / "bin" / "python"
    target = NOX / "packages"
    as_target = {"PYTHONPATH": str(target)}
    if (NOX / "complete-venv").exists():
        return [str(python), "-m", "nox"], {}
    if (NOX / "complete-target").exists():
        return [sys.executable, "-m", "nox"], as_target
    shutil.rmtree(NOX, ignore_errors=True)
    NOX.mkdir(parents=True)
    print(f"run.py: installing nox into {NOX.relative_to(HERE)}", flush=True)
    if subprocess.run([sys.executable, "-m", "venv", str(NOX / "venv")], capture_output=True).returncode == 0:
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "nox"], check=True)
        (NOX / "complete-venv").touch()
        return [str(python), "-m", "nox"], {}
    # Debian splits venv's pip into a package of its own. A target folder is allowed where the system's Python
    # is not.
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target), "nox"]
    if subprocess.run(pip).returncode == 0:
        (NOX / "complete-target").touch()
        return [sys.executable, "-m", "nox"], as_target
    sys.exit("run.py: this Python has neither a working venv nor pip. Debian: apt-get install python3-venv")


def main(arguments: list[str]) -> int:
    """Forward to nox: the first argument is the session, the rest belongs to it."""
    if sys.version_info < (3, 10):  # noqa: UP036  (an older Python may well run this file)
        sys.exit(
            f"run.py: Python 3.10 or later is needed; this is {sys.version.split()[0]} ({sys.executable})"
        )
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        session = ["--list"]
    else:
        rest = arguments[1:]
        # As for nox itself, one "--" may stand before the session's arguments.
        session = ["-s", arguments[0], "--", *(rest[1:] if rest[:1] == ["--"] else rest)]
    command, extra = nox_command()
    return subprocess.run(
        [*command, "-f", str(HERE / "noxfile.py"), *session], env={**os.environ, **extra}
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
