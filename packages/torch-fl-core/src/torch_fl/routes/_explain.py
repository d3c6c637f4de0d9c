"""Which source serves an operator, who decided so, and what else could."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch_fl_base import _native
from torch_fl_base.routes.errors import RouteError
from torch_fl_base.routes.model import Candidate, Origin, Route, describe
from torch_fl_base.routes.operators import UnknownOperatorError, name_of
from torch_fl_base.routes.store import store


@dataclass(frozen=True)
class CandidateState:
    """One candidate of a route and what became of it."""

    source: str
    state: str
    """"chosen", "absent", "declined by condition: …", "not reached"; without arguments also "if …"."""
    when: str = ""
    """Its conditions in words."""


@dataclass(frozen=True)
class Explanation:
    """The answer of `explain`. Printing it gives text, `to_dict` plain data."""

    op: str
    backend: str
    source: str
    """What serves the call; without arguments, what serves calls that meet no condition."""
    decided_by: Origin
    candidates: tuple[CandidateState, ...]
    present: tuple[str, ...]
    """The sources that implement the operator on this backend here and now."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "op": self.op,
            "backend": self.backend,
            "source": self.source,
            "decided_by": _origin_dict(self.decided_by),
            "candidates": [vars(candidate) for candidate in self.candidates],
            "present": list(self.present),
        }

    def __str__(self) -> str:
        lines = [f"{self.op} on {self.backend}: {self.source}", f"decided by: {self.decided_by}"]
        if self.decided_by.reason:
            lines.append(f"reason: {self.decided_by.reason}")
        if self.decided_by.until:
            lines.append(f"until: {self.decided_by.until}")
        lines.append("candidates:")
        for number, candidate in enumerate(self.candidates, 1):
            when = (
                f" (if {candidate.when})"
                if candidate.when and candidate.state != f"if {candidate.when}"
                else ""
            )
            lines.append(f"  {number}. {candidate.source}{when}: {candidate.state}")
        named = {candidate.source for candidate in self.candidates}
        others = [source for source in self.present if source not in named]
        if others:
            lines.append(f"also present: {', '.join(others)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Row:
    """The route of one operator on one backend."""

    op: str
    backend: str
    source: str
    """What serves calls that meet no condition."""
    candidates: tuple[str, ...]
    """In words, in order."""
    decided_by: Origin

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            **vars(self),
            "candidates": list(self.candidates),
            "decided_by": _origin_dict(self.decided_by),
        }


def explain(op: Any, /, *args: Any, backend: str | None = None, **kwargs: Any) -> Explanation:
    """Return which source serves a call of an operator in this thread, and why; nothing is run.

    Args:
        op: "mm.out", "aten::mm.out" or torch.ops.aten.mm.out.
        args, kwargs: of the call. Without any, the answer is about the operator: conditions stay open.
        backend: None: that of the call's tensors, else of the current device.
    Opens the devices.
    Raises: RouteError for an unknown operator or backend.
    """
    try:
        (full,) = store().catalogue().expand(name_of(op))
    except UnknownOperatorError as error:
        raise RouteError(str(error)) from None
    except ValueError:
        raise RouteError(f"{op!r} is a pattern; explain answers for one operator") from None
    names = store().chosen_backends(backend)
    if not args and not kwargs:
        name = names[0] if backend is not None else _current_backend()
        route, present = store().lookup(name, full), store().capability(full, name)
        states = judge(route, present)
        source = next(state.source for state in states if state.state == "chosen")
        return Explanation(full, name, source, route.origin, states, tuple(present))
    decision = store().native().decide(full, names[0], args, kwargs)
    name = decision["backend"]
    if backend not in (None, name):
        raise RouteError(
            f"the call is one of {name}, not of {backend}: so say its tensors, or the current device"
        )
    route, present = store().lookup(name, full), store().capability(full, name)
    states = _decided(decision["candidates"], route, present)
    return Explanation(full, name, decision["source"], route.origin, states, tuple(present))


def table(backend: str | None = None) -> list[Row]:
    """Return the route of every operator, of one backend or all, as this thread has them; opens the devices.

    Raises: RouteError for an unknown backend.
    """
    rows: list[Row] = []
    operators = sorted(store().native().operators())
    for name in store().chosen_backends(backend):
        named, default = store().routes(name)
        for op in operators:
            route = named.get(op, default)
            states = judge(route, store().capability(op, name))
            source = next(state.source for state in states if state.state == "chosen")
            rows.append(Row(op, name, source, tuple(map(str, route.candidates)), route.origin))
    return rows


def judge(route: Route, present: Sequence[str]) -> tuple[CandidateState, ...]:
    """Return the states of a route's candidates for calls that nothing is known of; exactly one is chosen."""
    candidates = list(route.candidates)
    if not any(candidate.source == "cpu" and not candidate.when for candidate in candidates):
        candidates.append(Candidate("cpu"))
    states: list[CandidateState] = []
    found = False
    for index, candidate in enumerate(candidates):
        when = describe(candidate.when)
        if found:
            state = "not reached"
        elif candidate.source not in present and index < len(candidates) - 1:
            state = "absent"
        elif when:
            state = f"if {when}"
        else:
            state, found = "chosen", True
        states.append(CandidateState(candidate.source, state, when))
    return tuple(states)


def _decided(
    decided: Iterable[dict[str, str]], route: Route, present: Sequence[str]
) -> tuple[CandidateState, ...]:
    """Return the states of a route's candidates; the runtime tells only of those that it has kept."""
    kept = list(decided)
    states: list[CandidateState] = []
    for candidate in route.candidates:
        state = "not reached" if candidate.source in present else "absent"
        if kept and kept[0]["source"] == candidate.source:
            state = kept.pop(0)["state"]
        states.append(CandidateState(candidate.source, state, describe(candidate.when)))
    return (*states, *(CandidateState(entry["source"], entry["state"]) for entry in kept))


def _current_backend() -> str:
    return str(_native.load().devices.properties(-1)["backend"])


def _origin_dict(origin: Origin) -> dict[str, Any]:
    return {**vars(origin), "layer": origin.layer.value}
