"""The entries of the op level: which operators, data types and checks exist, and which of them make the CI
slice.

An entry is one check of one operator with one data type, named `operator:dtype:check`. Operators come from
PyTorch's OpInfo database, so the list follows the torch in the environment.
"""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

# In the order they run and are reported.
CHECKS = (
    "forward",
    "strided",
    "edge",
    "conj_neg",
    "out",
    "inplace",
    "backward",
    "gradgrad",
    "forward_ad",
    "errors",
)

DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "complex32",
    "complex64",
    "complex128",
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint16",
    "uint32",
    "uint64",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
)

# Second derivatives and forward mode re-use the kernels that `forward` and `backward` compare in every type;
# double shows their wiring.
_DEEP_DTYPE = torch.float64

_FOREACH_KINDS = ("unary", "binary", "pointwise", "reduce", "other")


@dataclass(frozen=True)
class Job:
    """The checks of one operator with one data type; the unit handed to a worker."""

    op: str
    dtype: str
    checks: tuple[str, ...]


def op_name(info: Any) -> str:
    """Return the unique name of an OpInfo: the operator's, with the variant after a dot."""
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else str(info.name)


@cache
def database() -> dict[str, Any]:
    """Return PyTorch's operator database by unique name. Takes seconds: it imports torch's test internals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal import common_methods_invocations as invocations
    _let_random_operators_draw()
    foreach = [getattr(invocations, f"foreach_{kind}_op_db", []) for kind in _FOREACH_KINDS]
    return {op_name(info): info for infos in (invocations.op_db, *foreach) for info in infos}


def _let_random_operators_draw() -> None:
    """Make OpInfo's random operators plain calls.

    PyTorch wraps them in `wrapper_set_seed`, which seeds with a constant and puts the state back: then nobody
    can see that they are random, and every seed gives one result.
    """

    def call(operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing._internal") and hasattr(module, "wrapper_set_seed"):
            module.wrapper_set_seed = call  # type: ignore[attr-defined]


def dtype_name(dtype: torch.dtype) -> str:
    """Return `float32` for torch.float32."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """Return torch.float32 for `float32`."""
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is no data type; one of {', '.join(DTYPES)}")
    return dtype


def checks_for(info: Any, dtype: torch.dtype, *, first: bool) -> tuple[str, ...]:
    """Return the checks that apply to an operator with a data type, in order.

    Args:
        info: an OpInfo.
        dtype: one of the types it supports on CPU.
        first: whether this is the type that carries the checks made once per operator.
    """
    found = ["forward", "strided", "edge"]
    if dtype in (torch.complex64, torch.complex128, torch.float32, torch.float64):
        found.append("conj_neg")
    if info.supports_out and not info.name.startswith("_foreach_"):
        found.append("out")
    if info.get_inplace() is not None:
        found.append("inplace")
    differentiable = dtype.is_floating_point or dtype.is_complex
    if differentiable and info.supports_autograd and dtype in info.supported_backward_dtypes("cpu"):
        found.append("backward")
        if dtype == _DEEP_DTYPE and info.supports_gradgrad:
            found.append("gradgrad")
    if dtype == _DEEP_DTYPE and info.supports_forward_ad:
        found.append("forward_ad")
    if first and info.error_inputs_func is not None:
        found.append("errors")
    return tuple(check for check in CHECKS if check in found)


def _supported(info: Any) -> list[torch.dtype]:
    supported = info.supported_dtypes("cpu")
    return [dtype_of(name) for name in DTYPES if hasattr(torch, name) and dtype_of(name) in supported]


def all_jobs() -> list[Job]:
    """Return every entry of the database, grouped by operator and data type, in the database's order."""
    jobs = []
    for name, info in database().items():
        for position, dtype in enumerate(_supported(info)):
            jobs.append(Job(name, dtype_name(dtype), checks_for(info, dtype, first=position == 0)))
    return jobs


def ci_jobs() -> list[Job]:
    """Return the fixed slice that CI runs: every operator with float32 and with one more data type.

    The second type is chosen by a hash of the operator's name, so that all types are met over the database
    and two runs are the same run. An operator without float32 gives its first type in its place.
    """
    by_op: dict[str, list[Job]] = {}
    for job in all_jobs():
        by_op.setdefault(job.op, []).append(job)
    chosen = []
    for name, jobs in by_op.items():
        chosen.append(jobs[0])
        others = jobs[1:]
        if others:
            digest = hashlib.sha256(name.encode()).digest()
            chosen.append(others[int.from_bytes(digest[:4], "big") % len(others)])
    return chosen


def select(jobs: list[Job], ops: list[str], dtypes: list[str], checks: list[str]) -> list[Job]:
    """Return the jobs whose operator, data type and checks match one of the patterns given (shell style; none
    means all).

    Raises: ValueError if a pattern matches nothing, with close names.
    """
    _require_match("operator", ops, {job.op for job in jobs})
    _require_match("data type", dtypes, {job.dtype for job in jobs})
    _require_match("check", checks, set(CHECKS))
    selected = []
    for job in jobs:
        if not _matches(job.op, ops) or not _matches(job.dtype, dtypes):
            continue
        kept = tuple(check for check in job.checks if _matches(check, checks))
        if kept:
            selected.append(Job(job.op, job.dtype, kept))
    return selected


def _matches(value: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatch.fnmatchcase(value, pattern) for pattern in patterns)


def _require_match(what: str, patterns: list[str], values: set[str]) -> None:
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(value, pattern) for value in values):
            close = difflib.get_close_matches(pattern, sorted(values), n=3)
            hint = f"; close: {', '.join(close)}" if close else ""
            raise ValueError(f"no {what} matches {pattern!r}{hint}")
