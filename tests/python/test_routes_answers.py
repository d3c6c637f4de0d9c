"""torch_fl.routes over a stand-in for the bindings: what is told of routes, and functions as sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.python.routes_support import fails
from tests.python.test_routes_fake import FakeRoutes, install
from torch_fl_base.routes.model import LayerName
from torch_fl_base.routes.store import store

# --- explain and table --------------------------------------------------------------------------------------


def test_explain_without_arguments_leaves_conditions_open(routes: Any) -> None:
    answer = routes.explain("mean.dim")
    assert answer.source == "cpu"
    assert str(answer).splitlines()[0] == "aten::mean.dim on alpha: cpu"
    assert [(c.source, c.state) for c in answer.candidates] == [
        ("gems", "absent"),
        ("boxed", "if dtype float32"),
        ("cpu", "chosen"),
    ]
    assert "vendor.toml:3, entry 'mean.dim'" in str(answer)
    assert "reason: gems is right, boxed is fast" in str(answer)
    assert "until: issue 7" in str(answer)
    data = answer.to_dict()
    assert data["decided_by"]["layer"] == "vendor table"
    assert data["decided_by"]["line"] == 3
    assert data["present"] == ["boxed", "cpu"]


@pytest.mark.parametrize(
    ("dtype", "source", "states"),
    [
        (torch.float32, "boxed", ["absent", "chosen", "not reached"]),
        (torch.float64, "cpu", ["absent", "declined by condition: dtype is float64", "chosen"]),
    ],
)
def test_explain_of_a_call(dtype: torch.dtype, source: str, states: list[str], routes: Any) -> None:
    answer = routes.explain("mean.dim", torch.ones(2, dtype=dtype), 0)
    assert answer.source == source
    assert [candidate.state for candidate in answer.candidates] == states
    assert answer.candidates[1].when == "dtype float32"


def test_explain_names_the_line_of_the_program(routes: Any) -> None:
    with routes.use({"mm": "cpu"}):
        decided = routes.explain(torch.ops.aten.mm.default).decided_by
    assert decided.file == __file__
    assert (
        Path(__file__).read_text().splitlines()[decided.line - 1].strip() == 'with routes.use({"mm": "cpu"}):'
    )
    routes.set({"mm": "cpu"}, reason="a try")
    decided = routes.explain("mm").decided_by
    assert (decided.layer, decided.file, decided.reason) == (LayerName.PROCESS, __file__, "a try")


def test_explain_names_the_default(routes: Any) -> None:
    assert "base table" in str(routes.explain("mm"))
    assert "base.toml:3, entry 'default'" in str(routes.explain("mm"))


def test_explain_refuses_what_is_not_one_operator(routes: Any) -> None:
    fails(lambda: routes.explain("mmm"), "Did you mean 'mm' or 'bmm'?")
    fails(lambda: routes.explain("softmax"), "no overload 'softmax'", "softmax.int")
    fails(lambda: routes.explain("_foreach_*"), "is a pattern")
    fails(lambda: routes.explain("mm", backend="gamma"), "no backend 'gamma'")
    with pytest.raises(TypeError, match=r"not <OpOverloadPacket"):
        routes.explain(torch.ops.aten.mm)


def test_table_has_every_operator_of_every_backend(routes: Any, fake: FakeRoutes) -> None:
    routes.set({"mm": "cpu"})
    rows = routes.table()
    assert len(rows) == 2 * len(fake.operators())
    row = next(row for row in rows if (row.op, row.backend) == ("aten::mm", "alpha"))
    assert (row.source, row.candidates, row.decided_by.layer) == ("cpu", ("cpu",), LayerName.PROCESS)
    row = next(row for row in routes.table("alpha") if row.op == "aten::mean.dim")
    assert row.candidates == ("gems", "boxed if dtype float32")
    assert row.to_dict()["decided_by"]["reason"] == "gems is right, boxed is fast"


# --- sources, checks, counters ------------------------------------------------------------------------------


def test_registered_function_can_be_routed_to(routes: Any, fake: FakeRoutes) -> None:
    @routes.register("triton", "mm")  # type: ignore[untyped-decorator, unused-ignore]
    def mm(a: object, b: object) -> object:
        return NotImplemented

    assert callable(mm)
    routes.set({"mm": ["triton", "boxed"]})
    assert fake.serves("aten::mm", "beta") == "triton"
    routes.unregister("triton", "mm", backend="alpha")
    assert fake.serves("aten::mm") == "boxed"
    assert routes.register("gems", torch.ops.aten.bmm.default, mm, backend="beta") is mm
    assert fake.capability("aten::bmm", "beta") == ["gems", "cpu"]


def test_register_refuses(routes: Any) -> None:
    fails(lambda: routes.register("trton", "mm"), "unknown source 'trton'. Did you mean 'triton'?")
    fails(lambda: routes.register("cpu", "mm"), "core's own; register a function as one of native, gems")
    fails(lambda: routes.register("triton", "mmm"), "unknown operator 'mmm'")
    fails(lambda: routes.register("triton", "_foreach_*", print), "is a pattern")
    fails(lambda: routes.register("triton", "mm", 3), "takes a function, not a int")
    fails(lambda: routes.register("triton", "mm", print, backend="gamma"), "no backend 'gamma'")


def test_check_reports_what_differs_in_its_region(routes: Any, fake: FakeRoutes) -> None:
    row = {
        "op": "aten::mm",
        "source": "gems",
        "reference": "cpu",
        "device": "flagos:0",
        "arguments": "…",
        "what": "by 2",
    }
    with routes.check() as outer:
        fake.rows.append(row)
        with routes.check() as inner:
            fake.rows.append({**row, "op": "aten::bmm"})
        checked_outside = fake.check
    assert (checked_outside, fake.check) == (True, False)
    assert [row["op"] for row in inner.rows] == ["aten::bmm"]
    assert [row["op"] for row in outer.rows] == ["aten::mm", "aten::bmm"]
    assert str(inner) == "aten::bmm on flagos:0: gems differs from cpu: by 2; …"
    with routes.check() as nothing:
        pass
    assert str(nothing) == "no result differs between the sources"


def test_check_of_the_environment_goes_on(
    routes: Any, fake: FakeRoutes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAGOS_ROUTE_CHECK", "1")
    store().publish()
    assert fake.check
    with routes.check():
        pass
    assert fake.check


def test_fallback_is_set_and_given_back(routes: Any, fake: FakeRoutes) -> None:
    assert fake.fallback_mode == "warn"
    routes.fallback("allow")
    with routes.fallback("error"):
        assert fake.fallback_mode == "error"
    assert fake.fallback_mode == "allow"
    fails(lambda: routes.fallback("eror"), "unknown mode 'eror' of fallback. Did you mean 'error'?")


def test_counters_have_names(routes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    native = install(monkeypatch)
    native.ops.rows = [("aten::mm", "cpu", 1, 2, 3, 4)]
    (count,) = routes.counters()
    assert (count.op, count.device, count.calls, count.host_bytes, count.nanoseconds) == (
        "aten::mm",
        1,
        2,
        3,
        4,
    )
    (decline,) = routes.declines()
    assert (decline.source, decline.calls) == ("gems", 3)


def test_names_of_the_package_exist(routes: Any) -> None:
    for name in routes.__all__:
        assert hasattr(routes, name)
