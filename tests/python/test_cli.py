"""The command `torch-fl`, on an environment that is made up; the doctor's own tests look at real ones."""

from __future__ import annotations

import importlib.metadata
import json
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

from torch_fl_base import doctor, preflight
from torch_fl_base.discovery import Record, State
from torch_fl_base.spec import BackendSpec

pytest.importorskip("typer")
from typer.testing import CliRunner, Result

from torch_fl_base import cli


def diagnosis(devices: int) -> doctor.Diagnosis:
    """Return what the doctor would find in an environment with so many devices of one backend."""
    state = State.SELECTED if devices else State.NO_DEVICE
    spec = BackendSpec(
        "alpha", Path("/lib/libalpha.so"), aliases=("al",), distribution="torch-fl-alpha", version="1.0"
    )
    record = Record("alpha", state, "" if devices else "none is plugged in", spec, device_count=devices)
    device = {"name": "Alpha [9]", "total_memory": 4 << 30}
    return doctor.Diagnosis(
        python={"version": "3.11.7", "executable": "/bin/python", "platform": "Linux"},
        versions={"torch": "2.13.0", "torch-fl-core": "2.13.0", "triton": None},
        core={"version": "2.13.0", "built_for_torch": "2.13", "built_for_python": "3.11", "hal_abi": "1.0"},
        torch={
            "installed": True,
            "version": "2.13.0",
            "core_for_it": 'pip install "torch-fl-core==2.13.*"',
            "fits_core": True,
            "import": {"owner": "flagos", "failure": None, "output": ""},
        },
        autoload={"claim": True, "reason": "torch has no accelerator of its own here"},
        backends=[{**record.as_dict(), "devices": [device] * devices, "library_says": {}}],
        problems=[] if devices else ["no backend has a device"],
    )


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that runs `torch-fl` with arguments where so many devices are."""

    def command(*arguments: str, devices: int = 2) -> Result:
        monkeypatch.setattr(doctor, "diagnose", lambda: diagnosis(devices))
        monkeypatch.setattr(preflight, "diagnose", lambda: diagnosis(devices))
        return CliRunner().invoke(cli.app, list(arguments), env={"COLUMNS": "200"})

    return command


def test_commands_are_listed(command: Any) -> None:
    done = command("--help")
    assert done.exit_code == 0
    for name in ("doctor", "preflight", "conformance", "--install-completion"):
        assert name in done.output


def test_doctor_prints_a_table(command: Any) -> None:
    done = command("doctor")
    assert done.exit_code == 0
    assert "torch-fl-alpha 1.0" in done.output
    assert "flagos:1: Alpha [9], 4.0 GiB" in done.output
    assert "no problems found" in done.output


def test_doctor_prints_json(command: Any) -> None:
    data = json.loads(command("doctor", "--json").output)
    assert data["healthy"] is True
    assert data["backends"][0]["device_count"] == 2


def test_doctor_fails_on_problems(command: Any) -> None:
    done = command("doctor", devices=0)
    assert done.exit_code == 1
    assert "no device: none is plugged in" in done.output
    assert "1 problem" in done.output


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ((), 0),
        (("--devices", "2"), 0),
        (("-n", "3"), 1),
        (("-b", "alpha"), 0),
        (("-b", "al"), 0),
        (("-b", "beta"), 1),
    ],
)
def test_preflight_says_whether_a_job_can_start(
    arguments: tuple[str, ...], status: int, command: Any
) -> None:
    done = command("preflight", *arguments)
    assert done.exit_code == status, done.output
    assert ("FAIL" in done.output) == bool(status)
    data = json.loads(command("preflight", "--json", *arguments).output)
    assert data["passed"] is (status == 0)
    assert data["checks"][0]["name"] == "torch fits core"


def test_preflight_refuses_a_number_that_makes_no_sense(command: Any) -> None:
    assert command("preflight", "--devices", "0").exit_code == 2


def test_conformance_is_handed_to_the_kit(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_fl_base.testing import hal

    handed: list[list[str]] = []
    monkeypatch.setattr(hal, "main", lambda arguments: handed.append(arguments) or 3)
    assert command("conformance", "reference", "--filter", "HAL-STR-*", "--help").exit_code == 3
    assert handed == [["reference", "--filter", "HAL-STR-*", "--help"]]


def test_command_runs_as_a_program(run_module: Any) -> None:
    done = run_module("torch_fl_base.cli", "preflight", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["passed"] is True


HERE = f"cp{sys.version_info[0]}{sys.version_info[1]}"
MACHINE = sysconfig.get_platform().rpartition("-")[2]


def make_wheel(
    folder: Path,
    name: str,
    requires: str = "",
    record: dict[str, Any] | None = None,
    module: str = "torch_fl_alpha",
) -> Path:
    """Write a wheel that has nothing but its metadata."""
    path = folder / name
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(
            "x.dist-info/METADATA", f"Metadata-Version: 2.4\nName: x\nVersion: 1\nRequires-Dist: {requires}\n"
        )
        if record is not None:
            wheel.writestr("torch_fl_alpha/compatibility.json", json.dumps(record))
    return path


CORE = f"a-1-{HERE}-{HERE}-linux_{MACHINE}.whl"
RECORD = {"package": "torch-fl-alpha", "version": "0.1", "hal_abi": [1, 3], "library": True}


@pytest.mark.parametrize(
    ("name", "requires", "record", "failed", "words"),
    [
        (f"a-1-{HERE}-{HERE}-linux_{MACHINE}.whl", "torch==TORCH.*", None, [], "it needs torch"),
        (
            f"a-1-{HERE}-{HERE}-linux_{MACHINE}.whl",
            "torch==1.0.*",
            None,
            ["torch"],
            'pip install "torch-fl-core==',
        ),
        (f"a-1-cp27-cp27-linux_{MACHINE}.whl", "torch==TORCH.*", None, ["tags"], f"here: {HERE}"),
        ("a-1-py3-none-manylinux_2_28_riscv128.whl", "", RECORD, ["tags"], MACHINE),
        ("a-1-py3-none-any.whl", "torch-fl-core>=2.10", RECORD, [], "HAL ABI 1.3"),
        ("a-1-py3-none-any.whl", "", {**RECORD, "hal_abi": [2, 0]}, ["library"], "HAL ABI 2.0, this core 1."),
        ("a-1-py3-none-any.whl", "", {**RECORD, "library": False}, ["library"], "brings no HAL library yet"),
        ("a-1-py3-none-any.whl", "numpy", None, [""], "is no wheel of torch-fl"),
    ],
)
def test_preflight_reads_a_wheel(
    name: str,
    requires: str,
    record: dict[str, Any] | None,
    failed: list[str],
    words: str,
    tmp_path: Path,
    command: Any,
) -> None:
    torch_minor = ".".join(importlib.metadata.version("torch").split(".")[:2])
    wheel = make_wheel(tmp_path, name, requires.replace("TORCH", torch_minor), record)
    done = command("preflight", "--json", str(wheel))
    data = json.loads(done.output)
    assert [check["name"].partition(": ")[2] for check in data["checks"] if not check["passed"]] == failed
    assert done.exit_code == bool(failed)
    assert words in done.output.replace('\\"', '"')


@pytest.mark.parametrize("content", [b"no zip", None])
def test_preflight_of_what_is_no_wheel_says_so(content: bytes | None, tmp_path: Path, command: Any) -> None:
    file = tmp_path / "a-1-py3-none-any.whl"
    if content is not None:
        file.write_bytes(content)
    done = command("preflight", str(file))
    assert done.exit_code == 1
    assert "is no wheel of torch-fl" in done.output
