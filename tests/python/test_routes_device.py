"""Routes of a real process on the reference backend, whose sources are `cpu` and registered functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

REGISTER = """
import torch, torch_fl
from torch_fl import routes
torch.flagos.init()
calls = []

@routes.register("triton", "mm")
def mm(a, b):
    calls.append(tuple(a.shape))
    return torch.full((a.shape[0], b.shape[1]), 7.0, device=a.device)

a = torch.ones(2, 3, device="flagos")
b = torch.ones(3, 2, device="flagos")
"""


def test_set_changes_what_runs_and_reset_gives_it_back(evaluate: Any) -> None:
    program = """
before = (a @ b).cpu()[0, 0].item()
old = routes.set({"mm": ["triton", "cpu"]})
during = (a @ b).cpu()[0, 0].item()
explained = routes.explain("mm", a, b)
routes.set(old)
after = (a @ b).cpu()[0, 0].item()
answer = [before, during, after, calls, explained.source, [c.state for c in explained.candidates],
          explained.decided_by.layer, routes.explain("mm").source]
"""
    assert evaluate(REGISTER + program) == [
        3.0, 7.0, 3.0, [[2, 3]], "triton", ["chosen", "not reached"], "process", "cpu",
    ]  # fmt: skip


def test_condition_decides_by_the_call(evaluate: Any) -> None:
    program = """
routes.set({"mm": [{"source": "triton", "when": {"dtype": torch.float32, "max_numel": 6}}, "cpu"]})
big = torch.ones(3, 3, device="flagos")
double = a.double()
pairs = [(a, b), (big, big), (double, b.double())]
answer = [[(left @ right).cpu()[0, 0].item() for left, right in pairs],
          [routes.explain("mm", *pair).candidates[0].state for pair in pairs]]
"""
    values, states = evaluate(REGISTER + program)
    assert values == [7.0, 3.0, 3.0]
    assert states == [
        "chosen",
        "declined by condition: numel is 9",
        "declined by condition: dtype is float64",
    ]


def test_function_that_declines_hands_over_and_is_counted(evaluate: Any) -> None:
    program = """
routes.register("triton", "mm", lambda a, b: NotImplemented)
routes.set({"mm": ["triton", "cpu"]})
answer = [(a @ b).cpu()[0, 0].item(), [tuple(row) for row in routes.declines()]]
"""
    assert evaluate(REGISTER + program) == [3.0, [["aten::mm", "triton", 1]]]


def test_use_is_of_its_thread_and_of_backward_inside(evaluate: Any) -> None:
    program = """
import threading
seen = {}
weight = torch.ones(3, 2, device="flagos", requires_grad=True)
with routes.use({"mm": "triton"}):
    seen["inside"] = (a @ b).cpu()[0, 0].item()
    thread = threading.Thread(target=lambda: seen.update(other=(a @ b).cpu()[0, 0].item()))
    thread.start(); thread.join()
    with routes.use({"mm": "cpu"}):
        seen["nested"] = (a @ b).cpu()[0, 0].item()
    (a @ weight).sum().backward()
seen["after"] = (a @ b).cpu()[0, 0].item()
seen["grad"] = weight.grad.cpu()[0, 0].item()
answer = seen
"""
    assert evaluate(REGISTER + program) == {"inside": 7, "other": 3, "nested": 3, "after": 3, "grad": 7}


def test_routes_may_change_while_other_threads_run(evaluate: Any) -> None:
    program = """
import threading
stop, wrong = threading.Event(), []

def work():
    while not stop.is_set():
        value = (a @ b).cpu()[0, 0].item()
        if value not in (3.0, 7.0):
            wrong.append(value)

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for i in range(500):
    routes.set({"mm": ["triton", "cpu"] if i % 2 else "cpu", "add.Tensor": "cpu"})
    with routes.use({"mm": "triton"}):
        pass
stop.set()
for thread in threads: thread.join()
answer = wrong
"""
    assert evaluate(REGISTER + program) == []


def test_set_is_fast(evaluate: Any) -> None:
    program = """
import time
times = []
for i in range(200):
    start = time.perf_counter()
    routes.set({"mm": ["triton", "cpu"] if i % 2 else "cpu"})
    times.append(time.perf_counter() - start)
answer = sorted(times)[100]
"""
    assert evaluate(REGISTER + program) < 1e-3


def test_trace_counts_and_times(evaluate: Any) -> None:
    program = """
routes.set({"mm": ["triton", "cpu"]})
with torch_fl.trace() as trace:
    for _ in range(5):
        a @ b
    torch.flagos.synchronize()
