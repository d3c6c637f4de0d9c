"""The error of everything about routes, and the collection of faults that are raised at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from torch_fl_base.spec import BackendError

KeyPath = tuple[str | int, ...]
"""Where a value stands in a document: ("ops", "mean.dim", "candidates", 0, "when")."""


class Fault(NamedTuple):
    """One thing that is wrong, and where."""

    message: str
    place: str | None = None
    """Path of the file, or the name of the variable."""
    line: int | None = None

    def __str__(self) -> str:
        where = f"{self.place}:{self.line}" if self.line is not None else self.place
        return f"{where}: {self.message}" if where else self.message


class RouteError(BackendError):
    """A route table, FLAGOS_ROUTES or a call of torch_fl.routes is wrong; `faults` has every fault."""

    def __init__(self, faults: Sequence[Fault] | str) -> None:
        self.faults: tuple[Fault, ...] = (Fault(faults),) if isinstance(faults, str) else tuple(faults)
        lines = [str(fault) for fault in self.faults]
        head = "flagos: " if len(lines) == 1 else f"flagos: {len(lines)} faults in routes\n  "
        super().__init__(head + "\n  ".join(lines))


class Complaints:
    """The faults of one document, with the line of each."""

    def __init__(
        self, place: str | None = None, line_of: Callable[[KeyPath], int | None] = lambda path: None
    ) -> None:
        self.place = place
        self.line_of = line_of
        self.faults: list[Fault] = []

    def add(self, path: KeyPath, message: str) -> None:
        """Note a fault of the value at `path`."""
        key = key_text(path)
        self.faults.append(Fault(f"{key}: {message}" if key else message, self.place, self.line_of(path)))

    def raise_any(self) -> None:
        """Raise: RouteError with every fault, if there is one."""
        if self.faults:
            own = (fault for fault in self.faults if fault.place == self.place)
            others = [fault for fault in self.faults if fault.place != self.place]
            raise RouteError([*sorted(own, key=lambda fault: fault.line or 0), *others])


def key_text(path: KeyPath) -> str:
    """Return a path as TOML writes it: `ops."mean.dim".candidates[0].when`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        bare = part.replace("_", "").replace("-", "")
        quoted = part if bare.isascii() and bare.isalnum() else f'"{part}"'
        text += f".{quoted}" if text else quoted
    return text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean …?" with the nearest names, or ""."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def known_names(name: str, known: Iterable[str], what: str = "Known") -> str:
    """Return the nearest names and all names, to end a sentence on an unknown one."""
    known = list(known)
    return f"{did_you_mean(name, known)} {what}: {', '.join(known)}."


def kind_of(value: object) -> str:
    """Return what a value of a document is, in the words of TOML."""
    kinds = {bool: "a truth value", int: "an integer", float: "a float", str: "a string", list: "a list"}
    return kinds.get(type(value), "a table" if isinstance(value, dict) else f"a {type(value).__name__}")
