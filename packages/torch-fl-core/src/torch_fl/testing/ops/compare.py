"""Whether what an operator did on the device is what it did on the reference, CPU or another device: values,
types, strides, aliases, side effects."""

from __future__ import annotations

from typing import Any

import torch

from torch_fl.testing.ops.mirror import has_plain_storage, tensors_in, transform

_FLOAT8 = frozenset(
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
    if hasattr(torch, name)
)


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's values as a plain CPU tensor, without conj or neg bit."""
    moved = tensor.detach().cpu()
    if moved.layout == torch.strided and not moved.is_nested:
        moved = moved.resolve_conj().resolve_neg()
    return moved


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """Return values in a type in which CPU has comparison and arithmetic."""
    if tensor.dtype in _FLOAT8 or tensor.dtype in (torch.float16, torch.bfloat16):
        return tensor.float()
    if tensor.dtype == torch.complex32:
        return tensor.to(torch.complex64)
    if tensor.dtype in (torch.uint16, torch.uint32):
        return tensor.to(torch.int64)
    if tensor.dtype == torch.uint64:
        return tensor.view(torch.int64)
    return tensor


def _same_bytes(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    if ours.numel() == 0:
        return True
    return torch.equal(_bytes(ours), _bytes(theirs))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    # A clone, for contiguous() keeps odd strides of dimensions of size 1, which view(dtype) refuses.
    return tensor.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


def _describe_difference(ours: torch.Tensor, theirs: torch.Tensor) -> str | None:
    """Return how two tensors of one shape differ, or None if they are equal (NaN equals NaN, 0 equals -0)."""
    ours, theirs = _comparable(ours), _comparable(theirs)
    same = ours == theirs
    if ours.is_floating_point() or ours.is_complex():
        same |= ours.isnan() & theirs.isnan()
    different = ~same
    count = int(different.sum())
    if count == 0:
        return None
    where = tuple(int(i) for i in different.nonzero()[0])
    return (
        f"{count} of {ours.numel()} elements differ, first at {list(where)}: "
        f"{ours[where].item()!r}, reference {theirs[where].item()!r}"
    )


def compare_values(
    ours: torch.Tensor, theirs: torch.Tensor, what: str, *, exact: bool, looser: float = 1.0
) -> list[str]:
    """Return complaints about the values of a device tensor against its counterpart on the reference.

    Args:
        ours: on the device.
        theirs: on the reference, same shape and type.
        what: how to name it in a complaint.
        exact: bit for bit (NaN equals NaN), or within torch.testing's tolerance of the type.
        looser: how many times that tolerance.
    """
    if ours.is_nested or theirs.is_nested:
        pairs = zip(ours.unbind(), theirs.unbind(), strict=True)
        return [
            complaint
            for a, b in pairs
            for complaint in compare_values(a, b, what, exact=exact, looser=looser)
        ]
    a, b = on_host(ours), on_host(theirs)
    if a.layout != torch.strided:
        if not exact:
            return _close(a, b, what, looser=looser)
        a, b = a.to_dense(), b.to_dense()
    if a.is_quantized:
        a, b = a.int_repr(), b.int_repr()
    if _same_bytes(a, b):
        return []
    difference = _describe_difference(a, b)
    if difference is None:
        return []
    if exact:
        return [f"{what}: {difference}"]
    return _close(_comparable(a), _comparable(b), what, ours.dtype, looser)


def _close(
    a: torch.Tensor, b: torch.Tensor, what: str, dtype: torch.dtype | None = None, looser: float = 1.0
) -> list[str]:
    rtol, atol = _TOLERANCES.get(dtype or a.dtype, (None, None))
    if looser != 1.0:
        if rtol is None or atol is None:
            rtol, atol = torch.testing._comparison.default_tolerances(a.dtype)
        rtol *= looser
        atol = max(atol * looser, rtol)  # terms of size 1 may cancel
    try:
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return [f"{what}: {' '.join(str(error).split())}"]
    return []


# Relative and absolute, where the values are compared in a wider type than the one they were computed in.
_TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.complex32: (1e-3, 1e-5),
}


def compare_form(ours: torch.Tensor, theirs: torch.Tensor, what: str, device: torch.device) -> list[str]:
    """Return complaints about everything of a tensor but its values."""
    complaints = []
    if ours.device.type != device.type:
        complaints.append(f"{what}: is on {ours.device}, expected {device}")
    for name in ("dtype", "shape", "layout", "requires_grad"):
        mine, wanted = getattr(ours, name), getattr(theirs, name)
        if mine != wanted:
            complaints.append(f"{what}: {name} is {mine}, reference {wanted}")
    if complaints or not has_plain_storage(theirs) or not has_plain_storage(ours):
        return complaints
    if ours.stride() != theirs.stride():
        complaints.append(
            f"{what}: strides are {ours.stride()}, reference {theirs.stride()} (shape {tuple(ours.shape)})"
        )
    for name in ("is_conj", "is_neg"):
        mine, wanted = getattr(ours, name)(), getattr(theirs, name)()
        if mine != wanted:
            complaints.append(f"{what}: {name}() is {mine}, reference {wanted}")
    return complaints


