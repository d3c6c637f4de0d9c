"""The checks of `out=` and of in-place variants: what is written, where, and what must stay as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from torch_fl.testing.ops.attempt import Attempt, Call, attempt
from torch_fl.testing.ops.compare import on_host
from torch_fl.testing.ops.mirror import has_plain_storage, interleaved, tensors_in, transform

if TYPE_CHECKING:
    from torch_fl.testing.ops.checks import Pairs, Subject


def _fill(tensor: torch.Tensor) -> torch.Tensor:
    """Fill with a value that no kernel leaves by accident."""
    if tensor.dtype.itemsize == 1 and tensor.is_floating_point():
        tensor.view(torch.uint8).fill_(0x2B)
    elif tensor.dtype in (torch.uint16, torch.uint32, torch.uint64):
        tensor.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.dtype.itemsize]).fill_(77)
    else:
        tensor.fill_(77)
    return tensor


def _right(like: torch.Tensor) -> torch.Tensor:
    return _fill(torch.empty_strided(like.size(), like.stride(), dtype=like.dtype))


def _wrong_size(like: torch.Tensor) -> torch.Tensor:
    shape = (1,) if like.dim() == 0 else (like.shape[0] + 1, *like.shape[1:])
    return _fill(torch.empty(shape, dtype=like.dtype))


def _no_size(like: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=like.dtype)


def _strided(like: torch.Tensor) -> torch.Tensor:
    return interleaved(_fill(torch.empty(like.shape, dtype=like.dtype)))


def _wrong_dtype(like: torch.Tensor) -> torch.Tensor:
    other = torch.int32 if like.is_floating_point() or like.is_complex() else torch.float64
    return torch.zeros(like.shape, dtype=other)


_FORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "right size": _right,
    "wrong size": _wrong_size,
    "no size": _no_size,
    "strided": _strided,
    "other dtype": _wrong_dtype,
}


def _resize_warnings(outcome: Attempt) -> int:
    return sum("was resized since it had shape" in text for text in outcome.warned)


def _pointers(tensors: list[torch.Tensor]) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


def out(subject: Subject) -> Pairs:
    """Compare `out=` of the right size, a wrong one (with its warning), none, strided, of another type."""
    operator = subject.info.get_op()
    for index, sample in enumerate(subject.samples(most=6)):
        plain = Call((sample.input, *sample.args), dict(sample.kwargs))
        subject.phase("reference")
        wanted = attempt(operator, plain, subject.config.reference, subject.config.seed)
        usable = isinstance(wanted.result, (torch.Tensor, tuple, list)) and all(
            isinstance(item, torch.Tensor) and has_plain_storage(item) for item in _items(wanted.result)
        )
        if wanted.error is not None or not usable:
            yield f"sample {index}", None
            continue
        for name, form in _FORMS.items():
            if name in ("no size", "other dtype") and index > 1:
                continue
            yield f"sample {index} out {name}", _out_once(subject, operator, plain, wanted.result, form)


def _items(result: Any) -> list[Any]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def _out_once(
    subject: Subject, operator: Any, plain: Call, wanted: Any, form: Callable[[torch.Tensor], torch.Tensor]
) -> list[str] | None:
    given = transform(wanted, lambda leaf: form(on_host(leaf)))
    if not isinstance(given, torch.Tensor):
        given = list(given) if isinstance(wanted, list) else tuple(given)
    before: dict[str, list[int]] = {}

    def function(*args: Any, out: Any, **kwargs: Any) -> Any:
        before[_items(out)[0].device.type] = _pointers(_items(out))
        return operator(*args, **kwargs, out=out)

    ours, theirs, complaints = subject.compare(function, Call(plain.args, {**plain.kwargs, "out": given}))
    if isinstance(theirs.error, TypeError):  # no such argument in the overload that this sample calls
        return None
    if complaints is None or complaints or theirs.error is not None:
        return complaints
    mine, reference = _items(ours.call.kwargs["out"]), _items(theirs.call.kwargs["out"])
    if _resize_warnings(ours) != _resize_warnings(theirs):
        complaints.append(f"{_resize_warnings(ours)} resize warnings, reference {_resize_warnings(theirs)}")
    kept = [a == b for a, b in zip(before[subject.device_type], _pointers(mine), strict=True)]
    theirs_kept = [a == b for a, b in zip(before[subject.reference_type], _pointers(reference), strict=True)]
    if subject.device_type != subject.reference_type and any(
        b and not a for a, b in zip(kept, theirs_kept, strict=True)
    ):
        complaints.append("out= was given other memory; the reference writes into what it was given")
    returned = _items(ours.result) if ours.result is not None else []
    theirs_returned = _items(theirs.result) if theirs.result is not None else []
    same = [a is b for a, b in zip(returned, mine, strict=False)]
    if same != [a is b for a, b in zip(theirs_returned, reference, strict=False)]:
        complaints.append("the tensor returned is not the one given as out=")
    return complaints


def inplace(subject: Subject) -> Pairs:
    """Compare the in-place variant: result, identity, address, version counter, and what lies between strided
    elements."""
    operator = subject.info.get_inplace()
    for index, sample in enumerate(subject.samples(most=16)):
        for name, change in (("", None), (" interleaved", interleaved)):
            if change is not None and index > 5:
                continue
            target = sample.input
            if change is not None:
                target = transform(
                    target, lambda leaf: interleaved(leaf) if isinstance(leaf, torch.Tensor) else leaf
                )
            call = Call((target, *sample.args), dict(sample.kwargs))
            complaints = _inplace_once(subject, operator, call)
            yield f"sample {index}{name}", complaints


def _inplace_once(subject: Subject, operator: Any, call: Call) -> list[str] | None:
    seen: dict[str, tuple[list[int], list[int]]] = {}

    def function(target: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = tensors_in(target)
        before = _pointers(tensors) if all(map(has_plain_storage, tensors)) else []
        versions = [tensor._version for tensor in tensors]
        result = operator(target, *args, **kwargs)
        moved = [a != b for a, b in zip(before, _pointers(tensors) if before else [], strict=True)]
        bumped = [tensor._version - version for tensor, version in zip(tensors, versions, strict=True)]
        identity = "same" if result is target else "other"
        where = tensors[0].device.type if tensors else "cpu"
        seen[where] = ([int(flag) for flag in moved], bumped)
        return [result, identity]

    _, theirs, complaints = subject.compare(function, call)
    if complaints is None or complaints or theirs.error is not None:
        return complaints
    mine, reference = seen.get(subject.device_type), seen.get(subject.reference_type)
    if mine is not None and reference is not None:
        if mine[0] != reference[0]:
            complaints.append("the tensor changed its memory; the reference does not")
        # Some of CUDA's list kernels do not count; that the device does is no fault.
        counted = [max(pair) for pair in zip(mine[1], reference[1], strict=True)]
        if mine[1] != (reference[1] if subject.reference_type == "cpu" else counted):
            complaints.append(f"version counter rose by {mine[1]}, reference {reference[1]}")
    return complaints
