"""Discovery: one record per candidate, the order of FLAGOS_BACKENDS, and what is told of names that do not
fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from torch_fl_base import BackendError, BackendSpec, _entries, discovery, reference
from torch_fl_base.discovery import Record, State


@dataclass(frozen=True)
class FakeEntry:
    """An installed entry point."""

    name: str
    result: Any
    value: str = ""

    def load(self) -> Callable[[], Any]:
        def function() -> Any:
            if isinstance(self.result, BaseException):
                raise self.result
            return self.result

        return function


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file where every backend's library is, the reference backend's too."""
    file = tmp_path / "libfake.so"
    file.touch()
    monkeypatch.setattr(reference, "HERE", tmp_path)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libflagos_hal_reference.so").touch()
    return file


def spec(name: str, library: Path, **values: Any) -> FakeEntry:
    return FakeEntry(name, BackendSpec(name=name, library=library, **values), f"torch_fl_{name}:backend")


def states(records: list[Record]) -> dict[str, State]:
    return {record.name: record.state for record in records}


def test_installed_backends_come_before_the_reference(library: Path) -> None:
    records = discovery.discover({}, [spec("zeta", library), spec("alpha", library)])
    assert [record.name for record in records] == ["zeta", "alpha", "reference"]
    assert {record.state for record in records} == {State.WAITING}
    assert [record.emulated for record in records] == [False, False, True]


def test_named_backends_alone_are_used_in_the_order_named(library: Path) -> None:
    environ = {"FLAGOS_BACKENDS": "reference,beta,reference:second"}
    records = discovery.discover(environ, [spec("alpha", library), spec("beta", library)])
    assert [record.name for record in records] == ["reference", "beta", "reference:second", "alpha"]
    assert [record.private_copy for record in records] == [False, False, True, False]
    assert not any(record.emulated for record in records[:3])
    assert records[3].state is State.DISABLED
    assert "FLAGOS_BACKENDS=reference,beta,reference:second" in records[3].reason


def test_alias_names_the_backend(library: Path) -> None:
    records = discovery.discover({"FLAGOS_BACKENDS": "maca"}, [spec("metax", library, aliases=("maca",))])
    assert records[0].name == "metax"
    assert states(records) == {"metax": State.WAITING, "reference": State.DISABLED}


def test_unknown_names_are_told_together_with_near_ones(library: Path) -> None:
    with pytest.raises(BackendError) as caught:
        discovery.discover({"FLAGOS_BACKENDS": "metx,reference,qqq"}, [spec("metax", library)])
    message = str(caught.value)
    assert "no backend 'metx' is installed. Did you mean 'metax'?" in message
    assert "no backend 'qqq' is installed." in message
    assert "Installed: metax, reference" in message


def test_name_given_twice_is_refused(library: Path) -> None:
    with pytest.raises(
        BackendError, match="'reference' is named twice; a second instance is written reference:<any name>"
    ):
        discovery.discover({"FLAGOS_BACKENDS": "reference,reference"}, [])


def test_backend_without_device_node_is_not_opened_unless_named(library: Path) -> None:
    entries = [spec("alpha", library, probe_paths=("/dev/alpha*",))]
    record = discovery.discover({}, entries, exists=lambda pattern: False)[0]
    assert (record.state, record.reason) == (
        State.NO_DEVICE,
        "none of /dev/alpha* exists; FLAGOS_BACKENDS=alpha opens it nevertheless",
    )
    assert (
        discovery.discover({}, entries, exists=lambda pattern: pattern == "/dev/alpha*")[0].state
        is State.WAITING
    )
    named = discovery.discover({"FLAGOS_BACKENDS": "alpha"}, entries, exists=lambda pattern: False)[0]
    assert named.state is State.WAITING


def test_package_that_says_it_is_unavailable_is_believed(library: Path) -> None:
    entries = [spec("alpha", library / "missing", unavailable_reason="its library is not written yet")]
    record = discovery.discover({}, entries)[0]
    assert (record.state, record.reason) == (State.UNAVAILABLE, "its library is not written yet")


