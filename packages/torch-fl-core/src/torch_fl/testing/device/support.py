"""What the areas share: the device under test, what it can do, comparison with CPU, programs in processes of
their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

DEVICE_TYPE = "flagos"

_LEAVE_OUT = ("FLAGOS_REFERENCE_LATENCY", "FLAGOS_REFERENCE_FAIL", "TORCH_DEVICE_BACKEND_AUTOLOAD")


def module() -> Any:
    """Return the device's module, `torch.flagos`; claims the device at first."""
    import torch_fl  # noqa: F401

    return getattr(torch, DEVICE_TYPE)


def backend_of(index: int) -> str:
    """Return the name of the backend that a device belongs to."""
    return str(module().get_device_properties(index).backend)


def is_reference(index: int = 0) -> bool:
    """Return whether the device is of the reference backend, which runs CPU's own kernels and takes injected
    delays."""
    return backend_of(index).partition(":")[0] == "reference"


def staged() -> bool:
    """Return whether the reference backend's memory is out of the host's reach in this process."""
    return os.environ.get("FLAGOS_REFERENCE_MEMORY_FAULT", "0") not in ("", "0")


def assert_same(ours: Any, theirs: Any, **tolerance: Any) -> None:
    """Assert that a result on the device is CPU's: bit for bit on the reference backend, else within
    tolerance.

    Args:
        ours: a tensor on any device, or a nested list or tuple of them.
        theirs: the same on CPU.
        tolerance: rtol and atol where the default of the type does not fit.
    """
    if isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for mine, wanted in zip(ours, theirs, strict=True):
            assert_same(mine, wanted, **tolerance)
        return
    if theirs is None:
        assert ours is None
        return
    if is_reference() and not tolerance:
        tolerance = {"rtol": 0, "atol": 0}
    torch.testing.assert_close(ours.detach().cpu(), theirs.detach().cpu(), equal_nan=True, **tolerance)


def companion_of(index: int) -> str | None:
    """Return the device type whose kernels serve a device; None if the host's do."""
    import torch_fl

    return torch_fl.companion(torch.device(DEVICE_TYPE, index))


def reference_device() -> torch.device:
    """Return the device whose kernels serve device 0: its results are the right ones, bit for bit."""
    return torch.device(companion_of(0) or "cpu")


def run_program(
    program: str, *, timeout: float = 240, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Return the finished process of a Python program; variables given are added to the environment."""
    kept = {name: value for name, value in os.environ.items() if name not in _LEAVE_OUT}
    return subprocess.run(
        # Python 3.12 warns of every fork of a process with threads, which torch has from the start.
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", textwrap.dedent(program)],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def run_quietly(program: str, **environment: str) -> str:
    """Return what a Python program printed; it must end with status 0 and print nothing on standard error."""
    done = run_program(program, **environment)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.stderr.strip() == "", done.stderr
    return done.stdout


@pytest.fixture
def device() -> torch.device:
    """The device under test."""
    if not module().is_available():
        pytest.skip("needs a flagos device; none is available (python -m torch_fl.doctor says why)")
    return torch.device(DEVICE_TYPE, 0)


@pytest.fixture
def second_device(device: torch.device) -> torch.device:
    """Another device of the same backend."""
    for index in range(1, module().device_count()):
        if backend_of(index) == backend_of(0):
            return torch.device(DEVICE_TYPE, index)
    pytest.skip("needs two devices of one backend; there is one")


@pytest.fixture
def foreign_device(device: torch.device) -> torch.device:
    """A device of another backend."""
    for index in range(1, module().device_count()):
        if backend_of(index) != backend_of(0):
            return torch.device(DEVICE_TYPE, index)
    pytest.skip("needs devices of two backends, for example FLAGOS_BACKENDS=reference,reference:second")


@pytest.fixture
def delays(device: torch.device) -> Callable[..., str]:
    """A function that runs a program with delays injected into the backend's work, and returns what it
    printed.

    Its keyword arguments are kinds of work ("copy", "fill", "event") and microseconds.
    """
    if not is_reference():
        pytest.skip("needs a backend that takes injected delays; only the reference backend does")

    def run(program: str, **microseconds: int) -> str:
        latency = ",".join(f"{kind}:{value}" for kind, value in microseconds.items())
        return run_quietly(program, FLAGOS_REFERENCE_LATENCY=latency)

    return run


@pytest.fixture
def faults(device: torch.device) -> Callable[..., str]:
    """A function that runs a program in which functions of the backend fail, and returns what it printed."""
    if not is_reference():
        pytest.skip("needs a backend that takes injected failures; only the reference backend does")
    return lambda program, fail, **environment: run_quietly(
        program, FLAGOS_REFERENCE_FAIL=fail, **environment
    )


@pytest.fixture(autouse=True)
def clean_state() -> Iterator[None]:
    """Seed before each test; afterwards wait for all work, put current device and default type back."""
    torch.manual_seed(7)
    kept = torch.get_default_dtype()
    yield
    torch.set_default_dtype(kept)
    flagos = module()
    if flagos.is_available():
        for index in range(flagos.device_count()):
            flagos.synchronize(index)
        flagos.set_device(0)


FIXTURES: dict[str, Any] = {
    "clean_state": clean_state,
    "delays": delays,
    "device": device,
    "faults": faults,
    "foreign_device": foreign_device,
    "second_device": second_device,
}


def exported(namespace: dict[str, Any]) -> list[str]:
    """Return what an area's module exports: its tests, and the fixtures, which are put into its namespace."""
    namespace.update(FIXTURES)
    return [*(name for name in namespace if name.startswith(("test_", "Test"))), *FIXTURES]
