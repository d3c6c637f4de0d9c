"""The checks of the op level. Each runs an operator's samples on the reference and on the device and collects
complaints."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from torch_fl.testing.ops import gradients, outputs, randomness
from torch_fl.testing.ops.attempt import Attempt, Call, Config, Function, attempt, compare_attempts, summary
from torch_fl.testing.ops.database import op_name
from torch_fl.testing.ops.mirror import (
    emptied,
    has_plain_storage,
    interleaved,
    reversed_memory,
    scalared,
    tensors_in,
    transform,
)

# Operators whose result is memory as it was found: only its form can be compared.
UNINITIALISED = frozenset(
    [
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    ]
)

# Operators that on CPU give results with other last bits from call to call, too seldom for a few repetitions
# to show it.
UNSTABLE_ON_CPU = {"linalg.lstsq": "driver gelsy reads pivots that nobody initialised"}

# For results of other kernels than CPU's, which add in another order and may round in between.
_LOOSER = 20.0

# Arguments that PyTorch wants on CPU whatever the device of the rest, by position.
HOST_ARGUMENTS = {"tensor_split": 1}

Phase = Callable[[str], None]


@dataclass
class Report:
    """The outcome of one entry: status `pass`, `fail` or `skip`, the reason, and how many calls were
    compared."""

    status: str
    message: str = ""
    calls: int = 0


class Subject:
    """One operator with one data type: its samples, and calls of it on both devices."""

    def __init__(self, info: Any, dtype: torch.dtype, config: Config, phase: Phase) -> None:
        self.info = info
        self.dtype = dtype
        self.config = config
        self.phase = phase
        self.name = op_name(info)
        self.device_type = torch.device(config.device).type
        self.reference_type = torch.device(config.reference).type
        self._samples: dict[bool, list[Any]] = {}

    def samples(self, *, requires_grad: bool = False, most: int | None = None) -> list[Any]:
        """Return samples made on CPU, spread evenly over those PyTorch offers; the first and the last are
        among them."""
        if requires_grad not in self._samples:
            torch.manual_seed(self.config.seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = self.info.sample_inputs("cpu", self.dtype, requires_grad=requires_grad)
                self._samples[requires_grad] = list(found)
        everything = self._samples[requires_grad]
        limit = min(self.config.max_samples, most or self.config.max_samples)
        if len(everything) <= limit:
            return everything
        step = (len(everything) - 1) / max(limit - 1, 1)
        return [everything[round(index * step)] for index in range(limit)]

    def against_cpu(self) -> Subject:
        """Return the subject as compared where the reference cannot serve: with CPU, within tolerance."""
        if self.reference_type == "cpu":
            return self
        config = replace(self.config, reference="cpu", exact=False, looser=_LOOSER)
        return Subject(self.info, self.dtype, config, self.phase)

    def both(self, function: Function, call: Call) -> tuple[Attempt, Attempt]:
        """Return the call on the device and on the reference, which goes first, so that a crash can be told
        apart."""
        function, call = _unhidden(function), self._placed(call)
        self.phase("reference")
        theirs = attempt(function, call, self.config.reference, self.config.seed)
        self.phase("device")
        ours = attempt(function, call, self.config.device, self.config.seed)
        return ours, theirs

    def compare(
        self, function: Function, call: Call, *, strict: bool = True, accumulated: bool = False
    ) -> tuple[Attempt, Attempt, list[str] | None]:
        """Return the call on the device, on the reference, and the complaints; None instead of these where it
        cannot serve as one.

        Args:
            function, call: what to do.
            strict: an error on the reference must be one on the device; else it means that there is none.
            accumulated: the autograd engine adds several terms into the result. It does so in another order
                and layout for an accelerator, so that last bits and strides say nothing about operators.
        """
        ours, theirs = self.both(function, call)
        if theirs.error is not None and not strict:
            return ours, theirs, None
        if self.reference_type != "cpu" and isinstance(theirs.error, NotImplementedError):
            return ours, theirs, None  # it has no kernel; the device may go to the host
        if accumulated:
            return (
                ours,
                theirs,
                [c for c in self._complaints(ours, theirs, exact=False) if "strides are" not in c],
            )
        complaints: list[str] | None = self._complaints(ours, theirs, exact=self.config.exact)
        if complaints and theirs.error is None and ours.error is None:
            # It may differ from itself: by the alignment of memory (LAPACK), by the order of atomic
            # additions, or because it reads what nobody wrote.
            agreement = self._reference_agrees(function, call, theirs)
            if agreement != "exact":
                complaints = self._complaints(ours, theirs, exact=False) if agreement == "close" else None
        return ours, theirs, complaints

    def _complaints(self, ours: Attempt, theirs: Attempt, *, exact: bool) -> list[str]:
        values = self.info.name not in UNINITIALISED and not getattr(
            self.info, "has_nondeterministic_output", False
        )
        return compare_attempts(ours, theirs, exact=exact, values=values, looser=self.config.looser)

    def _reference_agrees(self, function: Function, call: Call, first: Attempt) -> str:
        """Return how well the reference agrees with itself at other addresses: `exact`, `close` or `not`."""
        function, call = _unhidden(function), self._placed(call)
        in_the_way: list[Any] = []
        agreement = "close" if self.info.name in UNSTABLE_ON_CPU else "exact"
        self.phase("reference")
        for step in range(8):
            in_the_way += [
                torch.full((count,), float(step)) for count in (5, 37 + 16 * step, 1000 * step + 1)
            ]
            for size in (8, 64, 512, 4096):  # freed at once: what is found in memory that nobody wrote
                torch.full((size,), 17 * step + 1, dtype=torch.uint8)
            # In this mode PyTorch fills what it allocates with NaN: results made of it show.
            torch.use_deterministic_algorithms(step == 0, warn_only=True)
            again = attempt(function, call, self.config.reference, self.config.seed)
            torch.use_deterministic_algorithms(False)
            in_the_way.append(again)
            if self._complaints(again, first, exact=False):
                return "not"
            if self._complaints(again, first, exact=True):
                agreement = "close"
        return agreement

    def _placed(self, call: Call) -> Call:
        position = HOST_ARGUMENTS.get(self.info.name)
        if (
            position is None
            or len(call.args) <= position
            or not isinstance(call.args[position], torch.Tensor)
        ):
            return call
        args = list(call.args)
        args[position] = _OnHost(args[position])
        return Call(tuple(args), call.kwargs)


class _OnHost:
    """Hides an argument from the mirror, which moves what it recognises."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def _unhidden(function: Function) -> Function:
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*[arg.tensor.clone() if isinstance(arg, _OnHost) else arg for arg in args], **kwargs)

    return call


