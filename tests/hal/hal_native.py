"""What the tests of the loader and its layers share: compiling small libraries, and opening them through
libflagos_hal_layers.so without torch.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_fl_base._hal import Hal, negotiate, query_prototype

HERE = Path(__file__).resolve().parent
CORE = HERE.parent.parent / "packages" / "torch-fl-core"
INCLUDE = CORE / "include"
SOURCES = HERE / "libraries"

VALIDATE, TRACE, PRIVATE_COPY, QUIET = 1, 2, 4, 8
KINDS = ("NotFound", "NotALibrary", "NoEntryPoint", "AbiRefused", "BadTable", "InitFailed")


class OpenError(Exception):
    """The loader refused a library."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def reference_library() -> Path:
    """Return the reference HAL: the installed one, or that of TORCH_FL_TEST_REFERENCE."""
    chosen = os.environ.get("TORCH_FL_TEST_REFERENCE")
    if chosen:
        return Path(chosen)
    from torch_fl_base.reference import backend

    return Path(backend().library)


def in_own_process(code: str, *arguments: Path | str) -> str:
    """Return what a Python process prints that can import hal_native."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def compiler(language: str) -> list[str]:
    """Return the command of the C or C++ compiler, through ccache where there is one."""
    command = shlex.split(os.environ.get("CC", "cc") if language == "c" else os.environ.get("CXX", "c++"))
    cache = shutil.which("ccache")
    return [cache, *command] if cache and "ccache" not in command[0] else command


@dataclass
class Workshop:
    """Makes libraries and programs in a scratch folder; equal orders are made once."""

    folder: Path

    def library(self, source: str, *options: str, include: Path = INCLUDE) -> Path:
        """Return a shared library compiled from a file of tests/hal/libraries or from C text."""
        return self._make(source, ("-shared", "-fPIC", "-fvisibility=hidden", *options), ".so", include)

    def program(self, source: str, *options: str) -> Path:
        """Return a program compiled likewise."""
        return self._make(source, options, "", INCLUDE)

    def _make(self, source: str, options: tuple[str, ...], suffix: str, include: Path) -> Path:
        target = self.folder / f"lib{key(source, options, include)}{suffix}"
        if target.exists():
            return target
        # A linker cannot run through ccache, so it is made of an object; what only the linker reads does not
        # make another one.
        wanted = tuple(one for one in options if not one.startswith("-Wl,") and one != "-shared")
        middle = self.folder / f"{key(source, wanted, include)}.o"
        if "\n" in source:
            file = self.folder / f"{key(source)}.c"
            file.write_text(source, encoding="utf-8")
        else:
            file = SOURCES / source
        language = "c" if file.suffix == ".c" else "c++"
        standard = "-std=c99" if language == "c" else "-std=c++17"
        if not middle.exists():
            folders = [word for folder in (include, CORE, SOURCES) for word in ("-I", str(folder))]
            command = [*compiler(language), standard, "-O1", *folders, *wanted]
            subprocess.run([*command, "-c", str(file), "-o", str(middle)], check=True)
        link = [word for word in compiler(language) if Path(word).name != "ccache"]
        subprocess.run([*link, *options, str(middle), "-o", str(target), "-lpthread", "-ldl"], check=True)
        return target


def key(*parts: Any) -> str:
    """Return a short name for an order."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


class Layers:
    """The functions of csrc/hal/layers_api.h."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library: Any = ctypes.CDLL(str(path))
        self._library.flagos_layers_open.restype = ctypes.c_void_p
        self._library.flagos_layers_open.argtypes = [
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_uint32,
            ctypes.c_char_p,
        ]
        self._library.flagos_layers_error.restype = ctypes.c_char_p
        self._library.flagos_layers_violations.restype = ctypes.c_uint64
        self._library.flagos_layers_violations.argtypes = [ctypes.c_void_p]

    def address(self, path: Path | str, flags: int = 0, trace: Path | str = "", name: str = "tested") -> int:
        """Open a library and return the address of its tables. Raises: OpenError."""
        tables = self._library.flagos_layers_open(
            name.encode(), os.fspath(path).encode(), flags, os.fspath(trace).encode()
        )
        if tables is None:
            kind = KINDS[self._library.flagos_layers_error_kind()]
            raise OpenError(kind, self._library.flagos_layers_error().decode())
        return int(tables)

    def open(self, path: Path | str, flags: int = 0, trace: Path | str = "", name: str = "tested") -> Hal:
        """Open a library and return its functions in Python. Raises: OpenError."""
        tables = self.address(path, flags, trace, name)

        def query(major: int, minor: int, out: Any) -> int:
            out[0] = tables
            return 0

        hal = negotiate(name, os.fspath(path), query_prototype()(query))
        hal.tables = tables  # type: ignore[attr-defined]
        return hal

    def violations(self, hal: Hal) -> int:
        """Return how many violations the validating layer has seen in calls of `hal`."""
        return int(self._library.flagos_layers_violations(hal.tables))  # type: ignore[attr-defined]