rows = [row for row in trace.rows if (row.op, row.source) == ("aten::mm", "triton")]
answer = [[row.calls, row.nanoseconds > 0] for row in rows]
"""
    assert evaluate(REGISTER + program) == [[5, True]]


def test_absent_source_is_refused_in_words(run: Any) -> None:
    done = run("import torch_fl; torch_fl.routes.set({'mm': 'boxed'})")
    assert done.returncode == 1
    assert "on reference mm has no source boxed here. Present: cpu." in done.stderr
    assert "FLAGOS_COMPANION" in done.stderr


def test_table_has_every_operator(evaluate: Any) -> None:
    count, sources = evaluate(
        "import torch_fl; rows = torch_fl.routes.table()\n"
        "answer = [len({row.op for row in rows}), sorted({row.source for row in rows})]"
    )
    assert count > 1000
    assert sources == ["cpu"]


def test_import_alone_loads_nothing_of_routes(evaluate: Any) -> None:
    program = (
        "import sys, torch_fl; answer = [name for name in sys.modules if name.startswith('torch_fl.routes')]"
    )
    assert evaluate(program) == []


# --- the environment ----------------------------------------------------------------------------------------


def test_routes_of_the_environment_are_in_effect(evaluate: Any, tmp_path: Path) -> None:
    table = tmp_path / "mine.toml"
    table.write_text('schema = 1\n[ops.bmm]\nsource = "cpu"\nreason = "mine"\n')
    program = """
import torch, torch_fl
answer = [torch_fl.routes.explain(op).to_dict()["decided_by"] for op in ("mm", "bmm", "add.Tensor")]
"""
    answers = evaluate(program, FLAGOS_ROUTES="mm=cpu", FLAGOS_ROUTES_FILE=str(table))
    assert [answer["layer"] for answer in answers] == ["environment", "user file", "base table"]
    assert (answers[1]["line"], answers[1]["reason"]) == (2, "mine")


def test_routes_of_the_environment_hold_where_torch_fl_is_not_imported(evaluate: Any) -> None:
    program = """
import sys, torch
from torch_fl_base import _native
a = torch.ones(2, 2, device="flagos")
seven = lambda a, b: torch.full((2, 2), 7.0, device=a.device)
_native.load().routes.register_python("triton", "aten::mm", None, seven)
answer = [(a @ a).cpu()[0, 0].item(), "torch_fl" in sys.modules]
"""
    assert evaluate(program, FLAGOS_ROUTES="mm=triton,cpu", FLAGOS_AUTOLOAD="1") == [7.0, False]


def test_backends_have_routes_of_their_own(evaluate: Any) -> None:
    program = """
last = torch.flagos.device_count() - 1
pairs = [(a, b), (a.to(f"flagos:{last}"), b.to(f"flagos:{last}"))]
routes.set({"mm": "triton"}, backend="reference:second")
answer = [[(left @ right).cpu()[0, 0].item() for left, right in pairs],
          [routes.explain("mm", *pair).backend for pair in pairs]]
"""
    values, backends = evaluate(REGISTER + program, FLAGOS_BACKENDS="reference,reference:second")
    assert values == [3.0, 7.0]
    assert backends == ["reference", "reference:second"]


def test_bad_routes_are_told_at_import_of_torch_fl(run: Any, tmp_path: Path) -> None:
    done = run("import torch_fl", FLAGOS_ROUTES="mmm=cpu")
    assert done.returncode == 1
    assert "RouteError: flagos: FLAGOS_ROUTES: unknown operator 'mmm'. Did you mean 'mm'" in done.stderr
    done = run("import torch_fl", FLAGOS_ROUTES_FILE=str(tmp_path / "missing.toml"))
    assert "missing.toml: cannot be read: No such file or directory" in done.stderr


def test_bad_routes_do_not_break_import_of_torch_and_are_told_at_the_first_use(run: Any) -> None:
    program = """
        import torch
        try:
            torch.ones(2, device="flagos")
        except RuntimeError as error:
            print(error)
        """
    done = run(program, FLAGOS_ROUTES="mmm=cpu", FLAGOS_AUTOLOAD="1")
    assert done.returncode == 0, done.stderr
    assert "FLAGOS_ROUTES: unknown operator 'mmm'" in done.stdout


# --- the command --------------------------------------------------------------------------------------------


def test_command_lists_and_explains(run_module: Any) -> None:
    done = run_module("torch_fl_base.cli", "routes", "list", FLAGOS_ROUTES="mm=cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "aten::mm" in done.stdout
    done = run_module("torch_fl_base.cli", "routes", "explain", "mm", FLAGOS_ROUTES="mm=cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "aten::mm on reference: cpu\ndecided by: environment FLAGOS_ROUTES, entry 'mm'" in done.stdout
