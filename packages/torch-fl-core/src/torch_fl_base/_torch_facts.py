"""What is installed, read from files: torch is not imported, so that a broken one can be told of too."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
from pathlib import Path
from typing import Any

from torch_fl_base.autoload import TorchFacts

PACKAGES = ("torch-fl-core", "torch", "triton", "flagtree", "flag_gems", "numpy", "typer", "rich")
"""Distributions whose versions the doctor tells; vendor packages come from discovery."""

_ASSIGNMENT = re.compile(r"^(\w+)(?:\s*:[^=]+)?\s*=\s*(.+)$", re.MULTILINE)


def installed_torch() -> TorchFacts | None:
    """Return what the installed torch was built for, from its version.py; None where there is no torch."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    try:
        values = parse(Path(spec.origin).with_name("version.py").read_text(encoding="utf-8"))
    except OSError:
        values = {}
    version = values.get("__version__") or version_of("torch") or "unknown"
    return TorchFacts(version, values.get("cuda"), values.get("hip"), values.get("xpu"))


def parse(text: str) -> dict[str, Any]:
    """Return the literal assignments of a version.py."""
    values = {}
    for name, value in _ASSIGNMENT.findall(text):
        try:
            values[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            continue
    return values


def version_of(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str | None]:
    """Return the versions of PACKAGES, in that order."""
    return {name: version_of(name) for name in PACKAGES}
