"""What an environment can do and what is wrong with it, for people and as JSON. Needs neither torch nor
numpy.

`python -m torch_fl.doctor`, `python -m torch_fl_base.doctor` and `torch-fl doctor` are the same. Exit status
1: something would stop the program that is about to run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_fl_base import _env, _native, _probe, autoload, discovery
from torch_fl_base._build import build_info
from torch_fl_base._torch_facts import installed_torch, versions
from torch_fl_base.discovery import Record, State
from torch_fl_base.spec import BackendError

SCHEMA = 1

# Run in a child: what `import torch` really does here. The output is one line of JSON after a marker, so that
# whatever else prints during the import is seen as such.
_IMPORT = """
import json, sys
import torch
from torch_fl_base import autoload
last, failure = autoload.last, autoload.failure
print("\\n@flagos" + json.dumps({
    "version": torch.__version__,
    "owner": torch._C._get_privateuse1_backend_name(),
    "called": last is not None,
    "claimed": bool(last and last.claim),
    "reason": last.reason if last else "torch did not call it",
    "failure": None if failure is None else f"{type(failure).__name__}: {failure}",
}))
"""

Prober = Callable[[str, Path], dict[str, Any]]


@dataclass
class Diagnosis:
    """Everything the doctor found; `problems` is what would stop a program."""

    python: dict[str, str]
    versions: dict[str, str | None]
    core: dict[str, Any]
    torch: dict[str, Any]
    autoload: dict[str, Any]
    backends: list[dict[str, Any]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"schema": SCHEMA, "healthy": not self.problems, **vars(self)}


def diagnose(
    environ: Mapping[str, str] | None = None,
    prober: Prober = _probe.probe,
    import_torch: Callable[[], dict[str, Any]] | None = None,
) -> Diagnosis:
    """Return what is installed here and how far it works.

    Args:
        environ: read instead of os.environ (the children see the real one).
        prober: opens a library; by default in a process of its own.
        import_torch: what `import torch` does; by default tried in a process of its own.
    """
    environ = os.environ if environ is None else environ
    diagnosis = Diagnosis(
        python={
            "version": platform.python_version(),
            "executable": sys.executable,
            "platform": platform.platform(),
        },
        versions=versions(),
        core={},
        torch={},
        autoload={},
        environment=_env.in_effect(environ),
    )
    diagnosis.problems += _env.check(environ)
    for name, close in _env.unknown(environ).items():
        diagnosis.notes.append(
            f"{name} is no variable of torch-fl{f'; did you mean {close}?' if close else ''}"
        )
    _look_at_core(diagnosis)
    _look_at_torch(diagnosis, environ, import_torch or _import_torch)
    _look_at_backends(diagnosis, environ, prober)
    return diagnosis


def _look_at_core(diagnosis: Diagnosis) -> None:
    try:
        info = build_info()
    except BackendError as error:
        diagnosis.problems.append(str(error))
        info = None
    here = ".".join(platform.python_version_tuple()[:2])
    if info and info.python != here:
        diagnosis.problems.append(
            f"torch-fl-core was built for Python {info.python}, not {here}: install it with this Python's pip"
        )
    diagnosis.core = {
        "version": info.core if info else diagnosis.versions.get("torch-fl-core"),
        "built_for_torch": info.torch if info else None,
        "built_for_python": info.python if info else None,
        "hal_abi": ".".join(map(str, info.abi if info else discovery.ABI)),
        "path": str(_native.PACKAGE.parent),
    }


def _look_at_torch(
    diagnosis: Diagnosis, environ: Mapping[str, str], import_torch: Callable[[], dict[str, Any]]
) -> None:
    facts = installed_torch()
    built_for = diagnosis.core["built_for_torch"]
    if facts is None:
        wanted = f"torch=={built_for}.*" if built_for else "torch"
        diagnosis.torch = {"installed": False}
        diagnosis.autoload = {"claim": False, "reason": "torch is not installed"}
        diagnosis.problems.append(f'torch is not installed: pip install "{wanted}"')
        return
    diagnosis.torch = {
        "installed": True,
        "version": facts.version,
        "built_for": {k: getattr(facts, k) for k in ("cuda", "hip", "xpu") if getattr(facts, k)},
        "core_for_it": f'pip install "torch-fl-core=={_native.minor(facts.version)}.*"',
        "other_plugins": autoload.other_plugins(),
    }
    problem = _native.mismatch(facts.version)
    diagnosis.torch["fits_core"] = problem is None
    if problem:
        diagnosis.problems.append(problem)
    try:
        decision = autoload.decide(facts, environ)
        diagnosis.autoload = {"claim": decision.claim, "reason": decision.reason}
    except BackendError as error:  # a bad FLAGOS_AUTOLOAD, which is among the problems already
        diagnosis.autoload = {"claim": False, "reason": str(error)}
    if environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "1":
        diagnosis.autoload = {
            "claim": False,
            "reason": "TORCH_DEVICE_BACKEND_AUTOLOAD switches all plugins off",
        }
    _look_at_import(diagnosis, import_torch())


def _look_at_import(diagnosis: Diagnosis, seen: dict[str, Any]) -> None:
    """Add what `import torch` really did."""
    diagnosis.torch["import"] = seen
    if "error" in seen:
        diagnosis.problems.append(f"`import torch` fails: {seen['error']}")
        return
    diagnosis.torch["privateuse1"] = seen["owner"]
    if seen["owner"] not in ("privateuseone", autoload.DEVICE):
        diagnosis.problems.append(
            f"the device {seen['owner']!r} of another plugin holds PrivateUse1, so that flagos cannot be "
            "used beside it: uninstall that plugin, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import one"
        )
    if seen["failure"]:
        diagnosis.problems.append(f"the autoload failed: {seen['failure']}")
    if seen["output"]:
        diagnosis.notes.append(f"`import torch` prints: {seen['output']}")


def _import_torch() -> dict[str, Any]:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _IMPORT], capture_output=True, text=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": "it did not return within 120 s"}
    printed, marker, answer = done.stdout.rpartition("\n@flagos")
    if not marker or done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return {"error": last}
    return {**json.loads(answer), "output": (printed + done.stderr).strip()}


def _look_at_backends(diagnosis: Diagnosis, environ: Mapping[str, str], prober: Prober) -> None:
    named: tuple[str, ...] = ()
    try:
        records = discovery.discover(environ)
        named = _env.BACKENDS.read(environ) or ()
    except BackendError as error:
        if str(error) not in diagnosis.problems:
            diagnosis.problems.append(str(error))
        records = discovery.discover({})
    first = 0
    usable = False
    for record in records:
        seen = (
            prober(record.name, record.spec.library) if record.state is State.WAITING and record.spec else {}
        )
        devices = seen.get("devices", [])
        if seen:
            record = record._replace(state=State(seen["state"]), reason=seen["reason"])
        joins = record.state is State.SELECTED and not (record.emulated and usable)
        if record.state is State.SELECTED and not joins:
            reason = f"works; joins only where nothing else has a device, or by FLAGOS_BACKENDS={record.name}"
            record = record._replace(state=State.DISABLED, reason=reason)
        if joins:
            usable = True
            record = record._replace(first_device=first, device_count=len(devices))
            first += len(devices)
        diagnosis.backends.append({**record.as_dict(), "devices": devices, "library_says": _said(seen)})
        diagnosis.problems += _problem_of(record, named)
    if not usable:
        diagnosis.problems.append("no backend has a device")


def _said(seen: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in seen.items() if key not in ("state", "reason", "devices") and value}


def _problem_of(record: Record, named: tuple[str, ...]) -> list[str]:
    broken = record.state in (State.FAILED, State.ABI_REFUSED)
    aliases = record.spec.aliases if record.spec else ()
    wanted = not {record.name, *aliases}.isdisjoint(named) and record.state is not State.SELECTED
    return [f"backend {record.name}: {record.state}: {record.reason}"] if broken or wanted else []


def text(diagnosis: Diagnosis) -> str:
    """Return the diagnosis for people."""
    before, after = text_parts(diagnosis)
    backends = ["backends, in the order of their devices:"]
    for backend in diagnosis.backends:
        backends += _backend_lines(backend)
    return "\n".join([*before, *backends, "", *after])


def text_parts(diagnosis: Diagnosis) -> tuple[list[str], list[str]]:
    """Return the lines before and after those of the backends."""
    torch, core = diagnosis.torch, diagnosis.core
    python = diagnosis.python
    before = [
        f"python        {python['version']} ({python['executable']})",
        f"platform      {python['platform']}",
    ]
    built = ", ".join(f"{kind} {version}" for kind, version in torch.get("built_for", {}).items()) or "cpu"
    before.append(
        f"torch         {torch['version']} (built for {built})"
        if torch["installed"]
        else "torch         not installed"
    )
    built_for = core["built_for_torch"]
    fits = (
        f"built for torch {built_for}, Python {core['built_for_python']}"
        if built_for
        else "no compiled parts"
    )
    before.append(
        f"torch-fl-core {core['version'] or 'not installed by pip'} ({fits}; HAL ABI {core['hal_abi']})"
    )
    if torch["installed"]:
        before.append(f"              core for this torch: {torch['core_for_it']}")
    for name, version in diagnosis.versions.items():
        if version and name not in ("torch", "torch-fl-core"):
            before.append(f"{name:<13} {version}")
    claim = "claims the device" if diagnosis.autoload["claim"] else "does not claim the device"
    before += ["", f"`import torch` {claim}: {diagnosis.autoload['reason']}"]
    if torch.get("other_plugins"):
        before.append(f"other device plugins of torch: {', '.join(torch['other_plugins'])}")
    after = ["environment:"]
    after += [f"  {name}={value}" for name, value in diagnosis.environment.items()] or [
        "  no variable of torch-fl is set"
    ]
    for title, entries in (("notes", diagnosis.notes), ("problems", diagnosis.problems)):
        if entries:
            after += ["", f"{title}:", *(f"  - {entry}" for entry in entries)]
    count = len(diagnosis.problems)
    after += ["", "no problems found" if not count else f"{count} problem{'s' if count > 1 else ''}"]
    return [*before, ""], after


def _backend_lines(backend: dict[str, Any]) -> list[str]:
    package = (
        f" ({backend['package']} {backend['version'] or ''})".replace(" )", ")") if backend["package"] else ""
    )
    state = backend["state"] + (f": {backend['reason']}" if backend["reason"] else "")
    lines = [f"  {backend['name']}{package}: {state}"]
    for key, value in backend["library_says"].items():
        lines.append(f"      {key.replace('_', ' ')}: {value}")
    return [*lines, *(f"      {line}" for line in device_lines(backend))]


def device_lines(backend: dict[str, Any]) -> list[str]:
    """Return one line for each device of a backend: its index if it is in use, name, memory."""
    lines = []
    for offset, device in enumerate(backend["devices"]):
        index = (
            f"flagos:{backend['first_device'] + offset}"
            if backend["state"] == State.SELECTED.value
            else "unused"
        )
        lines.append(f"{index}: {device['name']}, {device['total_memory'] / (1 << 30):.1f} GiB")
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Print the diagnosis; 1 if there are problems."""
    parser = argparse.ArgumentParser(
        prog="torch_fl.doctor", description="What this environment can do, and what is wrong."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    diagnosis = diagnose()
    print(json.dumps(diagnosis.as_dict(), indent=2) if options.json else text(diagnosis))
    return 1 if diagnosis.problems else 0


if __name__ == "__main__":
    sys.exit(main())
