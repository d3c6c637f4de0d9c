"""The conditions of a candidate: `when = {dtype = "float16", max_rank = 4, args = {keepdim = false}}`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch_fl_base.routes.errors import Complaints, KeyPath, did_you_mean, kind_of, known_names

DTYPES = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16",
    "float32", "float64", "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2", "qint8", "quint8", "qint32",
)  # fmt: skip
LAYOUTS = ("strided",)
# The same dtypes under names that PyTorch knows too.
_ALIASES = {"half": "float16", "float": "float32", "double": "float64", "long": "int64", "int": "int32"}

Arguments = Callable[[], Mapping[str, Mapping[str, str] | None]]
"""Returns name and type of each argument by operator; None where the schema is not known."""


class _Refused(ValueError):
    """A value is not allowed; the message says what is."""


def _dtypes(value: Any) -> list[str]:
    names = [
        str(name).removeprefix("torch.") for name in (value if isinstance(value, (list, tuple)) else [value])
    ]
    if not names:
        raise _Refused("is empty")
    for name in names:
        if name not in DTYPES:
            hint = f" Did you mean {_ALIASES[name]!r}?" if name in _ALIASES else did_you_mean(name, DTYPES)
            raise _Refused(f"{name!r} is no dtype.{hint}")
    return names


def _whole(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if type(value) is not int or value < least:
            raise _Refused(f"expected an integer of at least {least}, not {_shown(value)}")
        return value

    return read


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Refused(f"expected true or false, not {_shown(value)}")
    return value


def _layout(value: Any) -> str:
    name = str(value).removeprefix("torch.")
    if name not in LAYOUTS:
        raise _Refused(f"{name!r} is no layout that can be routed. Allowed: {', '.join(LAYOUTS)}.")
    return name


def _devices(value: Any) -> list[int]:
    indices = list(value) if isinstance(value, (list, tuple)) else [value]
    if not indices or any(type(index) is not int or index < 0 for index in indices):
        raise _Refused(f"expected indices of devices within the backend, not {_shown(value)}")
    return indices


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a table" if value else "an empty table"
    return f"{kind_of(value)} ({value!r})"


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _Refused(f"expected a number as bound, not {_shown(value)}")
    return value


_count = _whole(0)
_LAST_DIM: dict[str, Callable[[Any], Any]] = {"min": _count, "max": _count, "multiple_of": _whole(1)}
_SIMPLE: dict[str, Callable[[Any], Any]] = {
    "dtype": _dtypes,
    "rank": _count,
    "min_rank": _count,
    "max_rank": _count,
    "min_numel": _count,
    "max_numel": _count,
    "contiguous": _truth,
    "layout": _layout,
    "zero_size": _truth,
    "devices": _devices,
}
KEYS = (*_SIMPLE, "last_dim", "args")
_ARGUMENT_BOUNDS: dict[str, Callable[[Any], Any]] = {
    "min": _number,
    "max": _number,
    "min_len": _count,
    "max_len": _count,
}


def read_conditions(
    value: Any, path: KeyPath, complaints: Complaints, arguments: Arguments
) -> dict[str, Any]:
    """Return the conditions of a candidate in their plain form: `dtype` and `devices` are lists.

    Args:
        value: what stands behind `when`.
        arguments: of the operators that the candidate is for.
    Every fault goes to `complaints`; a condition that has one is left out.
    """
    if not isinstance(value, Mapping) or not value:
        complaints.add(path, f"expected a table of conditions, not {_shown(value)}")
        return {}
    read: dict[str, Any] = {}
    for key, content in value.items():
        here = (*path, key)
        if key in _SIMPLE:
            _try(_SIMPLE[key], content, here, complaints, read)
        elif key == "last_dim":
            inner = _table(content, here, complaints, _LAST_DIM)
            if inner:
                read[key] = inner
        elif key == "args":
            inner = _arguments(content, here, complaints, arguments)
            if inner:
                read[key] = inner
        else:
            complaints.add(here, f"unknown condition.{known_names(key, KEYS)}")
    _contradictions(read, path, complaints)
    return read


def _try(
    reader: Callable[[Any], Any], value: Any, path: KeyPath, complaints: Complaints, into: dict[str, Any]
) -> None:
    try:
        into[str(path[-1])] = reader(value)
    except _Refused as refusal:
        complaints.add(path, str(refusal))


def _table(
    value: Any, path: KeyPath, complaints: Complaints, readers: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not value:
        complaints.add(path, f"expected a table with {', '.join(readers)}")
        return {}
    read: dict[str, Any] = {}
    for key, content in value.items():
        if key in readers:
            _try(readers[key], content, (*path, key), complaints, read)
        else:
            complaints.add((*path, key), f"unknown bound.{known_names(key, readers)}")
    return read


def _arguments(value: Any, path: KeyPath, complaints: Complaints, arguments: Arguments) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not value:
        complaints.add(path, "expected a table of argument names with their values")
        return {}
    read: dict[str, Any] = {}
    for name, content in value.items():
        here = (*path, name)
        kind = _argument_kind(name, here, complaints, arguments)
        if kind is not None:
            _try(partial(_argument, kind=kind), content, here, complaints, read)
    return read


def _argument_kind(name: str, path: KeyPath, complaints: Complaints, arguments: Arguments) -> str | None:
    """Return the type of an argument, "" if it is not known; None after a complaint."""
    kind = ""
    for op, known in arguments().items():
        if known is None:
            continue
        if name not in known:
            complaints.add(
                path, f"{op} has no argument {name!r}.{did_you_mean(name, known)} It has: {', '.join(known)}."
            )
            return None
        kind = known[name]
    return kind


def _argument(value: Any, kind: str) -> Any:
    """Return the condition on one argument of a type; "" is an unknown type."""
    optional = not kind or kind.startswith("Optional")
    if value == "none" and optional:
        return value
    if "Tensor" in kind:
        none = ', or with "none"' if optional else ""
        raise _Refused(f"the argument is {kind}; conditions compare with numbers, truths and texts{none}")
    if isinstance(value, Mapping):
        return _argument_bounds(value, kind)
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if not values:
        raise _Refused("is empty")
    for single in values:
        if not isinstance(single, (bool, int, float, str)):
            raise _Refused(f"expected a truth value, a number, a text or a list, not {_shown(single)}")
        if kind in ("bool", "Optional[bool]") and not isinstance(single, bool):
            raise _Refused(f"the argument is a truth value, and {single!r} is none")
    return values if isinstance(value, (list, tuple)) else value


def _argument_bounds(value: Mapping[str, Any], kind: str) -> dict[str, Any]:
    unknown = next((key for key in value if key not in _ARGUMENT_BOUNDS), None)
    if unknown is not None or not value:
        raise _Refused(f"has an unknown bound.{known_names(unknown or '', _ARGUMENT_BOUNDS)}")
    for key in value:
        if key.endswith("_len") and kind and "List" not in kind:
            raise _Refused(f"{key} bounds a list, but the argument is {kind}")
    return {key: _ARGUMENT_BOUNDS[key](bound) for key, bound in value.items()}


def _contradictions(read: Mapping[str, Any], path: KeyPath, complaints: Complaints) -> None:
    """Complain of bounds that no call can meet."""
    pairs = [(read, "min_rank", "max_rank", path), (read, "min_numel", "max_numel", path)]
    pairs.append((read.get("last_dim", {}), "min", "max", (*path, "last_dim")))
    for name, bound in read.get("args", {}).items():
        if isinstance(bound, Mapping):
            pairs += [(bound, "min", "max", (*path, "args", name))]
            pairs += [(bound, "min_len", "max_len", (*path, "args", name))]
    for table, least, most, where in pairs:
        if least in table and most in table and table[least] > table[most]:
            complaints.add((*where, least), f"never holds: it is more than {most} {table[most]}")
    if "rank" in read and ("min_rank" in read or "max_rank" in read):
        complaints.add((*path, "rank"), "give either rank, or min_rank and max_rank")
