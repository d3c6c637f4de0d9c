"""The op level of the conformance kit finds what it is to find, survives crashes, keeps its books."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from torch_fl.testing.ops import attempt, checks, compare, database, expected, mirror, pages, results
from torch_fl.testing.ops.runner import Entry, Runner, WorkersDoNotStart

CPU = torch.device("cpu")


def _compare(ours: object, theirs: object, our_inputs: object = (), their_inputs: object = ()) -> list[str]:
    return compare.compare_results(ours, theirs, our_inputs, their_inputs, device=CPU, exact=True)


@pytest.mark.parametrize(
    ("ours", "theirs", "word"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0 + 2e-7]), "1 of 2 elements differ"),
        (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64), "dtype"),
        (torch.ones(2, 3), torch.ones(3, 2), "shape"),
        (torch.ones(2, 3), torch.ones(3, 2).t(), "strides"),
        (torch.tensor([1j]).conj(), torch.tensor([-1j]), "is_conj"),
        (torch.tensor([float("nan")]), torch.tensor([0.0]), "1 of 1 elements differ"),
        ([torch.ones(1)], [torch.ones(1), torch.ones(1)], "1 tensors, reference 2"),
        (3, 4, "3, reference 4"),
        (torch.ones(1, requires_grad=True), torch.ones(1), "requires_grad"),
        (torch.ones(1, device="meta"), torch.ones(1), "is on meta"),
    ],
)
def test_each_kind_of_difference_is_found(ours: object, theirs: object, word: str) -> None:
    assert any(
        word in complaint
        for complaint in compare.compare_results(
            ours,
            theirs,
            (),
            (),
            device=CPU,
            exact=True,
            values=not isinstance(ours, torch.Tensor) or ours.device == CPU,
        )
    )


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.uint64, torch.bfloat16, torch.complex32, torch.bool], ids=str
)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_difference_is_found_in_every_type(dtype: torch.dtype) -> None:
    a, b = torch.tensor([0.0, 1.0, 1.0]).to(dtype), torch.tensor([0.0, 1.0, 0.0]).to(dtype)
    assert _compare(a, b) == [c for c in _compare(a, b) if "1 of 3 elements differ, first at [2]" in c] != []
    assert _compare(a, a.clone()) == []


def test_nan_and_zero_signs_are_equal() -> None:
    assert _compare(torch.tensor([float("nan"), 0.0]), torch.tensor([float("nan"), -0.0])) == []


def test_lost_alias_is_found() -> None:
    base = torch.ones(4)
    assert "shares memory" in _compare(base.clone()[1:], base[1:], [base], [base])[0]


def test_changed_argument_is_found() -> None:
    def keeps(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def changes(x: torch.Tensor) -> torch.Tensor:
        result = x + 1
        x.zero_()
        return result

    call = attempt.Call((torch.ones(3),))
    ours, theirs = attempt.attempt(changes, call, "cpu", 1), attempt.attempt(keeps, call, "cpu", 1)
    assert "memory of argument 0" in attempt.compare_attempts(ours, theirs, exact=True)[0]
    assert call.args[0].sum().item() == 3.0, "the original was changed"


def test_errors_are_compared() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise IndexError("no")

    call = attempt.Call((torch.ones(3),))
    good, bad = attempt.attempt(torch.neg, call, "cpu", 1), attempt.attempt(fails, call, "cpu", 1)
    assert "no error; the reference raises IndexError" in attempt.compare_attempts(good, bad, exact=True)[0]
    assert "raises IndexError" in attempt.compare_attempts(bad, good, exact=True)[0]
    assert attempt.compare_attempts(bad, bad, exact=True) == []


def test_random_operators_are_recognised_and_their_distribution_compared() -> None:
    call = attempt.Call((torch.ones(100),))
    assert attempt.attempt(torch.rand_like, call, "cpu", 1).random
    assert not attempt.attempt(torch.neg, call, "cpu", 1).random
    uniform, normal = torch.rand(2000), torch.randn(2000)
    assert compare.two_samples_differ(uniform, normal) is not None
    assert compare.two_samples_differ(uniform, torch.rand(3000)) is None


def test_double_keeps_strides_offsets_and_shared_memory() -> None:
    base = torch.arange(24.0).view(4, 6)
    view, conjugate = base[1:, ::2].t(), torch.ones(3, dtype=torch.complex64).conj()
    double = mirror.Mirror("cpu")
    first, second, third = double([base, view, conjugate])
    assert (second.stride(), second.storage_offset()) == (view.stride(), view.storage_offset())
    assert second.untyped_storage()._cdata == first.untyped_storage()._cdata != base.untyped_storage()._cdata
    assert third.is_conj()
    assert torch.equal(second, view)
    assert len(double.bases()) == 2


@pytest.mark.parametrize("change", [mirror.interleaved, mirror.reversed_memory])
def test_rearranged_tensor_is_equal_and_not_contiguous(change: object) -> None:
    tensor = torch.arange(12.0).view(3, 4)
    changed = change(tensor)  # type: ignore[operator]
    assert torch.equal(changed, tensor)
    assert not changed.is_contiguous()


def _subject(name: str, dtype: torch.dtype = torch.float32) -> checks.Subject:
    return checks.Subject(
        database.database()[name], dtype, attempt.Config("cpu", max_samples=3), lambda _: None
    )


@pytest.mark.parametrize("check", database.CHECKS)
def test_cpu_passes_against_itself(check: str) -> None:
    dtype = torch.complex64 if check == "conj_neg" else torch.float64
    report = checks.run_check(_subject("gather" if check == "errors" else "mul", dtype), check)
    assert report.status == "pass", report.message
    assert report.calls > 0


def test_wrong_kernel_fails_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = _subject("sin")
    calls = [0]

    def wrong(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        calls[0] += 1
        result = torch.sin(x) if out is None else torch.sin(x, out=out)
        if calls[0] % 2 == 0:  # the second of each pair is the device's
            result.add_(1)
        return result

    monkeypatch.setattr(subject.info, "op", wrong)
    monkeypatch.setattr(subject, "_reference_agrees", lambda *_: "exact")
    for check in ("forward", "strided"):
        assert checks.run_check(subject, check).status == "fail"


def test_ci_slice_has_every_operator_and_is_fixed() -> None:
    jobs = database.ci_jobs()
    assert {job.op for job in jobs} == {job.op for job in database.all_jobs()}
    assert jobs == database.ci_jobs()
    assert {job.dtype for job in jobs} >= {
        "float32",
        "float64",
        "bfloat16",
        "complex64",
        "int64",
        "bool",
        "uint16",
    }
    assert len(jobs) < 2 * len({job.op for job in jobs}) + 1


def test_pattern_that_matches_nothing_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"no operator matches 'softmx'; close: .*softmax"):
        database.select(database.all_jobs(), ["softmx"], [], [])


def _entry(op: str, status: str, dtype: str = "float32", check: str = "forward") -> Entry:
    return Entry(op, dtype, check, status, "why", 3, 0.1)


def test_expected_failures_and_surprises() -> None:
    listed = expected.Expectation(("a*",), "expected_failure", "not yet", "issue 7", modes=("staged",))
    entries = [_entry("abs", "fail"), _entry("add", "pass"), _entry("acos", "skip"), _entry("mul", "crash")]
    final = expected.apply(entries, [listed], "staged")
    assert [entry.status for entry in final] == ["expected", "surprise", "skip", "crash"]
    assert "not yet (issue 7)" in final[0].message
    assert [entry.status for entry in expected.apply(entries, [listed], "zero-copy")] == [
        "fail",
        "pass",
        "skip",
        "crash",
    ]
    assert expected.unused([_entry("mul", "pass")], [listed], "staged") == [listed]


def test_bad_list_is_refused_with_every_complaint(tmp_path: Path) -> None:
    path = tmp_path / "list.toml"
    path.write_text('schema = 1\n[[failure]]\nops = ["a"]\nkind = "later"\nreasn = "x"\n')
    with pytest.raises(expected.BadList) as caught:
        expected.load(path)
    for word in ("unknown key 'reasn'", "reason is missing", "issue is missing", "kind is 'later'"):
        assert word in str(caught.value)


def test_committed_list_is_well_formed() -> None:
    assert all(item.reason and item.issue for item in expected.load())


def test_result_file_and_page(tmp_path: Path) -> None:
    entries = [
        _entry("abs", "pass"),
        _entry("abs", "fail", "int8", "out"),
        _entry("mul", "expected"),
        _entry("eye", "skip"),
    ]
    result = results.document(
        entries, device="cpu", mode="staged", selection="ci", exact=True, seconds=2.0, arguments=["run"]
    )
    results.write(result, tmp_path / "r.json")
    again = results.read(tmp_path / "r.json")
    assert json.loads(json.dumps(result)) == again
    assert again["entries"]["abs"]["int8"][database.CHECKS.index("out")] == "F"
    assert again["totals"]["pass"] == 1
    assert not results.green(again)
    text = pages.page([("r.json", again)])
    assert "1 of 3 (33.33 %)" in text
    assert "`abs:int8:out`" in text
    assert again["command"] == "python -m torch_fl.testing.ops run"


def _in_workers(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every worker run a program when it starts."""
    (folder / "sitecustomize.py").write_text(
        "import sys\nif 'worker' in sys.orig_argv:\n"
        + "".join(f"    {line}\n" for line in program.splitlines() if line)
    )
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")


