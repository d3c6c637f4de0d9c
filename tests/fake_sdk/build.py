"""Compiles a vendor's fake SDK and its HAL library into a folder, for the tests of its package."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "packages" / "torch-fl-core" / "include"
WARNINGS = ["-Wall", "-Wextra", "-Werror"]


def _compile(sources: list[Path], target: Path, *options: str) -> None:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C++ compiler: neither c++ nor g++ is on the path")
    command = [compiler, "-std=c++17", "-O1", *WARNINGS, "-fPIC", "-shared", "-fvisibility=hidden"]
    command += [f"-I{ROOT}", f"-I{INCLUDE}", *options, *map(str, sources), "-o", str(target)]
    done = subprocess.run([*command, "-ldl", "-lpthread"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"


def fake_sdk(package: Path, soname: str, folder: Path) -> Path:
    """Compile `fake_sdk/*.cpp` of a package into `folder` under `soname`; returns the library.

    Beside it goes a copy of the reference backend's library, which is what lies under the fake.
    """
    from torch_fl_base.reference import backend

    library = folder / soname
    _compile(sorted((package / "fake_sdk").glob("*.cpp")), library, f"-Wl,-soname,{soname}")
    shutil.copy2(backend().library, folder / "libfake_device.so")
    return library


def hal_library(package: Path, folder: Path) -> Path:
    """Compile the HAL library of a package into `folder` as its wheel does; returns it."""
    vendor = package.name.removeprefix("torch-fl-")
    library = folder / f"libflagos_hal_{vendor}.so"
    exports = INCLUDE / "flagos" / "hal_support" / "exports.map"
    options = [f"-I{package / 'csrc'}", f"-Wl,--version-script={exports}", "-Wl,--no-undefined", "-Wl,-z,now"]
    _compile(sorted((package / "csrc").glob("*.cpp")), library, *options)
    return library
