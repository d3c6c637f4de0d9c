"""The command `torch-fl`."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("typer")


def test_commands_are_listed(run_module: Any) -> None:
    done = run_module("torch_fl_base.cli", "--help")
    assert done.returncode == 0
    for command in ("doctor", "preflight", "conformance", "--install-completion"):
        assert command in done.stdout


def test_doctor_prints_a_table_and_json(run_module: Any) -> None:
    done = run_module("torch_fl_base.cli", "doctor", COLUMNS="200")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "reference" in done.stdout
    assert "flagos:1" in done.stdout
    assert "no problems found" in done.stdout
    data = json.loads(run_module("torch_fl_base.cli", "doctor", "--json").stdout)
    assert data["healthy"] is True


def test_doctor_fails_on_problems(run_module: Any) -> None:
    done = run_module("torch_fl_base.cli", "doctor", FLAGOS_REFERENCE_DEVICES="0", COLUMNS="200")
    assert done.returncode == 1
    assert "no backend has a device" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ((), 0),
        (("--devices", "2"), 0),
        (("--devices", "3"), 1),
        (("-b", "reference"), 0),
        (("-b", "metax9"), 1),
    ],
)
def test_preflight_says_whether_a_job_can_start(
    arguments: tuple[str, ...], status: int, run_module: Any
) -> None:
    done = run_module("torch_fl_base.cli", "preflight", *arguments, COLUMNS="200")
    assert done.returncode == status, done.stdout + done.stderr
    assert ("FAIL" in done.stdout) == bool(status)


def test_preflight_as_json(run_module: Any) -> None:
    data = json.loads(run_module("torch_fl_base.cli", "preflight", "--json").stdout)
    assert data["passed"] is True
    assert [check["name"] for check in data["checks"]][0] == "torch fits core"


def test_conformance_is_handed_to_the_kit(run_module: Any) -> None:
    done = run_module("torch_fl_base.cli", "conformance", "--help")
    assert done.returncode == 0
    assert "--filter" in done.stdout