_CRASHING = """
import os, signal
from torch_fl.testing.ops import checks
original = checks.run_check
def run_check(subject, check):
    subject.phase("device")
    if subject.name == "abs" and check == "strided":
        os.kill(os.getpid(), signal.SIGSEGV)
    if subject.name == "abs" and check == "edge":
        import time; time.sleep(60)
    return original(subject, check)
from torch_fl.testing.ops import worker
worker.run_check = run_check
"""


def test_crash_and_hang_cost_one_entry_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _in_workers(_CRASHING, tmp_path, monkeypatch)
    found: list[Entry] = []
    jobs = [
        database.Job("abs", "float32", ("forward", "strided", "edge", "inplace")),
        database.Job("neg", "int8", ("forward",)),
    ]
    Runner(attempt.Config("cpu", max_samples=2), 1, 15.0, found.append).run(jobs)
    by_name = {f"{entry.op}:{entry.check}": entry for entry in found}
    assert by_name["abs:strided"].status == "crash"
    assert "SIGSEGV" in by_name["abs:strided"].message
    assert by_name["abs:edge"].status == "timeout"
    for name in ("abs:forward", "abs:inplace", "neg:forward"):
        assert by_name[name].status == "pass", by_name[name]
    assert len(found) == 5


_LOSING = """
from torch_fl.testing.ops import attempt, checks
original = checks.run_check
def run_check(subject, check):
    if subject.name == "abs" and check in ("strided", "edge"):
        subject.phase("device" if check == "strided" else "reference")
        raise attempt.DeviceLost("AcceleratorError: assert in a kernel")
    return original(subject, check)
from torch_fl.testing.ops import worker
worker.run_check = run_check
"""


