"""The command `torch-fl routes`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.python.test_routes_fake import FakeRoutes, import_part, install
from torch_fl_base import BackendSpec, discovery
from torch_fl_base.discovery import Record, State
from torch_fl_base.routes.store import store

pytest.importorskip("typer")
from typer.testing import CliRunner, Result

from torch_fl_base import cli, cli_routes

GOOD = 'schema = 1\n[ops.mm]\nsource = "cpu"\nreason = "wrong for float64"\n'
Command = Callable[..., Result]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRoutes:
    """Backends alpha and beta, of which alpha has boxed kernels."""
    routes: FakeRoutes = install(monkeypatch).routes
    part = import_part(monkeypatch, "torch_fl.routes")
    monkeypatch.setattr(cli_routes, "_routes", lambda: part)
    return routes


@pytest.fixture
def command(fake: FakeRoutes) -> Command:
    """A function that runs `torch-fl routes` with arguments."""

    def command(*arguments: object) -> Result:
        return CliRunner().invoke(cli.app, ["routes", *map(str, arguments)], env={"COLUMNS": "300"})

    return command


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    return path


def test_commands_are_listed(command: Command) -> None:
    done = command("--help")
    assert done.exit_code == 0
    for name in ("list", "explain", "lint", "set", "diff"):
        assert name in done.output
        assert command(name, "--help").exit_code == 0


# --- lint ---------------------------------------------------------------------------------------------------


def test_lint_of_good_tables(command: Command, table: Path) -> None:
    done = command("lint", table, table)
    assert done.exit_code == 0, done.output
    assert done.output == f"{table}: no faults; operators named: 1\n" * 2


def test_lint_prints_every_fault_of_every_file(command: Command, table: Path, tmp_path: Path) -> None:
    bad, worse = tmp_path / "bad.toml", tmp_path / "worse.toml"
    bad.write_text('schema = 1\n[ops.mm]\nsource = "cup"\n')
    worse.write_text("schema = \n")
    done = command("lint", bad, table, worse, tmp_path / "missing.toml")
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert lines[0].startswith(f"{bad}:2: ops.mm: has no reason")
    assert lines[1].startswith(f"{bad}:3: ops.mm.source: unknown source 'cup'. Did you mean 'cpu'?")
    assert lines[2] == f"{table}: no faults; operators named: 1"
    assert lines[3].startswith(f"{worse}:1: is no valid TOML")
    assert lines[4] == f"{tmp_path / 'missing.toml'}: cannot be read: No such file or directory"


def test_lint_notes_what_it_could_not_check(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.toml"
    path.write_text('schema = 1\n[ops."acme_ops::nms"]\nsource = "cpu"\nreason = "r"\n')
    done = command("lint", path)
    assert done.exit_code == 0
    assert f"{path}:2: note: acme_ops::nms: its library is not imported" in done.output
    (tmp_path / "acme_operators.py").write_text(
        "import torch\n"
        "library = torch.library.Library('acme_ops', 'DEF')\n"
        "library.define('nms(Tensor a) -> Tensor')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert "note:" not in command("lint", path, "--import", "acme_operators").output
    del sys.modules.pop("acme_operators").library
    done = command("lint", path, "-i", "no_such_module")
    assert done.exit_code == 1
    assert "No module named 'no_such_module'" in done.output


def test_lint_opens_nothing(command: Command, fake: FakeRoutes, table: Path) -> None:
    command("lint", table)
    assert fake.log == []


# --- list and explain ---------------------------------------------------------------------------------------


def test_list_shows_what_tables_name(command: Command, table: Path) -> None:
    assert "0 of" in command("list").output
    store().load(table)
    done = command("list")
    assert done.exit_code == 0
    assert "wrong for float64" in done.output
    assert f"user file {table}:2, entry 'mm'" in done.output
    assert "2 of" in done.output
    data = json.loads(command("list", "--json", "-b", "beta").output)
    assert [(row["op"], row["backend"], row["source"]) for row in data] == [("aten::mm", "beta", "cpu")]
    assert data[0]["decided_by"]["line"] == 2


@pytest.mark.parametrize(
    ("arguments", "ops"),
    [
        (["-o", "mm"], {"aten::mm", "aten::mm.out"}),
        (["-o", "aten::mm.out"], {"aten::mm.out"}),
        (["-o", "mean.*"], {"aten::mean.dim", "aten::mean.out"}),
        (["-o", "*mm", "-s", "cpu"], {"aten::bmm"}),
        (["-s", "gems"], set()),
    ],
)
def test_list_chooses(arguments: list[str], ops: set[str], command: Command) -> None:
    done = command("list", "-b", "alpha", "--json", *arguments)
    assert {row["op"] for row in json.loads(done.output)} == ops


def test_list_all_has_every_operator(command: Command, fake: FakeRoutes) -> None:
    assert len(json.loads(command("list", "--all", "--json", "-b", "alpha").output)) == len(fake.operators())


def test_list_refuses_unknown_names(command: Command) -> None:
    done = command("list", "-s", "gms")
    assert done.exit_code == 2
    assert "Did you mean 'gems'" in done.output
    done = command("list", "-b", "alpa")
    assert done.exit_code == 1
    assert "Did you mean 'alpha'?" in done.output


def test_explain_answers_for_every_backend(command: Command, table: Path) -> None:
    done = command("explain", "bmm")
    assert done.exit_code == 0
    assert "aten::bmm on alpha: cpu" in done.output
    assert "2. boxed: absent" in done.output
    assert "aten::bmm on beta: cpu" in done.output
    data = json.loads(command("explain", "mm", "-b", "alpha", "--json").output)
    assert [answer["source"] for answer in data] == ["boxed"]


def test_explain_of_an_unknown_operator(command: Command) -> None:
    done = command("explain", "sofmax")
    assert done.exit_code == 1
    assert "unknown operator 'sofmax'. Did you mean" in done.output


# --- set ----------------------------------------------------------------------------------------------------


def test_set_makes_a_table(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "new" / "mine.toml"
    done = command(
        "set", "mm=cpu", "mean.dim=boxed,cpu", "-f", path, "--reason", 'is "wrong"', "-u", "issue 3"
    )
    assert done.exit_code == 0, done.output
    assert done.output.endswith(f"FLAGOS_ROUTES_FILE={path} uses it.\n")
    rest = 'reason = "is \\"wrong\\""\nuntil = "issue 3"\n'
    assert path.read_text() == (
        f'schema = 1\nextends = "base"\n\n[ops."mm"]\nsource = "cpu"\n{rest}\n'
        f'[ops."mean.dim"]\ncandidates = ["boxed", "cpu"]\n{rest}'
    )
    assert command("lint", path).exit_code == 0


def test_set_leaves_the_rest_of_a_table(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_bytes(
        b'# mine\r\nschema = 1\r\n[ops."aten::mm"] # old\r\nsource = "cpu"\r\n'
        b'reason = """\r\n[ops.no]\r\n"""\r\n\r\n'
        b'# of bmm\r\n[ops.bmm]\r\nsource = "cpu"\r\nreason = "r"'
    )
    path.chmod(0o640)
    assert command("set", "mm=boxed", "-f", path, "-r", "new").exit_code == 0
    assert path.read_bytes() == (
        b'# mine\r\nschema = 1\r\n[ops."mm"]\nsource = "boxed"\nreason = "new"\n\r\n'
        b'# of bmm\r\n[ops.bmm]\r\nsource = "cpu"\r\nreason = "r"\n'
    )
    assert path.stat().st_mode & 0o777 == 0o640
    assert [file.name for file in tmp_path.iterdir()] == ["t.toml"]


def test_set_replaces_an_entry_with_tables_of_its_own(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(
        'schema = 1\n[ops.mm]\nreason = "r"\n[[ops.mm.candidates]]\nsource = "gems"\n'
        '[ops.bmm]\nsource = "cpu"\nreason = "r"\n[[ops.mm.candidates]]\nsource = "cpu"\n'
    )
    assert command("set", "mm=cpu", "-f", path, "-r", "new").exit_code == 0
    assert path.read_text() == (
        'schema = 1\n[ops."mm"]\nsource = "cpu"\nreason = "new"\n[ops.bmm]\nsource = "cpu"\nreason = "r"\n'
    )


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["mm=cpu"], 2, "--reason"),
        (["mm=cpu", "-r", " "], 2, "every entry of a route table has a reason"),
        (["mm=cup", "-r", "r"], 1, "routes set: mm: unknown source 'cup'. Did you mean 'cpu'?"),
        (["mmm=cpu", "-r", "r"], 1, "ops.mmm: unknown operator 'mmm'"),
        (["mm", "-r", "r"], 1, "'mm' is not <operator>=<source>"),
        (["mm=cpu,boxed", "-r", "r"], 1, "'boxed' is never reached"),
    ],
)
def test_set_refuses_and_writes_nothing(
    arguments: list[str], status: int, words: str, command: Command, table: Path
) -> None:
    done = command("set", "-f", table, *arguments)
    assert done.exit_code == status
    assert words in done.output.replace('"', "")
    assert table.read_text() == GOOD


@pytest.mark.parametrize(
    "text",
    [
        "schema = 1\n[ops]\nmm = {source = 'cpu', reason = 'r'}\n",
        "schema = 1\nops.mm.source = 'cpu'\nops.mm.reason = 'r'\n",
    ],
)
def test_set_leaves_an_inline_entry_to_its_owner(text: str, command: Command, table: Path) -> None:
    table.write_text(text)
    done = command("set", "mm=boxed", "-f", table, "-r", "r")
    assert done.exit_code == 1
    assert 'is not a table [ops."mm"] of its own; change it by hand' in done.output
    assert table.read_text() == text


def test_set_refuses_a_table_that_has_faults(command: Command, table: Path) -> None:
    table.write_text("schema = 3\n")
    done = command("set", "mm=cpu", "-f", table, "-r", "r")
    assert done.exit_code == 1
    assert "mine.toml:1: schema: 3 is not known" in done.output


# --- diff ---------------------------------------------------------------------------------------------------


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A backend alpha with a table, and beta without one."""
    (tmp_path / "alpha.toml").write_text(
        'schema = 1\ndefault = ["boxed"]\n[ops.mm]\nsource = "cpu"\nreason = "of alpha"\n'
        '[ops."_foreach_*"]\nsource = "cpu"\nreason = "slow"\n'
    )
    specs = [
        BackendSpec("alpha", Path("/lib.so"), routes=tmp_path / "alpha.toml"),
        BackendSpec("beta", Path("/b.so")),
    ]
    records = [Record(spec.name, State.NO_DEVICE, spec=spec) for spec in specs]
    monkeypatch.setattr(discovery, "discover", lambda environ: records)