def test_other_abi_major_is_refused_without_opening(library: Path) -> None:
    record = discovery.discover({}, [spec("alpha", library, built_for_abi=(2, 0))])[0]
    assert record.state is State.ABI_REFUSED
    assert "built for HAL ABI 2.0; this core speaks 1.0" in record.reason


def test_later_abi_minor_is_accepted(library: Path) -> None:
    assert discovery.discover({}, [spec("alpha", library, built_for_abi=(1, 7))])[0].state is State.WAITING


def test_missing_library_is_told_with_its_path(library: Path) -> None:
    missing = library.with_name("libgone.so")
    record = discovery.discover({}, [spec("alpha", missing)])[0]
    assert record.state is State.FAILED
    assert str(missing) in record.reason


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (
            FakeEntry("bad", ImportError("no module named sdk"), "pkg:backend"),
            "raised ImportError: no module named sdk",
        ),
        (FakeEntry("bad", SystemExit(3), "pkg:backend"), "raised SystemExit: 3"),
        (FakeEntry("bad", 7, "pkg:backend"), "returned int, not a BackendSpec"),
        (
            FakeEntry("bad", BackendSpec("good", Path("x")), "pkg:backend"),
            "describes 'good', but its entry point is called 'bad'",
        ),
    ],
)
def test_broken_package_does_not_stop_the_others(entry: FakeEntry, words: str, library: Path) -> None:
    records = discovery.discover({}, [entry, spec("alpha", library)])
    assert states(records) == {"bad": State.FAILED, "alpha": State.WAITING, "reference": State.WAITING}
    assert words in records[0].reason


def test_two_packages_of_one_name_keep_the_first_and_tell(library: Path) -> None:
    first = FakeEntry("alpha", BackendSpec("alpha", library), "one:backend")
    second = FakeEntry("alpha", BackendSpec("alpha", library), "two:backend")
    records = discovery.discover({}, [first, second])
    assert [record.state for record in records] == [State.WAITING, State.FAILED, State.WAITING]
    assert "belongs to one:backend already" in records[1].reason


@pytest.mark.parametrize("name", ["", "Upper", "a-b", "1st", "a:b"])
def test_bad_backend_name_is_refused(name: str) -> None:
    with pytest.raises(BackendError, match="is no backend name"):
        BackendSpec(name, Path("x"))


def test_request_tells_the_runtime_what_not_to_open(library: Path) -> None:
    waiting, skipped = discovery.discover({"FLAGOS_BACKENDS": "alpha"}, [spec("alpha", library)])
    assert waiting.request() == {
        "name": "alpha",
        "path": str(library),
        "private_copy": False,
        "emulated": False,
        "accelerator": True,
        "companion": "",
    }
    assert skipped.request()["skip"] == "disabled: FLAGOS_BACKENDS=alpha does not name it"


def test_merge_takes_over_what_the_runtime_reached(library: Path) -> None:
    records = discovery.discover({}, [spec("alpha", library), spec("beta", library, unavailable_reason="no")])
    native = [
        {
            "name": "alpha",
            "state": "SDK missing",
            "reason": "libalpha.so is not there",
            "first_device": 0,
            "device_count": 0,
        },
        {"name": "beta", "state": "failed", "reason": "skipped", "first_device": 0, "device_count": 0},
        {"name": "reference", "state": "selected", "reason": "", "first_device": 0, "device_count": 2},
    ]
    merged = discovery.merge(records, native)
    assert [record.state for record in merged] == [State.SDK_MISSING, State.UNAVAILABLE, State.SELECTED]
    lines = discovery.describe(merged)
    assert lines[0] == "alpha: SDK missing: libalpha.so is not there"
    assert lines[2].endswith("selected, flagos:0 to flagos:1")


def test_installed_entries_come_in_order_of_their_names() -> None:
    names = [(entry.name, entry.value) for entry in _entries.of_group("console_scripts")]
    assert names == sorted(names) != []