def call_of(sample: Any) -> Call:
    """Return the arguments of a sample as one call."""
    return Call((sample.input, *sample.args), dict(sample.kwargs))


Pairs = Iterator[
    tuple[str, list[str] | None]
]  # name of the call; complaints, or None where there is no reference


def _forward(subject: Subject) -> Pairs:
    function = subject.info.get_op()
    for index, sample in enumerate(subject.samples()):
        call = call_of(sample)
        ours, theirs, complaints = subject.compare(function, call, strict=False)
        if theirs.random and complaints == [] and index < 4:
            complaints = randomness.complaints(
                subject.info.name, function, call, ours, theirs, subject.config
            )
        yield f"sample {index}", complaints


def _changed(
    subject: Subject,
    changes: Mapping[str, Callable[[torch.Tensor], torch.Tensor]],
    most: int,
    *,
    strict: bool,
) -> Pairs:
    """Run samples with all their tensors changed. Strict: where the reference raises, the device must too."""
    function = subject.info.get_op()
    names = list(changes)
    for index, sample in enumerate(subject.samples(most=most)):
        chosen = names if strict else [names[index % len(names)]]
        for name in chosen:
            change = changes[name]
            original = call_of(sample)
            plain = [t for t in tensors_in(original.everything()) if has_plain_storage(t)]
            if not plain:
                continue
            args, kwargs = transform(original.everything(), _on_tensors(change))
            call = Call(args, kwargs)
            yield f"sample {index} {name}", subject.compare(function, call, strict=strict)[2]


def _on_tensors(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    return lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf


def _strided(subject: Subject) -> Pairs:
    changes = {"interleaved": interleaved, "reversed memory": reversed_memory}
    yield from _changed(subject, changes, 12, strict=False)


def _edge(subject: Subject) -> Pairs:
    yield from _changed(subject, {"emptied": emptied, "0-dim": scalared}, 3, strict=True)


def _conjugated(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.conj() if tensor.is_complex() and has_plain_storage(tensor) else tensor


def _negated(tensor: torch.Tensor) -> torch.Tensor:
    if not has_plain_storage(tensor) or not (tensor.is_complex() or tensor.is_floating_point()):
        return tensor
    return torch._neg_view(tensor)


def _conj_neg(subject: Subject) -> Pairs:
    changes = {"conjugate views": _conjugated} if subject.dtype.is_complex else {}
    yield from _changed(subject, {**changes, "negative views": _negated}, 4, strict=False)


def _errors(subject: Subject) -> Pairs:
    torch.manual_seed(subject.config.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = list(subject.info.error_inputs("cpu"))
    function = subject.info.get_op()
    for index, case in enumerate(cases):
        ours, theirs = subject.both(function, call_of(case.sample_input))
        if theirs.error is None or not re.search(case.error_regex, str(theirs.error)):
            yield f"error {index}", None
        elif ours.error is None:
            yield f"error {index}", [f"no error; the reference raises {summary(theirs.error)}"]
        elif not isinstance(ours.error, case.error_type) or not re.search(case.error_regex, str(ours.error)):
            yield (
                f"error {index}",
                [f"raises {summary(ours.error)}; the reference raises {summary(theirs.error)}"],
            )
        else:
            yield f"error {index}", []


_RUNNERS: dict[str, Callable[[Subject], Pairs]] = {
    "forward": _forward,
    "strided": _strided,
    "edge": _edge,
    "conj_neg": _conj_neg,
    "out": outputs.out,
    "inplace": outputs.inplace,
    "backward": gradients.backward,
    "gradgrad": gradients.gradgrad,
    "forward_ad": gradients.forward_ad,
    "errors": _errors,
}


def run_check(subject: Subject, check: str) -> Report:
    """Run one check of one operator and data type to its end."""
    failed: list[str] = []
    calls = without_reference = 0
    subject.phase("samples")
    for name, complaints in _RUNNERS[check](subject):
        if complaints is None:
            without_reference += 1
            continue
        calls += 1
        if complaints:
            failed.append(f"{name}: {'; '.join(complaints[:3])}")
    if failed:
        shown = " | ".join(failed[:3])
        return Report("fail", f"{len(failed)} of {calls} calls. {shown}", calls)
    if calls == 0:
        reason = "the reference itself raises on every sample" if without_reference else "no sample applies"
        return Report("skip", reason)
    return Report("pass", "", calls)
