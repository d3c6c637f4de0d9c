"""Loading the C++ parts, and the two Python parts that claim the device, without importing the package
torch_fl.

`import torch` alone may claim the device (the autoload); `torch_fl` in sys.modules means that the program
itself asked for it. So the parts needed for the claim are loaded by path under the names they would have
anyway.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

from torch_fl_base._build import build_info
from torch_fl_base.spec import BackendError

PACKAGE = Path(__file__).parent.parent / "torch_fl"
DOCTOR = "Details: python -m torch_fl.doctor"
_lock = threading.RLock()


def minor(version: str) -> str:
    """Return the minor of a torch version: "2.13" of "2.13.0+cpu"."""
    return ".".join(version.split("+")[0].split(".")[:2])


def mismatch(torch_version: str) -> str | None:
    """Return one sentence if the C++ parts cannot work with this torch, with the way out; None if they
    can."""
    try:
        info = build_info()
    except BackendError as error:
        return f"flagos: {error}"
    if info is None:
        return (
            f"flagos: torch-fl-core at {PACKAGE.parent} has no compiled parts; install it with pip. {DOCTOR}"
        )
    wanted = minor(torch_version)
    if info.torch != wanted:
        return (
            f"flagos: this torch-fl-core ({info.core}) was built for torch {info.torch}, but torch "
            f"{torch_version} is installed; install the one for this torch: "
            f'pip install "torch-fl-core=={wanted}.*". {DOCTOR}'
        )
    return None


def load() -> Any:
    """Return the bindings, torch_fl._C. torch must have been imported, or be importing.

    Raises: BackendError in one sentence if torch's minor or this Python is not what they were built for;
    before any C++ symbol is needed.
    """
    with _lock:
        loaded = sys.modules.get("torch_fl._C")
        if loaded is not None:
            return loaded
        problem = mismatch(sys.modules["torch"].__version__)
        if problem:
            raise BackendError(problem)
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            file = PACKAGE / f"_C{suffix}"
            if file.is_file():
                return _import_bindings(file)
        others = ", ".join(path.name for path in sorted(PACKAGE.glob("_C.*.so"))) or "none"
        here = f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}"
        raise BackendError(
            f"flagos: torch-fl-core has no bindings for this Python ({here}) in {PACKAGE} (found: {others}); "
            f"reinstall torch-fl-core with this Python's pip. {DOCTOR}"
        )


def _import_bindings(file: Path) -> ModuleType:
    try:
        return _import("torch_fl._C", file)
    except ImportError as error:  # of the dynamic loader: its message names file and symbol
        raise BackendError(
            f"flagos: the compiled parts of torch-fl-core cannot be loaded with torch "
            f"{sys.modules['torch'].__version__}: {error}. Reinstall torch-fl-core for this torch. {DOCTOR}"
        ) from error


def load_part(name: str) -> ModuleType:
    """Return a Python part of torch_fl by its full name: "torch_fl._claim", or "torch.flagos"
    (torch_fl/flagos)."""
    with _lock:
        loaded = sys.modules.get(name)
        if loaded is not None:
            return loaded
        if name == "torch.flagos":
            return _import(name, PACKAGE / "flagos" / "__init__.py", PACKAGE / "flagos")
        return _import(name, PACKAGE / f"{name.partition('.')[2]}.py")


def _import(name: str, file: Path, directory: Path | None = None) -> ModuleType:
    """Import a file under a name; directory: it is a package with its modules there."""
    search = None if directory is None else [str(directory)]
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=search)
    if spec is None or spec.loader is None:
        raise BackendError(f"flagos: {file} cannot be imported; reinstall torch-fl-core. {DOCTOR}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def run_as_doctor(argv: list[str], orig_argv: list[str]) -> bool:
    """Return whether Python is at `python -m torch_fl.doctor`, which imports the package torch_fl on its way.

    The doctor must work where torch is missing or broken, so that torch_fl then leaves everything alone.
    """
    if not argv or argv[0] != "-m" or "-m" not in orig_argv:
        return False
    return orig_argv[orig_argv.index("-m") + 1 :][:1] == ["torch_fl.doctor"]
