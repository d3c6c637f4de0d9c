"""What this copy of core was built for, as its build wrote it down in compatibility.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from torch_fl_base.spec import BackendError

FILE = Path(__file__).parent / "compatibility.json"


class BuildInfo(NamedTuple):
    """Versions fixed at build time."""

    torch: str
    """The torch minor that the C++ parts are bound to: "2.13"."""
    core: str
    """Version of torch-fl-core: "2.13.0"."""
    abi: tuple[int, int]
    """HAL ABI that core speaks."""
    python: str
    """The Python that the bindings are bound to: "3.11"."""


def build_info(file: Path = FILE) -> BuildInfo | None:
    """Return what the build recorded, or None in a source tree that was never built.

    Raises: BackendError if the file is there but is not what a build writes.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        data = json.loads(text)
        major, minor = data["hal_abi"]
        return BuildInfo(
            torch=str(data["torch_minor"]),
            core=str(data["version"]),
            abi=(int(major), int(minor)),
            python=".".join(str(data["python"]).split(".")[:2]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackendError(f"{file} is damaged ({error!r}); reinstall torch-fl-core") from error