def test_diff_of_a_backend_and_a_table(command: Command, installed: None, table: Path) -> None:
    done = command("diff", "alpha", table)
    assert done.exit_code == 1
    assert "cpu (slow)" in done.output
    assert "_foreach_* (" in done.output
    data = {row["op"]: row for row in json.loads(command("diff", "alpha", table, "--json").output)}
    assert "aten::mm" not in data  # the same candidates; only the reasons differ
    assert data["default"]["first"]["candidates"] == ["boxed"]
    assert data["default"]["second"]["candidates"] == ["native", "boxed", "cpu"]
    assert data["aten::_foreach_add.List"]["first"] == {"candidates": ["cpu"], "reason": "slow"}


def test_diff_of_equal_tables(command: Command, installed: None) -> None:
    done = command("diff", "base", "beta")
    assert (done.exit_code, done.output) == (0, "no difference\n")


def test_diff_refuses_an_unknown_name(command: Command, installed: None) -> None:
    done = command("diff", "base", "alpa")
    assert done.exit_code == 1
    assert (
        "'alpa' is neither a file nor an installed backend. Did you mean 'alpha'? Backends: alpha, beta."
        in done.output
    )


# --- completion ---------------------------------------------------------------------------------------------


def test_completion_of_operators_and_sources() -> None:
    assert {"mm", "mm.out"} <= set(cli_routes._complete_operator("mm"))
    assert [name for name, _ in cli_routes._complete_source("g")] == ["gems", "gems_cpp"]
    assert "mm.out=" in cli_routes._complete_assignment("mm.o")
    assert cli_routes._complete_assignment("mm=boxed,c") == ["mm=boxed,cpu"]


def test_lint_runs_as_a_program(run_module: Any, table: Path) -> None:
    done = run_module("torch_fl_base.cli", "routes", "lint", str(table))
    assert done.returncode == 0, done.stdout + done.stderr
    table.write_text(GOOD.replace("mm", "mmm"))
    done = run_module("torch_fl_base.cli", "routes", "lint", str(table))
    assert done.returncode == 1
    assert "mine.toml:2: ops.mmm: unknown operator 'mmm'" in done.stdout
