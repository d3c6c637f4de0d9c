"""torch_fl.routes over a stand-in for the bindings: what changes, for whom, and when."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.python.routes_support import fails
from tests.python.test_routes_fake import FakeRoutes
from torch_fl_base.routes.model import LayerName
from torch_fl_base.routes.store import store

# --- set and reset ------------------------------------------------------------------------------------------


def test_set_tells_the_runtime_of_the_operators_concerned_only(routes: Any, fake: FakeRoutes) -> None:
    routes.set({"mm": "cpu"})
    assert [entry for entry in fake.log if entry != "backends"] == ["update alpha 1", "update beta 1"]
    assert fake.serves("aten::mm") == "cpu"
    assert fake.serves("aten::mul.Tensor") == "boxed"


@pytest.mark.parametrize(
    "value",
    [
        "cpu",
        ["cpu"],
        ("gems", "cpu"),
        {"source": "cpu"},
        [{"source": "gems", "when": {"dtype": torch.float16}, "on_error": "next"}, "cpu"],
    ],
)
@pytest.mark.parametrize("op", ["mm", "aten::mm", torch.ops.aten.mm.default])
def test_forms_of_set(op: Any, value: Any, routes: Any, fake: FakeRoutes) -> None:
    routes.set({op: value})
    assert fake.serves("aten::mm") == "cpu"


def test_conditions_reach_the_runtime_in_plain_form(routes: Any, fake: FakeRoutes) -> None:
    routes.set(
        {"mm": [{"source": "boxed", "when": {"dtype": torch.float16, "devices": 1}, "on_error": "next"}]}
    )
    assert fake.tables["alpha"]["aten::mm"] == [
        {"source": "boxed", "when": {"dtype": ["float16"], "devices": [1]}, "on_error": "next"}
    ]


def test_reset_gives_back_what_lies_under(routes: Any, fake: FakeRoutes) -> None:
    routes.set({"mm": "cpu", "mean.dim": "cpu", "_foreach_*": "cpu"})
    routes.reset("mm")
    assert (fake.serves("aten::mm"), fake.serves("aten::mean.dim")) == ("boxed", "cpu")
    routes.reset(["_foreach_a*"])
    assert fake.serves("aten::_foreach_add.List") == "boxed"
    assert fake.serves("aten::_foreach_mul.List") == "cpu"
    routes.reset()
    assert fake.serves("aten::_foreach_mul.List") == "boxed"
    assert fake.tables["alpha"]["aten::mean.dim"][0]["source"] == "gems"
    fails(lambda: routes.reset("mmm"), "unknown operator 'mmm'. Did you mean 'mm' or 'bmm'?")


def test_set_returns_what_undoes_it(routes: Any, fake: FakeRoutes) -> None:
    routes.set({"mm": "boxed"})
    before = routes.set({"mm": "cpu", "bmm": "cpu"})
    assert fake.serves("aten::mm") == "cpu"
    after = routes.set(before)
    assert fake.serves("aten::mm") == "boxed"
    assert "aten::bmm" not in fake.tables["alpha"]
    routes.set(after)
    assert fake.serves("aten::mm") == "cpu"


def test_none_takes_a_route_away(routes: Any, fake: FakeRoutes) -> None:
    routes.set({"mm": "cpu"})
    routes.set({"mm": None})
    assert fake.serves("aten::mm") == "boxed"


def test_set_of_one_backend_leaves_the_others(routes: Any, fake: FakeRoutes) -> None:
    routes.set({"mm": "cpu"}, backend="alpha")
    assert "aten::mm" not in fake.tables["beta"]
    fails(
        lambda: routes.set({"mm": "cpu"}, "alpa"), "no backend 'alpa'", "Did you mean 'alpha'?", "alpha, beta"
    )


def test_set_of_all_backends_counts_where_the_source_is(routes: Any, fake: FakeRoutes) -> None:
    routes.set({"mm": "boxed"})
    assert "aten::mm" in fake.tables["alpha"]
    assert "aten::mm" not in fake.tables["beta"]


def test_source_that_is_absent_is_refused_with_what_is_present(routes: Any, fake: FakeRoutes) -> None:
    fails(
        lambda: routes.set({"bmm": "boxed", "mm": "cpu"}),
        "on alpha bmm has no source boxed here. Present: cpu.",
        "it needs a torch that was built for these chips, and FLAGOS_COMPANION not set to off",
    )
    assert "aten::mm" not in fake.tables["alpha"]
    fails(
        lambda: routes.set({"mm": ["gems", "triton"]}), "gems or triton", "Present: boxed, cpu", "flag_gems"
    )
    fails(lambda: routes.set({"mm": "boxed"}, backend="beta"), "on beta mm has no source boxed here")


def test_pattern_counts_where_the_source_is(routes: Any, fake: FakeRoutes) -> None:
    routes.set({"*mm": "boxed"}, backend="alpha")
    assert "aten::mm" in fake.tables["alpha"]
    assert "aten::bmm" not in fake.tables["alpha"]


def test_every_fault_of_a_mapping_is_told(routes: Any, fake: FakeRoutes) -> None:
    fails(
        lambda: routes.set({"mmm": "cpu", "bmm": "cup", "mm": [{"source": "cpu", "wen": {}}], 3: "cpu"}),
        "4 faults",
        "torch_fl.routes.set: mmm: unknown operator 'mmm'. Did you mean 'mm' or 'bmm'?",
        "bmm: unknown source 'cup'. Did you mean 'cpu'?",
        "mm[0].wen: unknown key. Did you mean 'when'?",
        "not 3",
    )
    fails(lambda: routes.set("mm=cpu"), "takes a mapping such as {'mm': 'cpu'}, not a string")
    fails(
        lambda: routes.set({"tv::nms": "cpu"}), "no operator of this name is registered; import its library"
    )
    fails(lambda: routes.set({"softmax.int": "cpu"}), "'softmax.int' cannot be routed")
    assert not [entry for entry in fake.log if entry.startswith("update")]


def test_refusal_of_the_runtime_changes_nothing(
    routes: Any, fake: FakeRoutes, monkeypatch: pytest.MonkeyPatch
) -> None:
    routes.set({"mm": "cpu"})
    monkeypatch.setattr(fake, "update", lambda *args: (_ for _ in ()).throw(ValueError("flagos: no")))
    fails(lambda: routes.set({"mm": "boxed"}), "flagos: no")
    assert store().lookup("alpha", "aten::mm").sources == ("cpu",)


def test_set_takes_less_than_a_millisecond(routes: Any) -> None:
    routes.set({"mm": "cpu"})
    times = []
    for source in itertools.islice(itertools.cycle(["boxed", "cpu"]), 50):
        start = time.perf_counter()
        routes.set({"mm": source}, "alpha")
        times.append(time.perf_counter() - start)
    assert sorted(times)[len(times) // 2] < 1e-3


def test_persist_writes_the_users_table(routes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails(lambda: routes.set({"mm": "cpu"}, persist=True), "set FLAGOS_ROUTES_FILE, or load one")
    table = tmp_path / "user.toml"
    table.write_text('schema = 1\n[ops.bmm] # mine\nsource = "cpu"\nreason = "r"\n')
    monkeypatch.setenv("FLAGOS_ROUTES_FILE", str(table))
    fails(lambda: routes.set({"mm": "cpu"}, persist=True), "persist needs a reason")
    fails(lambda: routes.set({"mm": "cpu"}, "alpha", persist=True, reason="r"), "for all backends")
    routes.set({"mm": ["boxed", "cpu"], "_foreach_*": "cpu"}, persist=True, reason="slow on this board")
    text = table.read_text()
    assert text.startswith('schema = 1\n[ops.bmm] # mine\nsource = "cpu"\nreason = "r"\n')
    assert '[ops."_foreach_*"]\nsource = "cpu"\nreason = "slow on this board"\n' in text
    routes.reset()
    routes.reload()
    assert routes.explain("mm").decided_by.layer is LayerName.USER_FILE


# --- use ----------------------------------------------------------------------------------------------------


def test_use_is_of_its_region(routes: Any, fake: FakeRoutes) -> None:
    with routes.use({"mm": "cpu"}):
        assert fake.serves("aten::mm") == "cpu"
    assert fake.serves("aten::mm") == "boxed"


def test_use_nests_and_ends_on_an_exception(routes: Any, fake: FakeRoutes) -> None:
    with routes.use({"mm": "cpu", "mul.Tensor": "cpu"}):
        with contextlib.suppress(ZeroDivisionError), routes.use({"mm": "boxed"}):
            assert (fake.serves("aten::mm"), fake.serves("aten::mul.Tensor")) == ("boxed", "cpu")
            raise ZeroDivisionError
        assert fake.serves("aten::mm") == "cpu"
    assert fake.serves("aten::mm") == "boxed"


def test_use_decorates_and_opens_nothing_until_the_call(routes: Any, fake: FakeRoutes) -> None:
    @routes.use({"mm": "cpu"})  # type: ignore[untyped-decorator, unused-ignore]
    def factorial(n: int) -> int:
        assert fake.serves("aten::mm") == "cpu"
        return n * factorial(n - 1) if n else 1

    assert not fake.log
    assert factorial(3) == 6
    assert fake.serves("aten::mm") == "boxed"
    assert not fake._stack()


def test_use_is_of_its_thread(routes: Any, fake: FakeRoutes) -> None:
    seen: dict[str, str] = {}
    barrier = threading.Barrier(2)

    def work(source: str) -> None:
        with routes.use({"mm": source}):
            barrier.wait(10)
            seen[source] = f"{fake.serves('aten::mm')} {routes.explain('mm').source}"
            barrier.wait(10)

    threads = [threading.Thread(target=work, args=(source,)) for source in ("cpu", "boxed")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"cpu": "cpu cpu", "boxed": "boxed boxed"}


def test_use_refuses_as_set(routes: Any) -> None:
    fails(lambda: routes.use({"mmm": "cpu"}), "torch_fl.routes.use: mmm: unknown operator")
    fails(lambda: routes.use({"mm": None}), "not None")
    fails(lambda: routes.use({"bmm": "boxed"}).__enter__(), "Present: cpu")


# --- layers -------------------------------------------------------------------------------------------------

LAYERS = ["vendor table", "user file", "environment", "process", "context"]


@pytest.mark.parametrize("count", range(len(LAYERS) + 1))
def test_highest_layer_decides(
    count: int, routes: Any, fake: FakeRoutes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = LAYERS[:count]
    entry = 'schema = 1\n[ops.mm]\nsource = "cpu"\nreason = "r"\n'
    (tmp_path / "vendor.toml").write_text(entry if "vendor table" in chosen else "schema = 1\n")
    if "user file" in chosen:
        (tmp_path / "user.toml").write_text(entry)
        monkeypatch.setenv("FLAGOS_ROUTES_FILE", str(tmp_path / "user.toml"))
    if "environment" in chosen:
        monkeypatch.setenv("FLAGOS_ROUTES", "mm=cpu")
    routes.reload()
    if "process" in chosen:
        routes.set({"mm": "cpu"})
    with routes.use({"mm": "cpu"} if "context" in chosen else {"bmm": "cpu"}):
        decided = routes.explain("mm").decided_by
        assert decided.layer.value == (chosen[-1] if chosen else "base table")
        assert fake.serves("aten::mm") == ("cpu" if chosen else "boxed")


def test_highest_default_is_for_operators_that_no_layer_names(
    routes: Any, fake: FakeRoutes, tmp_path: Path
) -> None:
    table = tmp_path / "user.toml"
    table.write_text('schema = 1\ndefault = ["cpu"]\n')
    routes.load(table)
    assert fake.serves("aten::mm") == "cpu"
    assert fake.tables["alpha"]["aten::mean.dim"][0]["source"] == "gems"
    routes.load(None)
    assert fake.serves("aten::mm") == "boxed"


def test_random_changes_agree_with_a_plain_model(routes: Any, fake: FakeRoutes) -> None:
    source = random.Random(7)
    ops = ["mm", "mul.Tensor", "add.Tensor"]
    model: list[dict[str, str]] = [{}]
    undo: list[Any] = []
    for _ in range(300):
        action = source.randrange(5)
        op, value = source.choice(ops), source.choice(["cpu", "boxed"])
        if action == 0:
            routes.set({op: value})
            model[0][op] = value
        elif action == 1:
            routes.reset(op)
            model[0].pop(op, None)
        elif action == 2 and len(model) < 4:
            region = routes.use({op: value})
            region.__enter__()
            undo.append(region)
            model.append({op: value})
        elif action == 3 and undo:
            undo.pop().__exit__(None, None, None)
            model.pop()
        for name in ops:
            expected = next((layer[name] for layer in reversed(model) if name in layer), "boxed")
            assert fake.serves(f"aten::{name}") == expected
            assert routes.explain(name).source == expected


# --- files at run time --------------------------------------------------------------------------------------


def test_load_of_a_bad_table_changes_nothing(routes: Any, fake: FakeRoutes, tmp_path: Path) -> None:
    table = tmp_path / "user.toml"
    table.write_text('schema = 1\n[ops.mm]\nsource = "cpu"\nreason = "r"\n')
    routes.load(str(table))
    table.write_text('schema = 1\n[ops.mm]\nsource = "cup"\nreason = "r"\n')
    fails(routes.reload, "user.toml:3: ops.mm.source: unknown source 'cup'")
    assert fake.serves("aten::mm") == "cpu"
    table.write_text("schema = 1\n")
    routes.reload()
    assert fake.serves("aten::mm") == "boxed"


def test_watch_reads_changes_and_survives_faults(
    routes: Any, fake: FakeRoutes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = tmp_path / "user.toml"
    table.write_text("schema = 1\n")
    routes.load(table)

    def until(condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end, "it did not happen"
            time.sleep(0.01)

    with routes.watch(0.01) as watch:
        table.write_text('schema = 1\n[ops.mm]\nsource = "cpu"\nreason = "r"\n')
        until(lambda: fake.serves("aten::mm") == "cpu")
        table.write_text("schema = 1\nnonsense")
        until(lambda: "are not used" in caplog.text)
        assert fake.serves("aten::mm") == "cpu"
        table.write_text("schema = 1\n# right again\n")
        until(lambda: fake.serves("aten::mm") == "boxed")
    assert not watch._thread.is_alive()
    watch.stop()
    with pytest.raises(ValueError, match="positive"):
        routes.watch(0)
