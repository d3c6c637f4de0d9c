"""The operators that routes may name: full names, patterns, and the arguments of each.

A name is an overload's: "mean.dim", "mm" for the overload without a name; "aten::" may be left out, other
namespaces may not. `*` stands for any characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from torch_fl_base import _native
from torch_fl_base.routes.errors import did_you_mean
from torch_fl_base.spec import BackendError


class UnknownOperatorError(ValueError):
    """A name means no operator; the message says which one may have been meant."""


class Catalogue:
    """The operators of this process.

    Args:
        names: returns the full names that PyTorch's dispatcher knows. It is asked again when a name is
            missed, since libraries register theirs when they are imported.
        arguments: returns name and type of each argument of an operator; None if that is not known.
        routable: returns the operators that the router serves; None if that is not known. Judges aten only.
        torch_minor: the minor of torch, such as "2.13".
    """

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        arguments: Callable[[str], Mapping[str, str] | None] = lambda op: None,
        routable: Callable[[], Iterable[str]] | None = None,
        torch_minor: str | None = None,
    ) -> None:
        self.torch_minor = torch_minor
        self._read = names
        self._routable_read = routable
        self.arguments = arguments
        self._names: frozenset[str] = frozenset()
        self._routable: frozenset[str] | None = None

    def names(self) -> frozenset[str]:
        """Return the full names of all operators, also of those that PyTorch takes apart."""
        if not self._names:
            self._refresh()
        return self._names

    def served(self) -> frozenset[str]:
        """Return the operators that can be routed."""
        names = self.names()
        if self._routable is None:
            return names
        return frozenset(name for name in names if self._is_served(name))

    def expand(self, name: str) -> list[str]:
        """Return the full names of the operators that a name or a pattern means.

        Raises: UnknownOperatorError if there is none.
        """
        full = full_name(name)
        if "*" in full:
            return self._matches(name, full)
        if full not in self.names() and not self._known_after_refresh(full):
            self._complain(name, full)  # returns for a library that is not imported yet
        elif not self._is_served(full):
            raise UnknownOperatorError(
                f"{name!r} cannot be routed: PyTorch makes it of other operators before the device is asked; "
                "route those"
            )
        return [full]

    def arguments_of(self, ops: Iterable[str]) -> Callable[[], dict[str, Mapping[str, str] | None]]:
        """Return a function that returns the arguments of operators: to look them up takes long."""
        return lambda: {op: self.arguments(op) for op in ops}

    def checked(self, full: str) -> bool:
        """Return whether an operator that `expand` gave is known, not only believed."""
        return full in self.names()

    def _is_served(self, full: str) -> bool:
        return self._routable is None or full in self._routable or not full.startswith("aten::")

    def _refresh(self) -> None:
        self._names = frozenset(self._read())
        self._routable = frozenset(self._routable_read()) or None if self._routable_read else None

    def _known_after_refresh(self, full: str) -> bool:
        self._refresh()
        return full in self._names

    def _matches(self, name: str, full: str) -> list[str]:
        pattern = re.compile(".*".join(map(re.escape, full.split("*"))))
        for _ in range(2):
            found = sorted(filter(pattern.fullmatch, self.served()))
            if found:
                return found
            self._refresh()
        space = full.partition("::")[0]
        if "*" not in space and space not in self._namespaces():
            raise UnknownOperatorError(
                f"the pattern {name!r} matches no operator: nothing named {space}:: is registered; import "
                "its library before, or name its operators one by one"
            )
        raise UnknownOperatorError(f"the pattern {name!r} matches no operator that can be routed")

    def _namespaces(self) -> set[str]:
        return {known.partition("::")[0] for known in self.names()}

    def _complain(self, name: str, full: str) -> None:
        space, _, rest = full.partition("::")
        if not re.fullmatch(r"\w+", space) or not re.fullmatch(r"\w+(\.\w+)?", rest):
            raise UnknownOperatorError(
                f"{name!r} is no operator name: <name>, <name>.<overload>, <namespace>::<name>.<overload>"
            )
        spaces = self._namespaces()
        if space not in spaces:
            hint = did_you_mean(space, spaces)
            if hint:
                raise UnknownOperatorError(f"{name!r} has an unknown namespace {space!r}.{hint}")
            return
        base = rest.partition(".")[0]
        prefix = f"{space}::{base}"
        overloads = sorted(short_name(known) for known in self._names if known.partition(".")[0] == prefix)
        if overloads:
            hint = did_you_mean(short_name(full), overloads)
            raise UnknownOperatorError(
                f"operator {base!r} has no overload {name!r}.{hint} It has: {', '.join(overloads)}."
            )
        known = [short_name(other) for other in self.served() if other.startswith(f"{space}::")]
        raise UnknownOperatorError(f"unknown operator {name!r}.{did_you_mean(short_name(full), known)}")


def full_name(name: str) -> str:
    """Return a name with its namespace; the overload "default" is PyTorch's word for the one without a
    name."""
    name = name.strip().removesuffix(".default")
    return name if "::" in name else f"aten::{name}"


def short_name(full: str) -> str:
    """Return a name without "aten::"."""
    return full.removeprefix("aten::")


def name_of(op: Any) -> str:
    """Return the name of an operator that is given as text or as an overload (`torch.ops.aten.mm.out`).

    Raises: TypeError for anything else, an operator without its overload too.
    """
    if isinstance(op, str):
        return op
    schema = getattr(op, "_schema", None)
    if schema is None:
        raise TypeError(
            f"flagos: an operator is a name like 'mean.dim' or an overload like torch.ops.aten.mean.dim, "
            f"not {op!r}"
        )
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def of_torch() -> Catalogue:
    """Return the operators of the torch of this process; imports torch, opens no device."""
    import torch

    @cache
    def arguments(op: str) -> dict[str, str] | None:
        name, _, overload = op.partition(".")
        try:
            schema = torch._C._get_schema(name, overload)
        except RuntimeError:  # an operator of a library that is not imported
            return None
        return {argument.name: str(argument.type) for argument in schema.arguments}

    minor = _native.minor(str(torch.__version__))
    return Catalogue(torch._C._dispatch_get_all_op_names, arguments, _routable, minor)


def _routable() -> list[str]:
    """Return what the router serves; nothing where core's compiled parts cannot be used, as in `lint`."""
    try:
        native = _native.load()
    except BackendError:
        return []
    native.ops.register()  # the runtime knows an operator once it has a kernel
    return list(native.routes.operators())


def aten_names() -> list[str]:
    """Return names of aten operators without importing torch, for completion: fast, not all of them."""
    import importlib.util

    spec = importlib.util.find_spec("torchgen")
    if spec is None or spec.origin is None:
        return []
    from pathlib import Path

    file = Path(spec.origin).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    try:
        return re.findall(r"^- func: ([\w.]+)\(", file.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return []
