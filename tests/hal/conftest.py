"""What the tests of the reference HAL share: each runs in a process of its own, since a library is
initialised once.

`@pytest.mark.reference(FAIL="memory.allocate:3")` runs the test in a new Python with that variable set
and hands it `hal`, the library after init. `init=False` leaves init to the test; `dies="SIGSEGV"` expects the
process to end that way.
The library is the installed one, or that of the variable TORCH_FL_TEST_REFERENCE.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hal_native import Layers, Workshop

CHILD = Path(__file__).with_name("reference_child.py")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "reference(**variables): runs in a process of its own with the reference HAL (conftest.py)"
    )


def reference_library() -> Path:
    """Return the library under test."""
    chosen = os.environ.get("TORCH_FL_TEST_REFERENCE")
    if chosen:
        return Path(chosen)
    from torch_fl_base.reference import backend

    return Path(backend().library)


@pytest.fixture
def hal() -> None:
    """Stand for the argument that the child process gives."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    marker = pyfuncitem.get_closest_marker("reference")
    if marker is None:
        return None
    variables = dict(marker.kwargs)
    initialise = variables.pop("init", True)
    dies = variables.pop("dies", None)
    parameters = dict(pyfuncitem.callspec.params) if hasattr(pyfuncitem, "callspec") else {}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLAGOS_")}
    environment.update({f"FLAGOS_REFERENCE_{name}": value for name, value in variables.items()})
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    order = {
        "library": str(reference_library()),
        "file": str(pyfuncitem.path),
        "function": pyfuncitem.function.__name__,
        "initialise": initialise,
        "parameters": parameters,
    }
    # Python 3.12 warns of every fork of a process with threads.
    warnings = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    command = [sys.executable, *warnings, "-X", "faulthandler", str(CHILD), json.dumps(order)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)
    expected = -getattr(signal, dies) if dies else 0
    if done.returncode != expected:
        pytest.fail(f"the process ended with {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False)
    return True


# ----------------------------------------------------------- libraries made by the tests, core's layers ----

sys.path.insert(0, str(Path(__file__).parent))  # hal_native, for the modules here and for their children


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Compile small libraries and programs; skips where there is no C compiler."""
    if not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")):
        pytest.skip("needs a C compiler: cc is not on the path")
    return import_module("hal_native").Workshop(tmp_path_factory.mktemp("hal"))


@pytest.fixture(scope="session")
def layers() -> Layers:
    """Return core's loader and layers: the installed library, or that of TORCH_FL_TEST_LAYERS."""
    chosen = os.environ.get("TORCH_FL_TEST_LAYERS")
    if not chosen:
        chosen = str(Path(import_module("torch_fl_base").__file__).parent / "lib" / "libflagos_hal_layers.so")
    return import_module("hal_native").Layers(Path(chosen))