def test_lost_device_costs_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows runs in a new process, for the old one's device takes no more work."""
    _in_workers(_LOSING, tmp_path, monkeypatch)
    found: list[Entry] = []
    jobs = [database.Job("abs", "float32", ("forward", "strided", "edge", "inplace"))]
    Runner(attempt.Config("cpu", max_samples=2), 1, 60.0, found.append).run(jobs)
    statuses = {entry.check: entry.status for entry in found}
    assert statuses == {"forward": "pass", "strided": "crash", "edge": "skip", "inplace": "pass"}
    assert "assert in a kernel" in next(entry.message for entry in found if entry.check == "strided")


@pytest.mark.parametrize(
    ("op", "check"),
    [*[("cumsum", check) for check in ("forward", "out", "inplace", "backward")], ("gather", "errors")],
)
def test_another_device_serves_as_reference(op: str, check: str) -> None:
    config = attempt.Config("flagos:0", reference="flagos:1", max_samples=3)
    subject = checks.Subject(database.database()[op], torch.float32, config, lambda _: None)
    report = checks.run_check(subject, check)
    assert (report.status, report.message) == ("pass", "")


def test_worker_that_cannot_start_says_why() -> None:
    with pytest.raises(WorkersDoNotStart, match="nosuchdevice"):
        Runner(attempt.Config("nosuchdevice"), 1, 15.0, lambda _: None).run(
            [database.Job("abs", "float32", ("forward",))]
        )
