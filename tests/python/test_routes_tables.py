"""The grammar of route tables: what is accepted, and the text and line of every fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.python.routes_support import CATALOGUE, Read, faults_of
from torch_fl_base.routes import RouteError
from torch_fl_base.routes.files import BASE, read_table
from torch_fl_base.routes.model import Candidate, LayerName
from torch_fl_base.routes.operators import Catalogue
from torch_fl_base.spec import BackendError


def test_base_table_is_that_of_the_design() -> None:
    table = read_table(BASE, CATALOGUE, LayerName.BASE_TABLE)
    assert table.default is not None
    assert table.default.sources == ("native", "boxed", "cpu")
    assert not table.routes


def test_full_entry_is_read(read: Read) -> None:
    table = read("""
        extends = "base"
        default = ["native", {source = "boxed", on_error = "next"}, "cpu"]
        [evidence]
        torch = "2.13"
        board = "H200"
        [ops."mean.dim"]
        reason = "because"
        until = "issue 12"
        [[ops."mean.dim".candidates]]
        source = "boxed"
        [[ops."mean.dim".candidates]]
        source = "gems"
        when.dtype = "float16"
        when.max_rank = 4
        when.min_numel = 4096
        when.contiguous = true
        when.layout = "strided"
        when.last_dim = {multiple_of = 8}
        when.zero_size = false
        when.devices = 0
        when.args = {keepdim = false, dim = {max_len = 1}}
        on_error = "next"
        [[ops."mean.dim".candidates]]
        source = "cpu"
        """)
    route = table.routes["aten::mean.dim"]
    assert route.sources == ("boxed", "gems", "cpu")
    assert route.candidates[1].on_error == "next"
    assert dict(route.candidates[1].when) == {
        "dtype": ["float16"],
        "max_rank": 4,
        "min_numel": 4096,
        "contiguous": True,
        "layout": "strided",
        "last_dim": {"multiple_of": 8},
        "zero_size": False,
        "devices": [0],
        "args": {"keepdim": False, "dim": {"max_len": 1}},
    }
    origin = route.origin
    assert (origin.layer, origin.line, origin.entry) == (LayerName.USER_FILE, 8, "mean.dim")
    assert (origin.reason, origin.until) == ("because", "issue 12")
    assert table.default is not None
    assert table.default.candidates[1] == Candidate("boxed", on_error="next")
    assert table.evidence == {"torch": "2.13", "board": "H200"}


@pytest.mark.parametrize("name", ["mm", '"aten::mm"', '"mm.default"', '"aten::mm.default"'])
def test_spellings_of_one_operator(name: str, read: Read) -> None:
    table = read(f'[ops.{name}]\nsource = "cpu"\nreason = "r"')
    assert list(table.routes) == ["aten::mm"]


def test_other_namespaces_are_written_in_full(read: Read) -> None:
    assert list(read('[ops."prims::add"]\nsource = "cpu"\nreason = "r"').routes) == ["prims::add"]


def test_pattern_stands_for_the_operators_that_can_be_routed(read: Read) -> None:
    table = read(
        '[ops."*softmax*"]\nsource = "cpu"\nreason = "r"\n[ops."_foreach_*"]\nsource = "boxed"\nreason = "s"'
    )
    assert sorted(table.routes) == ["aten::_foreach_add.List", "aten::_foreach_mul.List", "aten::_softmax"]
    assert table.routes["aten::_softmax"].origin.entry == "*softmax*"


def test_name_beats_pattern_and_later_pattern_beats_earlier(read: Read) -> None:
    table = read("""
        [ops."_foreach_add.List"]
        source = "gems"
        reason = "r"
        [ops."_foreach_*"]
        source = "boxed"
        reason = "r"
        [ops."_foreach_m*"]
        source = "cpu"
        reason = "r"
        """)
    assert table.routes["aten::_foreach_add.List"].sources == ("gems",)
    assert table.routes["aten::_foreach_mul.List"].sources == ("cpu",)


def test_all_faults_are_told_at_once_in_the_order_of_lines(read: Read) -> None:
    with pytest.raises(RouteError) as caught:
        read('default = ["nativ"]\n[ops.mmm]\nsource = "cup"\n')
    assert [fault.line for fault in caught.value.faults] == [2, 3, 3, 4]
    assert str(caught.value).startswith("flagos: 4 faults in routes\n  /")
    assert isinstance(caught.value, BackendError)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "t.toml: has no schema; write schema = 1 at its top"),
        ("schema = 2\nnonsense = 3", "t.toml:1: schema: 2 is not known; this torch-fl-core reads schema 1"),
        ("\nschema = '1'", "t.toml:2: schema: expected an integer, not a string"),
        ("schema = 1\nops = {", "t.toml:2: is no valid TOML: "),
        ("schema = 1\n[ops\n", "t.toml:2: is no valid TOML: "),
    ],
)
def test_fault_of_a_whole_file(text: str, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RouteError) as caught:
        read_table(path, CATALOGUE, LayerName.USER_FILE)
    (told,) = caught.value.faults
    assert str(told).startswith(f"{tmp_path}/{fault}")
    assert str(caught.value) == f"flagos: {told}"


def test_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(RouteError, match=r"t\.toml: cannot be read: No such file"):
        read_table(tmp_path / "t.toml", CATALOGUE, LayerName.USER_FILE)
    (tmp_path / "t.toml").write_bytes(b"\xff")
    with pytest.raises(RouteError, match=r"t\.toml: is not UTF-8"):
        read_table(tmp_path / "t.toml", CATALOGUE, LayerName.USER_FILE)


def test_extended_table_lies_under_the_own_one(tmp_path: Path, read: Read) -> None:
    (tmp_path / "under").mkdir()
    other = tmp_path / "under" / "o.toml"
    other.write_text(
        'schema = 1\ndefault = ["gems"]\n[ops.mm]\nsource = "gems"\nreason = "o"\n'
        '[ops.mean]\nsource = "gems"\nreason = "o"\n'
    )
    table = read('extends = "under/o.toml"\n[ops.mm]\nsource = "cpu"\nreason = "own"')
    assert table.routes["aten::mm"].sources == ("cpu",)
    assert table.routes["aten::mean"].origin.file == str(other)
    assert table.default is not None
    assert table.default.sources == ("gems",)
    assert [file.name for file in table.files] == ["t.toml", "o.toml"]


def test_faults_of_an_extended_table_have_its_own_lines(tmp_path: Path, read: Read) -> None:
    (tmp_path / "o.toml").write_text('schema = 1\n\n[ops.mm]\nsource = "cup"\nreason = "r"\n')
    faults = faults_of(read, 'extends = "o.toml"\ndefault = [1]')
    assert [fault.partition(": ")[0] for fault in faults] == ["t.toml:3", "o.toml:4"]


@pytest.mark.parametrize(
    ("extends", "fault"),
    [
        ('"t.toml"', "extends: is cyclic: t.toml -> t.toml"),
        ('"o.toml"', "extends: is cyclic: t.toml -> o.toml -> t.toml"),
        ('"missing.toml"', 'missing.toml; "base" means core\'s own table'),
        ("1", 'extends: expected "base" or a path, not an integer'),
    ],
)
def test_bad_extends(extends: str, fault: str, tmp_path: Path, read: Read) -> None:
    (tmp_path / "o.toml").write_text('schema = 1\nextends = "t.toml"\n')
    (told,) = faults_of(read, f"extends = {extends}")
    assert fault in told


def test_operator_of_a_library_that_is_not_imported_is_noted(read: Read) -> None:
    table = read('[ops."torchvision::nms"]\nsource = "cpu"\nreason = "r"')
    assert list(table.routes) == ["torchvision::nms"]
    (note,) = table.notes
    assert (note.line, note.message) == (
        2,
        "torchvision::nms: its library is not imported: the name is not checked",
    )


def test_operator_registered_later_is_found() -> None:
    names = ["aten::mm"]
    catalogue = Catalogue(lambda: names)
    assert catalogue.expand("mm") == ["aten::mm"]
    names.append("aten::bmm")
    assert catalogue.expand("bmm") == ["aten::bmm"]


def test_table_of_another_torch_may_name_what_this_one_lacks(read: Read) -> None:
    text = '[evidence]\ntorch = "{}"\n[ops.new_in_torch]\nsource = "cpu"\nreason = "r"\n'
    table = read(text.format("2.15.0+cu130"))
    assert not table.routes
    assert table.notes[0].line == 4
    assert "The table was made for torch 2.15" in table.notes[0].message
    (fault,) = faults_of(read, text.format("2.13.1"))
    assert "unknown operator 'new_in_torch'" in fault


def test_tables_of_this_repository_have_no_faults() -> None:
    from torch_fl_base.routes.operators import of_torch

    packages = Path(__file__).parents[2] / "packages"
    catalogue = of_torch()
    tables = sorted(packages.glob("torch-fl-*/src/*/routes.toml"))
    assert tables
    for table in tables:
        read_table(table, catalogue, LayerName.VENDOR_TABLE)
