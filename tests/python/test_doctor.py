"""The doctor: text and JSON, states of backends, problems and the exit status, with made-up and with real
environments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torch_fl_base import _probe, _torch_facts, discovery, doctor, preflight
from torch_fl_base.discovery import Record, State
from torch_fl_base.spec import BackendSpec

IMPORT = {
    "version": "2.13.0",
    "owner": "flagos",
    "called": True,
    "claimed": True,
    "reason": "torch has no accelerator of its own here",
    "failure": None,
    "output": "",
}
DEVICE = {"name": "Emulated", "total_memory": 4 << 30}


def record(name: str, state: State = State.WAITING, reason: str = "", **values: Any) -> Record:
    return Record(
        name,
        state,
        reason,
        BackendSpec(name, Path("/lib") / name, distribution=f"torch-fl-{name}", version="1.0"),
        **values,
    )


def answer(state: State, reason: str = "", devices: int = 0) -> dict[str, Any]:
    return {
        "state": state.value,
        "reason": reason,
        "devices": [DEVICE] * devices,
        "sdk_version": "9.1" if devices else "",
    }


@pytest.fixture
def examine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that diagnoses an environment with the given backends."""

    def examine(
        records: list[Record],
        answers: dict[str, dict[str, Any]],
        environ: dict[str, str] | None = None,
        **imported: Any,
    ) -> doctor.Diagnosis:
        monkeypatch.setattr(discovery, "discover", lambda *_: records)
        seen = imported if "error" in imported else {**IMPORT, **imported}
        return doctor.diagnose(environ or {}, lambda name, library: answers[name], lambda: seen)

    return examine


def test_states_and_devices_are_shown(examine: Any) -> None:
    records = [
        record("alpha"),
        record("beta"),
        record("gamma", State.NO_DEVICE, "none of /dev/gamma* exists"),
        record("reference", emulated=True),
    ]
    answers = {
        "alpha": answer(State.SELECTED, devices=2),
        "beta": answer(State.SDK_MISSING, "libbeta.so is not on the loader path"),
        "reference": answer(State.SELECTED, devices=2),
    }
    diagnosis = examine(records, answers)
    assert [b["state"] for b in diagnosis.backends] == ["selected", "SDK missing", "no device", "disabled"]
    assert diagnosis.problems == []
    text = doctor.text(diagnosis)
    assert (
        "alpha (torch-fl-alpha 1.0): selected\n      sdk version: 9.1\n"
        "      flagos:0: Emulated, 4.0 GiB\n      flagos:1" in text
    )
    assert "beta (torch-fl-beta 1.0): SDK missing: libbeta.so is not on the loader path" in text
    assert "unused: Emulated" in text
    assert text.endswith("no problems found")


def test_emulated_backend_joins_where_nothing_else_works(examine: Any) -> None:
    records = [record("alpha"), record("reference", emulated=True)]
    answers = {"alpha": answer(State.NO_DEVICE, "none"), "reference": answer(State.SELECTED, devices=2)}
    diagnosis = examine(records, answers)
    assert [b["device_count"] for b in diagnosis.backends] == [0, 2]
    assert diagnosis.problems == []


@pytest.mark.parametrize(
    ("state", "is_problem"),
    [(State.FAILED, True), (State.ABI_REFUSED, True), (State.SDK_MISSING, False), (State.NO_DEVICE, False)],
)
def test_broken_backend_is_a_problem_and_a_missing_one_is_not(
    state: State, is_problem: bool, examine: Any
) -> None:
    records = [record("alpha"), record("reference", emulated=True)]
    diagnosis = examine(
        records, {"alpha": answer(state, "why"), "reference": answer(State.SELECTED, devices=1)}
    )
    assert diagnosis.problems == ([f"backend alpha: {state}: why"] if is_problem else [])


def test_named_backend_without_device_is_a_problem(examine: Any) -> None:
    answers = {"alpha": answer(State.NO_DEVICE, "none")}
    diagnosis = examine([record("alpha")], answers, {"FLAGOS_BACKENDS": "alpha"})
    assert diagnosis.problems == ["backend alpha: no device: none", "no backend has a device"]


def test_bad_and_misspelt_variables_are_told(examine: Any) -> None:
    answers = {"reference": answer(State.SELECTED, devices=1)}
    diagnosis = examine([record("reference")], answers, {"FLAGOS_ALLOCATOR": "fast", "FLAGOS_BACKEND": "x"})
    assert len(diagnosis.problems) == 1
    assert "FLAGOS_ALLOCATOR='fast'" in diagnosis.problems[0]
    assert diagnosis.notes == ["FLAGOS_BACKEND is no variable of torch-fl; did you mean FLAGOS_BACKENDS?"]
    assert diagnosis.environment == {"FLAGOS_ALLOCATOR": "fast"}


