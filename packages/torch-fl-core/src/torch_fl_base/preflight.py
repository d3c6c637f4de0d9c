"""Whether a job can start in this environment: the doctor's findings as a list of checks that pass or
fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch_fl_base.discovery import State
from torch_fl_base.doctor import Diagnosis, diagnose


@dataclass(frozen=True)
class Check:
    """One thing that a job needs."""

    name: str
    passed: bool
    found: str
    """What was found, in words, whether it passed or not."""


def check(
    backend: str | None = None, devices: int = 1, examine: Callable[[], Diagnosis] | None = None
) -> list[Check]:
    """Return the checks of a job that needs `devices` devices, of `backend` if one is named.

    Opens the libraries in processes of their own and imports torch in one; nothing is loaded here.
    """
    diagnosis = (examine or diagnose)()
    checks = [_torch(diagnosis), _import(diagnosis), _environment(diagnosis)]
    for found in diagnosis.backends:
        if found["state"] in (State.FAILED.value, State.ABI_REFUSED.value) and found["name"] != backend:
            checks.append(Check(f"backend {found['name']}", False, f"{found['state']}: {found['reason']}"))
    checks.append(_devices(diagnosis, backend, devices))
    return checks


def _torch(diagnosis: Diagnosis) -> Check:
    name = "torch fits core"
    if not diagnosis.torch["installed"]:
        return Check(name, False, diagnosis.autoload["reason"])
    core = diagnosis.core
    found = f"torch {diagnosis.torch['version']}, core built for {core['built_for_torch']}"
    fits = diagnosis.torch["fits_core"]
    return Check(name, fits, found if fits else f"{found}: {diagnosis.torch['core_for_it']}")


def _import(diagnosis: Diagnosis) -> Check:
    name = "torch can be imported and flagos claimed"
    seen = diagnosis.torch.get("import", {})
    if not seen:
        return Check(name, False, "not tried: torch is not installed")
    if "error" in seen:
        return Check(name, False, seen["error"])
    if seen["failure"]:
        return Check(name, False, seen["failure"])
    free = seen["owner"] in ("privateuseone", "flagos")
    return Check(
        name, free, "yes" if free else f"the device {seen['owner']!r} of another plugin holds PrivateUse1"
    )


def _environment(diagnosis: Diagnosis) -> Check:
    bad = [
        problem
        for problem in diagnosis.problems
        if "environment variable" in problem or "FLAGOS_BACKENDS=" in problem
    ]
    set_variables = ", ".join(f"{name}={value}" for name, value in diagnosis.environment.items())
    return Check("environment variables", not bad, "; ".join(bad) or set_variables or "none set")


def _devices(diagnosis: Diagnosis, backend: str | None, wanted: int) -> Check:
    name = f"{wanted} device{'s' if wanted > 1 else ''}" + (f" of {backend}" if backend else "")
    chosen = [found for found in diagnosis.backends if backend in (None, found["name"], *found["aliases"])]
    if not chosen:
        installed = ", ".join(found["name"] for found in diagnosis.backends)
        return Check(name, False, f"no backend {backend!r} is installed; installed: {installed}")
    there = sum(found["device_count"] for found in chosen)
    states = "; ".join(
        f"{found['name']}: {found['device_count']}"
        if found["device_count"]
        else f"{found['name']}: {found['state']}"
        for found in chosen
    )
    return Check(name, there >= wanted, states)
