"""The conformance kit as a tool: reports, exemptions, crashes, command line, a vendor's own test module."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import torch_fl_base
from torch_fl_base._hal_header import header, include_dir
from torch_fl_base.reference import backend
from torch_fl_base.spec import BackendError
from torch_fl_base.testing.hal import Exemption, Quirks, main, run
from torch_fl_base.testing.kit import requirements, subjects
from torch_fl_base.testing.kit.catalogue import coverage, every_test
from torch_fl_base.testing.kit.checks import marks, requirement

SOURCE = Path(__file__).with_name("minimal_hal.c")
COMPILER = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(
    COMPILER is None, reason="no C compiler: neither $CC nor cc nor gcc is there"
)

QUIRKS = """\
from torch_fl_base.testing.quirks import Exemption, Quirks

QUIRKS = Quirks(library="libminimal.so", name="minimal"{more})
"""


def build(folder: Path, *defines: str) -> Path:
    library = folder / "libminimal.so"
    command = [
        str(COMPILER),
        "-std=gnu99",
        "-O0",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        "-pthread",
        "-w",
    ]
    command += [f"-D{define}" for define in defines]
    subprocess.run([*command, "-I", str(include_dir()), str(SOURCE), "-o", str(library)], check=True)
    return library


def quirks_file(folder: Path, more: str = "") -> Path:
    path = folder / "quirks.py"
    path.write_text(QUIRKS.format(more=more))
    return path


# ------------------------------------------------------------------------------------------ completeness ----


def test_every_requirement_of_the_header_has_a_test() -> None:
    assert [identifier for identifier, names in coverage().items() if not names] == []


def test_every_test_names_a_requirement() -> None:
    nameless = [function.__name__ for function in every_test() if not requirement(function.__name__)]
    assert nameless == []


def test_every_function_of_the_header_can_be_called_by_the_general_tests() -> None:
    assert sorted(subjects._MAKERS) == sorted(subjects.FUNCTIONS)


def test_releasing_functions_have_inputs_only() -> None:
    for qualified in subjects.RELEASING:
        assert not any(parameter.is_output for parameter in header().function(qualified).parameters), (
            qualified
        )


def test_isolated_cases_are_plain_data() -> None:
    for function in every_test():
        mark = marks(function)
        if mark.isolated:
            assert json.loads(json.dumps(mark.cases)) == [list(case) for case in mark.cases], (
                function.__name__
            )


def test_table_of_requirements_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "hal" / "requirements.md"
    assert requirements.main(["--check", str(page)]) == 0


def test_table_of_requirements_notices_changes(tmp_path: Path) -> None:
    page = tmp_path / "deep" / "requirements.md"
    assert requirements.main(["--check", str(page)]) == 1
    assert requirements.main([str(page)]) == 0
    assert requirements.main(["--check", str(page)]) == 0
    page.write_text(page.read_text().replace("HAL-STR-07", "HAL-STR-77"))
    assert requirements.main(["--check", str(page)]) == 1


# ----------------------------------------------------------------------------------------------- reports ----


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["SYNCHRONOUS", "ASYNC", "MANAGED"])
def test_minimal_library_conforms(tmp_path: Path, kind: str) -> None:
    report = run(build(tmp_path, kind))
    assert report.ok, report.to_text()
    assert set(report.counts()) == {"passed", "skipped"}
    reasons = {result.message for result in report.results if result.outcome == "skipped"}
    missing = ("the library has no ", "capability ", "quirks.", "needs ", "a stream cannot be held up")
    assert [reason for reason in reasons if not reason.startswith(missing)] == []
    assert report.description["groups"] == (["host"] if kind == "MANAGED" else [])
    assert len(report.description["devices"]) == 2


@needs_compiler
@pytest.mark.slow
def test_minimal_library_conforms_through_the_validating_layer(tmp_path: Path) -> None:
    library = Path(str(torch_fl_base.__file__)).with_name("lib") / "libflagos_hal_layers.so"
    if not library.is_file():
        pytest.skip(f"{library} is not built")
    report = run(build(tmp_path, "ASYNC"), layers=library)
    assert report.ok, report.to_text()
    assert report.counts()["passed"] > 250


@needs_compiler
def test_report_says_what_was_tested_where_and_when(tmp_path: Path) -> None:
    report = run(build(tmp_path), pattern="dev_01,mem_05", command="the command")
    data = json.loads(report.to_json())
    assert data["ok"] is True
    assert data["schema"] == 1
    assert data["command"] == "the command"
    assert data["description"]["vendor"] == "minimal"
    assert all([data["machine"]["processor"], data["machine"]["python"], data["date"]])
    assert {result["requirement"] for result in data["results"]} == {"HAL-DEV-01", "HAL-MEM-05"}
    text = report.to_text()
    for part in ("minimal 1.0", "Minimal 0", "HAL-MEM-05", "the command", "conforms"):
        assert part in text


@needs_compiler
def test_failures_are_reported_with_their_reason(tmp_path: Path) -> None:
    report = run(build(tmp_path, "BREAK_ANY_VALUE"), pattern="HAL-MEM-05")
    failed = [result for result in report.results if result.outcome == "failed"]
    assert [result.test for result in failed] == ["test_mem_05_wrong_arguments_are_refused"]
    assert "memory.fill" in failed[0].message
    assert "expected 'INVALID_ARGUMENT'" in failed[0].message
    assert not report.ok
    assert "does not conform" in report.to_text()


@needs_compiler
def test_run_survives_a_library_that_crashes(tmp_path: Path) -> None:
    report = run(
        build(tmp_path, "CRASHES"), pattern="HAL-DEV-01,gen_06_current*synchronize*,gen_09,HAL-DEV-03"
    )
    outcomes = {result.test: result for result in report.results}
    crashed = outcomes["test_gen_06_current_device_is_left_alone[device.synchronize]"]
    assert crashed.outcome == "crashed"
    assert "SIGSEGV" in crashed.message
    assert outcomes["test_dev_01_count_is_constant"].outcome == "passed"
    assert outcomes["test_dev_03_current_device_belongs_to_the_thread"].outcome == "passed"
    assert not report.ok


@needs_compiler
def test_run_survives_a_library_that_hangs(tmp_path: Path) -> None:
    pattern = "HAL-DEV-01,gen_06_current*synchronize*,HAL-DEV-03"
    report = run(build(tmp_path, "HANGS"), pattern=pattern, test_limit_s=4)
    outcomes = {result.test: result for result in report.results}
    stopped = outcomes["test_gen_06_current_device_is_left_alone[device.synchronize]"]
    assert stopped.outcome == "crashed"
    assert "did not end within 4 s" in stopped.message
    assert outcomes["test_dev_03_current_device_belongs_to_the_thread"].outcome == "passed"


@needs_compiler
def test_missing_runtime_is_not_conformance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library = build(tmp_path, "NO_RUNTIME")
    report = run(library)
    assert not report.ok
    assert "tried /opt/minimal/lib" in report.to_text()
    assert main([str(library)]) == 2
    assert "unavailable" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "pattern"),
    [
        ({"FLAGOS_REFERENCE_IPC": "1"}, "HAL-IPC,HAL-EVT-01,gen_08,gen_12"),
        (
            {"FLAGOS_REFERENCE_MEMORY_FAULT": "1", "FLAGOS_REFERENCE_DEVICES": "3"},
            "HAL-MEM,HAL-HST,HAL-PER,HAL-ASY",
        ),
        ({"FLAGOS_REFERENCE_LATENCY": "copy:2000,fill:1000,event:300"}, "HAL-STR,HAL-EVT,HAL-GRF"),
        ({"FLAGOS_REFERENCE_DEVICES": "1"}, "HAL-DEV,HAL-STR,HAL-EVT,HAL-PER,gen_05,gen_06"),
    ],
    ids=["ipc", "memory fault", "latency", "one device"],
)
def test_reference_conforms_in_its_other_modes(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], pattern: str
) -> None:
    library = Path(os.environ.get("TORCH_FL_TEST_REFERENCE") or backend().library)
    if not library.is_file():
        pytest.skip(f"{library} is not built")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    report = run(library, pattern=pattern)
    assert report.ok, report.to_text()
    if "FLAGOS_REFERENCE_IPC" in variables:
        assert "ipc" in report.description["groups"]


# -------------------------------------------------------------------------------------------- exemptions ----


@needs_compiler
def test_exemptions_cover_what_they_name(tmp_path: Path) -> None:
    library = build(tmp_path, "BREAK_ANY_VALUE")
    more = (
        ', expected_failures=(Exemption("mem_05_wrong*", "takes any value", "#7"),)'
        ', unsupported=(Exemption("HAL-DEV-04", "no properties", ""),)'
    )
    report = run(library, quirks_file(tmp_path, more), "HAL-MEM-05,HAL-DEV-04,kit")
    outcomes = {result.test: result.outcome for result in report.results}
    assert outcomes["test_mem_05_wrong_arguments_are_refused"] == "expected failure"
    assert outcomes["test_dev_04_properties_are_told_or_unknown"] == "skipped"
    assert outcomes["test_kit_every_exemption_covers_a_test"] == "passed"
    assert report.ok
    assert "takes any value (#7)" in report.to_text()
    assert "unsupported: no properties" in report.to_text()


@needs_compiler
def test_surprise_pass_fails(tmp_path: Path) -> None:
    library = build(tmp_path)
    quirks_file(tmp_path, ', expected_failures=(Exemption("dev_01_*", "never worked", "#8"),)')
    report = run(library, pattern="dev_01")
    assert [(result.outcome, "take it off" in result.message) for result in report.results] == [
        ("failed", True)
    ]
    assert not report.ok


@needs_compiler
def test_exemption_that_covers_nothing_fails(tmp_path: Path) -> None:
    library = build(tmp_path)
    quirks_file(tmp_path, ', unsupported=(Exemption("mem_55_*", "a slip of the pen", ""),)')
    report = run(library, pattern="kit_every")
    assert [result.outcome for result in report.results] == ["failed"]
    assert "mem_55_*" in report.results[0].message


@needs_compiler
def test_filter_takes_beginnings_of_requirement_ids(tmp_path: Path) -> None:
    report = run(build(tmp_path), pattern="HAL-DEV-0 GEN-10")
    chosen = {result.requirement for result in report.results}
    assert {f"HAL-DEV-0{number}" for number in range(1, 8)} | {"GEN-10"} <= chosen
    assert not any(identifier.startswith("HAL-MEM") for identifier in chosen)


def test_exemptions_need_reason_and_issue() -> None:
    with pytest.raises(BackendError, match="gives no reason"):
        Quirks(unsupported=(Exemption("x", "", ""),))
    with pytest.raises(BackendError, match="names no issue"):
        Quirks(expected_failures=(Exemption("x", "because", ""),))


def test_pattern_with_a_case_names_that_case_only() -> None:
    one = Exemption("mem_05_fills_exactly*[7]", "because", "#1")
    assert one.covers("test_mem_05_fills_exactly_the_bytes_asked_for[7]", ("HAL-MEM-05",))
    assert not one.covers("test_mem_05_fills_exactly_the_bytes_asked_for[63]", ("HAL-MEM-05",))


# ------------------------------------------------------------------------------------------ command line ----


@needs_compiler
def test_command_line_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library, file = build(tmp_path), tmp_path / "report.json"
    assert main([str(library), "--filter", "HAL-DEV-01", "--json", str(file)]) == 0
    assert "conforms" in capsys.readouterr().out
    assert json.loads(file.read_text())["command"].endswith(f"--filter HAL-DEV-01 --json {file}")
    assert main([str(library), "--filter", "HAL-DEV-01", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


@needs_compiler
def test_command_line_tells_failure_from_nothing_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = build(tmp_path, "BREAK_ANY_VALUE")
    assert main([str(library), "--filter", "HAL-MEM-05"]) == 1
    assert main([str(library), "--filter", "no_such_test"]) == 2
    assert "nothing tested" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nosuch", "no installed backend is called 'nosuch'"),
        ("/nowhere/libx.so", "there is no HAL library at '/nowhere/libx.so'"),
        (__file__ + ".so", "there is no HAL library"),
    ],
)
def test_command_line_says_why_there_is_nothing_to_test(
    name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name]) == 2
    assert text in capsys.readouterr().err


def test_command_line_lists_requirements(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert "HAL-STR-07 \n" not in capsys.readouterr().out


# --------------------------------------------------------------------------------------------- in pytest ----


@needs_compiler
def test_vendor_s_module_is_a_suite(tmp_path: Path) -> None:
    build(tmp_path)
    quirks_file(tmp_path, ', unsupported=(Exemption("HAL-DEV-04", "no properties", ""),)')
    (tmp_path / "test_own_hal.py").write_text(
        "from torch_fl_base.testing.hal import *  # noqa: F403\n\n\ndef test_of_my_own():\n    assert True\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "test_own_hal.py",
        "-p",
        "no:cacheprovider",
        "-rs",
        "-v",
        "-W",
        "error",
    ]
    command += [
        "--strict-markers",
        "--import-mode=importlib",
        "-k",
        "of_my_own or dev_0 or mem_07_other or kit_every",
        "-c",
        os.devnull,
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    assert "test_of_my_own PASSED" in done.stdout
    assert "test_mem_07_other_addresses_are_unknown[null] PASSED" in done.stdout
    assert "unsupported: no properties" in done.stdout


def test_vendor_s_module_without_quirks_says_so(tmp_path: Path) -> None:
    (tmp_path / "test_own_hal.py").write_text("from torch_fl_base.testing.hal import *  # noqa: F403\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "test_own_hal.py",
        "-p",
        "no:cacheprovider",
        "-k",
        "dev_01",
        "-c",
        os.devnull,
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "no quirks file" in done.stdout