def _alias_of(output: torch.Tensor, inputs: list[torch.Tensor]) -> tuple[int | None, int]:
    """Return which input the output shares memory with, and its offset."""
    if not has_plain_storage(output):
        return None, 0
    mine = output.untyped_storage()._cdata
    for index, candidate in enumerate(inputs):
        if has_plain_storage(candidate) and candidate.untyped_storage()._cdata == mine:
            return index, int(output.storage_offset())
    return None, 0


def compare_results(
    ours: Any,
    theirs: Any,
    our_inputs: Any,
    their_inputs: Any,
    *,
    device: torch.device,
    exact: bool,
    values: bool = True,
    looser: float = 1.0,
    what: str = "result",
) -> list[str]:
    """Return complaints about an operator's result on the device against its result on the reference.

    Args:
        ours, theirs: the results, any nesting of tensors and plain values.
        our_inputs, their_inputs: the arguments, to compare which result is a view of which argument.
        device: where every tensor of `ours` must be.
        exact, looser: see compare_values.
        values: False for results that are random or uninitialised; form and aliases are compared all the
            same.
        what: how to name it in a complaint.
    """
    our_tensors, their_tensors = tensors_in(ours), tensors_in(theirs)
    if len(our_tensors) != len(their_tensors):
        return [f"{what}: {len(our_tensors)} tensors, reference {len(their_tensors)}"]
    complaints = []
    our_arguments, their_arguments = tensors_in(our_inputs), tensors_in(their_inputs)
    for index, (mine, wanted) in enumerate(zip(our_tensors, their_tensors, strict=True)):
        name = what if len(our_tensors) == 1 else f"{what}[{index}]"
        wrong = compare_form(mine, wanted, name, device)
        my_alias, wanted_alias = _alias_of(mine, our_arguments), _alias_of(wanted, their_arguments)
        if my_alias != wanted_alias:
            wrong.append(
                f"{name}: shares memory with argument {my_alias}, reference {wanted_alias} (argument, offset)"
            )
        if values and mine.shape == wanted.shape and mine.dtype == wanted.dtype:
            wrong += compare_values(mine, wanted, name, exact=exact, looser=looser)
        complaints += wrong
    if values:
        complaints += _compare_plain(ours, theirs, what, exact=exact)
    return complaints


def _compare_plain(ours: Any, theirs: Any, what: str, *, exact: bool) -> list[str]:
    """Return complaints about the numbers, truths and names in a result."""
    mine, wanted = _plain(ours), _plain(theirs)
    for a, b in zip(mine, wanted, strict=False):
        if type(a) is not type(b):
            return [f"{what}: {a!r}, reference {b!r}"]
        if a == b or (a != a and b != b):
            continue
        if not exact and isinstance(a, float) and abs(a - b) <= 1e-5 + 1e-5 * abs(b):
            continue
        return [f"{what}: {a!r}, reference {b!r}"]
    return [] if len(mine) == len(wanted) else [f"{what}: {len(mine)} values, reference {len(wanted)}"]


def _plain(value: Any) -> list[Any]:
    found: list[Any] = []

    def visit(leaf: Any) -> Any:
        if isinstance(leaf, (bool, int, float, complex, str, torch.dtype)):
            found.append(leaf)
        return leaf

    transform(value, visit)
    return found


def two_samples_differ(ours: torch.Tensor, theirs: torch.Tensor, *, level: float = 1e-7) -> str | None:
    """Return a complaint if two samples of numbers are unlikely to come from one distribution
    (Kolmogorov-Smirnov).

    Args:
        ours, theirs: [n] and [m], real numbers on CPU.
        level: the chance to complain about equal distributions.
    """
    a, b = ours.double().sort().values, theirs.double().sort().values
    n, m = a.numel(), b.numel()
    points = torch.cat([a, b])
    above = torch.searchsorted(a, points, right=True) / n - torch.searchsorted(b, points, right=True) / m
    distance = float(above.abs().max())
    bound = float(torch.sqrt(-torch.log(torch.tensor(level / 2)) / 2 * (n + m) / (n * m)))
    if distance <= bound:
        return None
    return (
        f"distribution differs from the reference's: distance {distance:.3f}, limit {bound:.3f}, "
        f"of {n} and {m} numbers"
    )
