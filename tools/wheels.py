"""Wheels of the repository's packages, kept by the content of what they are built from."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

#: Names that are no sources, wherever they lie: outputs of builds and tools.
_NOT_SOURCES = {
    "build",
    "dist",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    "tests",
    "changes",
}
_NOT_SOURCE_SUFFIXES = {".so", ".pyc", ".o"}


def sources(package: Path) -> list[Path]:
    """Return the files that a wheel of `package` is made from, in a fixed order."""
    found: list[Path] = []
    for folder, names, files in os.walk(package):
        names[:] = sorted(n for n in names if n not in _NOT_SOURCES and not n.endswith(".egg-info"))
        names[:] = [n for n in names if not (Path(folder) / n).is_symlink()]
        found += [Path(folder) / f for f in sorted(files) if Path(f).suffix not in _NOT_SOURCE_SUFFIXES]
    return [path for path in found if path.name != "compatibility.json"]


def content_key(package: Path, facts: Iterable[str]) -> str:
    """Return a hash of the package's sources and of `facts`, the other things that a wheel depends on."""
    digest = hashlib.sha256()
    for fact in facts:
        digest.update(fact.encode() + b"\0")
    for path in sources(package):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:24]


def toolchain_facts(environ: dict[str, str]) -> list[str]:
    """Return what, besides sources and torch, decides the native parts: Python, machine, compiler, flags.

    Raises: FileNotFoundError naming the compiler that is missing.
    """
    compiler = environ.get("CXX") or "c++"
    if shutil.which(compiler.split()[-1]) is None:
        raise FileNotFoundError(
            f"no C++ compiler: {compiler} is not on PATH. Debian: apt-get install g++; or set CXX."
        )
    version = subprocess.run(
        [*compiler.split(), "--version"], capture_output=True, text=True, check=True
    ).stdout
    flags = [f"{name}={environ.get(name, '')}" for name in ("CXXFLAGS", "LDFLAGS", "TORCH_FL_CMAKE_ARGS")]
    return [sys.implementation.cache_tag, platform.machine(), version, *flags]


def cached_wheel(folder: Path, build: Callable[[Path], None]) -> tuple[Path, bool]:
    """Return the one wheel in `folder`, built there by `build` if it is missing, and whether it was there
    already.

    The wheel appears under its final name only when complete, so a build that is broken off leaves nothing to
    be trusted.
    """
    found = sorted(folder.glob("*.whl"))
    if found:
        return found[0], True
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    build(partial)
    built = sorted(partial.glob("*.whl"))
    if len(built) != 1:
        raise RuntimeError(f"the build left {len(built)} wheels in {partial}, not one")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return folder / built[0].name, False
