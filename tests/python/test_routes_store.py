"""What a process does with the layers: when tables are read, what is published, what is said of bad ones."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.python.test_routes_fake import FakeRoutes, install
from torch_fl_base import BackendError, BackendSpec, _env
from torch_fl_base.discovery import Record, State
from torch_fl_base.routes import RouteError, shorthand, start
from torch_fl_base.routes.store import store


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    native = install(monkeypatch)
    monkeypatch.setattr(start, "_registered", False)
    return native


@pytest.fixture
def fake(native: SimpleNamespace) -> FakeRoutes:
    routes: FakeRoutes = native.routes
    return routes


def record(name: str, routes: Path | None, state: State = State.WAITING) -> Record:
    return Record(name, state, spec=BackendSpec(name, Path("/lib.so"), routes=routes))


def entry(op: str, source: str = "cpu") -> str:
    return f'[ops."{op}"]\nsource = "{source}"\nreason = "r"\n'


# --- FLAGOS_ROUTES ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "assignments"),
    [
        ("mm=cpu", (("mm", ("cpu",)),)),
        (" mm = boxed , cpu ;; _foreach_*=cpu; ", (("mm", ("boxed", "cpu")), ("_foreach_*", ("cpu",)))),
        ("torchvision::nms=gems", (("torchvision::nms", ("gems",)),)),
        (" ; ", ()),
    ],
)
def test_short_form(text: str, assignments: object) -> None:
    assert shorthand.parse(text) == assignments
    assert _env.ROUTES.read({"FLAGOS_ROUTES": text}) == assignments


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mm", "FLAGOS_ROUTES: 'mm' is not <operator>=<source>[,<source>…]"),
        ("mm=", "'mm=' is not"),
        ("=cpu", "'=cpu' is not"),
        ("mm=cpu,", "'mm=cpu,' is not"),
        ("mm cpu=cpu", "'mm cpu=cpu' is not"),
        ("mm=cup", "FLAGOS_ROUTES: mm: unknown source 'cup'. Did you mean 'cpu'? Sources: native, boxed,"),
        ("mm=cup;bmm", "2 faults in routes"),
    ],
)
def test_short_form_that_is_wrong(text: str, message: str) -> None:
    with pytest.raises(RouteError) as caught:
        _env.ROUTES.read({"FLAGOS_ROUTES": text})
    assert message in str(caught.value)
    assert _env.check({"FLAGOS_ROUTES": text}) == [str(caught.value)]


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        (_env.ROUTES_FILE, "~/my routes.toml", "~/my routes.toml"),
        (_env.ROUTE_CHECK, "on", True),
        (_env.FALLBACK, "Error", "error"),
        (_env.COMPANION, "OFF", "off"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_other_variables(variable: _env.Variable[object], text: str, value: object) -> None:
    assert variable.read({variable.name: text}) == value


@pytest.mark.parametrize(
    ("variable", "text"),
    [(_env.ROUTE_CHECK, "2"), (_env.FALLBACK, "ignore"), (_env.COMPANION, "on")],
    ids=lambda value: getattr(value, "name", None),
)
def test_other_variables_refuse(variable: _env.Variable[object], text: str) -> None:
    with pytest.raises(BackendError, match=variable.name):
        variable.read({variable.name: text})


# --- start --------------------------------------------------------------------------------------------------


def test_start_without_an_explicit_import_reads_nothing(fake: FakeRoutes, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("nonsense")
    start.start([record("alpha", tmp_path / "bad.toml")], explicit=False)
    (callback,) = fake.on_open_callbacks
    with pytest.raises(RouteError, match=r"bad\.toml:1: is no valid TOML"):
        callback()
    (tmp_path / "bad.toml").write_text("schema = 1\n")
    callback()
    assert fake.log == ["backends", "publish alpha", "publish beta"]


def test_start_of_an_explicit_import_tells_every_fault(
    fake: FakeRoutes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.toml").write_text("schema = 1\n" + entry("mmm"))
    (tmp_path / "b.toml").write_text("schema = 1\n" + entry("mm", "cup"))
    monkeypatch.setenv("FLAGOS_ROUTES", "bmmm=cpu")
    records = [record("alpha", tmp_path / "a.toml"), record("beta", tmp_path / "b.toml")]
    with pytest.raises(RouteError) as caught:
        start.start(records, explicit=True)
    assert len(caught.value.faults) == 3
    for words in ("a.toml:2: ops.mmm", "b.toml:3: ops.mm.source", "FLAGOS_ROUTES: unknown operator 'bmmm'"):
        assert words in str(caught.value)
    assert not fake.log


def test_start_again_after_the_cure(
    fake: FakeRoutes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAGOS_ROUTES", "mmm=cpu")
    with pytest.raises(RouteError):
        start.start([], explicit=False)  # set variables are looked at in any case
    monkeypatch.setenv("FLAGOS_ROUTES", "mm=cpu")
    start.start([], explicit=True)
    start.check()
    start.start([], explicit=False)
    assert len(fake.on_open_callbacks) == 1
    fake.on_open_callbacks[0]()
    assert fake.serves("aten::mm") == "cpu"


@pytest.mark.parametrize("state", [State.NO_DEVICE, State.DISABLED, State.FAILED])
def test_table_of_a_backend_that_is_not_opened_is_not_read(
    state: State, fake: FakeRoutes, tmp_path: Path
) -> None:
    start.start([record("alpha", tmp_path / "missing.toml", state)], explicit=True)
    with pytest.raises(RouteError, match=r"missing\.toml: cannot be read"):
        start.start([record("alpha", tmp_path / "missing.toml")], explicit=True)


def test_user_file_that_is_missing_is_told(
    fake: FakeRoutes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAGOS_ROUTES_FILE", str(tmp_path / "mine.toml"))
    with pytest.raises(RouteError, match=r"mine\.toml: cannot be read"):
        start.start([], explicit=True)


# --- publication --------------------------------------------------------------------------------------------


def test_publication_has_the_default_and_the_operators_named(fake: FakeRoutes, tmp_path: Path) -> None:
    table = tmp_path / "v.toml"
    table.write_text("schema = 1\n" + entry("mean.dim") + entry("_foreach_*"))
    store().configure({"beta": table})
    store().publish()
    assert fake.tables["alpha"] == {}
    assert "aten::_foreach_add.List" in fake.tables["beta"]
    assert [candidate["source"] for candidate in fake.order["beta"]] == ["native", "boxed", "cpu"]
    assert fake.fallback_mode == "warn"
    assert not fake.check


def test_publication_follows_the_variables(fake: FakeRoutes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGOS_FALLBACK", "error")
    monkeypatch.setenv("FLAGOS_ROUTE_CHECK", "1")
    store().publish()
    assert fake.fallback_mode == "error"
    assert fake.check


def test_wish_without_effect_is_logged(
    fake: FakeRoutes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FLAGOS_ROUTES", "mm=gems; bmm=boxed,cpu; _foreach_*=boxed")
    with caplog.at_level(logging.WARNING):
        store().publish()
    told = [entry.getMessage() for entry in caplog.records]
    assert len(told) == 3
    assert told[0].startswith(
        "environment FLAGOS_ROUTES, entry 'mm' on alpha has no effect: mm has no source gems"
    )
    assert "on beta" in told[1]
    assert "'_foreach_*' on beta" in told[2]


def test_operator_of_a_library_imported_later_gets_its_route_then(fake: FakeRoutes, tmp_path: Path) -> None:
    table = tmp_path / "v.toml"
    table.write_text("schema = 1\n" + entry("torchvision::nms"))
    store().configure({"alpha": table})
    store().publish()
    assert fake.tables["alpha"] == {}
    fake.extra_operators.append("torchvision::nms")
    store().backends()
    assert fake.tables["alpha"]["torchvision::nms"][0]["source"] == "cpu"


def test_two_instances_share_a_table(fake: FakeRoutes, tmp_path: Path) -> None:
    (tmp_path / "v.toml").write_text("schema = 1\n" + entry("mm"))
    store().configure({"alpha": tmp_path / "v.toml", "beta": tmp_path / "v.toml"})
    store().publish()
    assert fake.serves("aten::mm", "beta") == "cpu"
    assert len(store().files()) == 2