@pytest.mark.parametrize(
    ("imported", "words"),
    [
        ({"error": "OSError: libtorch_cpu.so is missing"}, "`import torch` fails: OSError"),
        ({"owner": "npu"}, "the device 'npu' of another plugin holds PrivateUse1"),
        ({"failure": "BackendError: no"}, "the autoload failed: BackendError: no"),
    ],
)
def test_trouble_of_import_torch_is_a_problem(imported: dict[str, Any], words: str, examine: Any) -> None:
    diagnosis = examine(
        [record("reference")], {"reference": answer(State.SELECTED, devices=1)}, None, **imported
    )
    assert [problem for problem in diagnosis.problems if words in problem]


def test_noise_of_import_torch_is_noted(examine: Any) -> None:
    diagnosis = examine(
        [record("reference")], {"reference": answer(State.SELECTED, devices=1)}, None, output="hello"
    )
    assert diagnosis.notes == ["`import torch` prints: hello"]


def test_torch_that_does_not_fit_gets_the_line_that_installs_core(
    examine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        doctor, "installed_torch", lambda: _torch_facts.TorchFacts("2.9.1+cu128", cuda="12.8")
    )
    diagnosis = examine([record("reference")], {"reference": answer(State.SELECTED, devices=1)})
    assert 'pip install "torch-fl-core==2.9.*"' in doctor.text(diagnosis)
    assert [problem for problem in diagnosis.problems if "torch 2.9.1+cu128 is installed" in problem]


def test_no_torch_is_a_problem_with_its_cure(examine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed_torch", lambda: None)
    diagnosis = examine([record("reference")], {"reference": answer(State.SELECTED, devices=1)})
    assert diagnosis.problems[0].startswith('torch is not installed: pip install "torch')
    assert "torch         not installed" in doctor.text(diagnosis)


def test_preflight_turns_findings_into_checks(examine: Any) -> None:
    records = [record("alpha"), record("reference", emulated=True)]
    answers = {"alpha": answer(State.SELECTED, devices=2), "reference": answer(State.SELECTED, devices=2)}
    diagnosis = examine(records, answers)

    def check(**wanted: Any) -> list[bool]:
        return [check.passed for check in preflight.check(examine=lambda: diagnosis, **wanted)][-1:]

    assert check() == [True]
    assert check(devices=2, backend="alpha") == [True]
    assert check(devices=3) == [False]
    assert check(backend="reference") == [False]
    assert check(backend="gamma") == [False]
    assert preflight.check("gamma", examine=lambda: diagnosis)[-1].found.startswith(
        "no backend 'gamma' is installed"
    )


def test_probe_survives_a_library_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "libbad.so"
    file.write_bytes(b"not ELF")
    found = _probe.probe("bad", file)
    assert found["state"] == "failed"
    assert str(file) in found["reason"]


def test_probe_survives_a_crash_and_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = tmp_path / "crash"
    crash.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crash.chmod(0o755)
    monkeypatch.setattr(_probe.sys, "executable", str(crash))
    assert _probe.probe("bad", tmp_path)["reason"] == "its library ended the process with SIGSEGV"
    crash.write_text("#!/bin/sh\nexec sleep 60\n")
    assert _probe.probe("bad", tmp_path, timeout=0.2)["reason"] == "its library did not answer within 0 s"


def test_version_file_of_torch_is_read_without_importing_it() -> None:
    text = "import x\n__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
    assert _torch_facts.parse(text) == {"__version__": "2.13.0+cu130", "cuda": "13.0", "hip": None}


@pytest.mark.parametrize("module", ["torch_fl.doctor", "torch_fl_base.doctor"])
def test_real_environment_is_healthy(module: str, run_module: Any) -> None:
    done = run_module(module, "--json")
    data = json.loads(done.stdout)
    assert (done.returncode, data["problems"], data["healthy"]) == (0, [], True)
    assert data["backends"][-1]["name"] == "reference"
    assert data["backends"][-1]["device_count"] == 2
    assert data["torch"]["installed"]


def test_doctor_works_without_torch_and_without_numpy(run: Any) -> None:
    done = run(
        """
        import sys
        sys.modules["torch"] = None; sys.modules["numpy"] = None
        from torch_fl_base import doctor
        doctor.installed_torch = lambda: None
        sys.exit(doctor.main([]))
        """
    )
    assert done.returncode == 1
    assert "torch         not installed" in done.stdout
    assert "reference" in done.stdout
    assert "flagos:1" in done.stdout


def test_doctor_does_not_load_torch_fl(run: Any) -> None:
    done = run(
        "import sys, torch_fl_base.doctor as doctor; doctor.main(['--json']);"
        "sys.exit(', '.join({'torch', 'torch_fl'} & set(sys.modules)) or 0)"
    )
    assert done.returncode == 0, done.stderr


def test_bad_environment_makes_the_exit_status_one(run_module: Any) -> None:
    done = run_module("torch_fl.doctor", FLAGOS_BACKENDS="refrence")
    assert done.returncode == 1
    assert "Did you mean 'reference'?" in done.stdout
