"""The table of environment variables: values, refusals, the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from torch_fl_base import BackendError, _env, _env_page

PAGE = Path(__file__).parents[2] / "docs" / "env.md"

GOOD = [
    (_env.BACKENDS, "metax, reference:second", ("metax", "reference:second")),
    (_env.AUTOLOAD, "off", False),
    (_env.AUTOLOAD, "TRUE", True),
    (_env.HAL_VALIDATE, "yes", True),
    (_env.HAL_TRACE, "1", "1"),
    (_env.HAL_TRACE, "0", ""),
    (_env.HAL_TRACE, "/tmp/hal trace.txt", "/tmp/hal trace.txt"),
    (_env.LOG, "info", (("", "info"),)),
    (_env.LOG, "memory=debug,warning", (("memory", "debug"), ("", "warning"))),
    (_env.ALLOCATOR, "Direct", "direct"),
    (_env.REFERENCE_DEVICES, "64", 64),
    (_env.REFERENCE_MEMORY, "12345", 12345),
    (_env.REFERENCE_MEMORY, "3 MiB", 3 << 20),
    (_env.REFERENCE_MEMORY, "4GiB", 4 << 30),
    (_env.REFERENCE_FAIL, "memory.allocate:3,stream.create", "memory.allocate:3,stream.create"),
    (
        _env.REFERENCE_FAIL,
        "work.copy:2+=DEVICE_LOST, device.lost:1",
        "work.copy:2+=DEVICE_LOST, device.lost:1",
    ),
    (_env.REFERENCE_LATENCY, "copy:500,stream.query:20", "copy:500,stream.query:20"),
    (_env.REFERENCE_IPC, "1", True),
    (_env.REFERENCE_MEMORY_FAULT, "on", True),
]

BAD = [
    (_env.BACKENDS, "a,,b"),
    (_env.BACKENDS, "Metax"),
    (_env.BACKENDS, "reference:"),
    (_env.AUTOLOAD, "maybe"),
    (_env.HAL_VALIDATE, "2"),
    (_env.LOG, "loud"),
    (_env.LOG, "memory=loud"),
    (_env.ALLOCATOR, "fast"),
    (_env.REFERENCE_DEVICES, "-1"),
    (_env.REFERENCE_DEVICES, "65"),
    (_env.REFERENCE_DEVICES, "1.5"),
    (_env.REFERENCE_MEMORY, "0"),
    (_env.REFERENCE_MEMORY, "4 GB"),
    (_env.REFERENCE_MEMORY, "99999999999TiB"),
    (_env.REFERENCE_FAIL, "allocate"),
    (_env.REFERENCE_FAIL, "memory.allocate:x"),
    (_env.REFERENCE_LATENCY, "copy"),
    (_env.REFERENCE_LATENCY, "copy:5ms"),
    (_env.REFERENCE_MEMORY, "65TiB"),
    (_env.REFERENCE_MEMORY_FAULT, "oui"),
]


@pytest.mark.parametrize(("variable", "text", "value"), GOOD, ids=lambda v: getattr(v, "name", None))
def test_allowed_value_is_read(variable: _env.Variable[object], text: str, value: object) -> None:
    assert variable.read({variable.name: text}) == value


@pytest.mark.parametrize(("variable", "text"), BAD, ids=lambda v: getattr(v, "name", None))
def test_refused_value_is_told_with_name_value_and_what_is_allowed(
    variable: _env.Variable[object], text: str
) -> None:
    with pytest.raises(BackendError) as caught:
        variable.read({variable.name: text})
    message = str(caught.value)
    assert f"{variable.name}={text!r}" in message
    assert variable.allowed in message


@pytest.mark.parametrize("variable", _env.VARIABLES, ids=lambda v: v.name)
@pytest.mark.parametrize("environ", [{}, {"": ""}, None], ids=["unset", "other", "empty"])
def test_unset_or_empty_means_the_default(
    variable: _env.Variable[object], environ: dict[str, str] | None
) -> None:
    assert variable.read({variable.name: " "} if environ is None else environ) == variable.default


def test_every_bad_value_is_collected() -> None:
    environ = {"FLAGOS_ALLOCATOR": "fast", "FLAGOS_REFERENCE_DEVICES": "many"}
    assert len(_env.check(environ)) == 2
    with pytest.raises(BackendError, match=r"(?s)FLAGOS_ALLOCATOR.*FLAGOS_REFERENCE_DEVICES"):
        _env.runtime_settings(environ)


def test_misspelt_variable_gets_the_nearest_name() -> None:
    found = _env.unknown({"FLAGOS_BACKEND": "x", "FLAGOS_QWERTZUIOP": "x", "HOME": "x", "FLAGOS_LOG": "info"})
    assert found == {"FLAGOS_BACKEND": "FLAGOS_BACKENDS", "FLAGOS_QWERTZUIOP": ""}


def test_runtime_gets_text_only() -> None:
    settings = _env.runtime_settings(
        {"FLAGOS_HAL_VALIDATE": "yes", "FLAGOS_HAL_TRACE": "off", "FLAGOS_ALLOCATOR": "DIRECT"}
    )
    assert settings["FLAGOS_HAL_VALIDATE"] == "1"
    assert settings["FLAGOS_HAL_TRACE"] == ""
    assert settings["FLAGOS_ALLOCATOR"] == "direct"
    assert all(isinstance(value, str) for value in settings.values())


def test_no_module_of_core_reads_a_variable_that_is_not_declared() -> None:
    sources = Path(_env.__file__).parents[1]
    declared = {variable.name for variable in _env.VARIABLES}
    for file in [*sources.rglob("torch_fl/**/*.py"), *sources.rglob("torch_fl_base/*.py")]:
        for name in re.findall(
            r"environ(?:\.get\(|\[)\s*[\"'](FLAGOS_\w+)", file.read_text(encoding="utf-8")
        ):
            assert name in declared, f"{file.name} reads {name}"


def test_page_is_that_of_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == _env_page.page()


def test_check_of_the_page_finds_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "env.md"
    assert _env_page.main([str(page)]) == 0
    assert _env_page.main([str(page), "--check"]) == 0
    page.write_text(page.read_text(encoding="utf-8") + "x", encoding="utf-8")
    assert _env_page.main([str(page), "--check"]) == 1
    assert "nox -s gen" in capsys.readouterr().err
