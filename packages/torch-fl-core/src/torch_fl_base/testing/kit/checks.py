"""What the kit's tests are written with: checks, skips, and marks that `torch_fl_base.testing.hal` turns
into pytest's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

Test = TypeVar("Test", bound=Callable[..., Any])


in_child = False
"""Set in the process of an isolated test, where pytest, even if something has imported it, does not run."""


class Skipped(Exception):
    """The test does not apply; the text says what is missing."""


@dataclass(frozen=True)
class Marks:
    """How a test wants to be run."""

    isolated: bool = False
    """In a process of its own: it may crash, fork, or take the library down."""
    initialised: bool = True
    """Whether init is called before the test."""
    environment: Callable[..., dict[str, str]] | None = None
    """Called with (quirks, **case): further environment of the isolated process."""
    needs: str = ""
    """A member of Quirks without which the test does not apply."""
    names: tuple[str, ...] = ()
    cases: tuple[tuple[Any, ...], ...] = ()
    """Arguments by `names`; the test runs once for each."""
    ids: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Requirements that the test checks besides the one in its name."""


def marks(function: Callable[..., Any]) -> Marks:
    """Return the marks of a test."""
    return getattr(function, "conformance_marks", None) or Marks()


def _mark(function: Test, **changes: Any) -> Test:
    values = {**marks(function).__dict__, **changes}
    function.conformance_marks = Marks(**values)  # type: ignore[attr-defined]
    return function


def isolated(
    *, initialised: bool = True, environment: Callable[..., dict[str, str]] | None = None, needs: str = ""
) -> Callable[[Test], Test]:
    """Run the test in a process of its own. Its cases must then be plain data."""
    return lambda function: _mark(
        function, isolated=True, initialised=initialised, environment=environment, needs=needs
    )


def cases(names: str, values: Iterable[Any], ids: Callable[..., str] = str) -> Callable[[Test], Test]:
    """Run the test once for each of `values`: tuples if `names` has several names, parted by commas."""
    split = tuple(name.strip() for name in names.split(","))
    rows = tuple(value if len(split) > 1 else (value,) for value in values)
    return lambda function: _mark(function, names=split, cases=rows, ids=tuple(ids(*row) for row in rows))


def also(*requirements: str) -> Callable[[Test], Test]:
    """Say that the test checks further requirements, by their full ids."""
    return lambda function: _mark(function, also=requirements)


def requirement(test_name: str) -> str:
    """Return the id in a test's name: HAL-MEM-01 for test_mem_01_…, GEN-03 for test_gen_03_…; "" without
    one."""
    parts = test_name.split("_")
    if len(parts) < 4 or not parts[2].isdigit():
        return ""
    prefix = "" if parts[1] == "gen" else "HAL-"
    return f"{prefix}{parts[1].upper()}-{parts[2]}"


def skip(reason: str) -> NoReturn:
    """End the test as one that does not apply; `reason` names what is missing."""
    if not in_child and "pytest" in sys.modules:
        import pytest

        pytest.skip(reason)
    raise Skipped(reason)


def expect(condition: bool, complaint: str) -> None:
    """Fail with `complaint` unless the condition holds."""
    if not condition:
        raise AssertionError(complaint)


def equal(found: object, wanted: object, what: str) -> None:
    """Fail unless both are equal; says both."""
    if found != wanted:
        raise AssertionError(f"{what} is {_short(found)}, expected {_short(wanted)}")


def one_of(found: object, wanted: Sequence[object], what: str) -> None:
    """Fail unless `found` is one of `wanted`; says all."""
    if found not in wanted:
        raise AssertionError(
            f"{what} is {_short(found)}, expected {' or '.join(_short(value) for value in wanted)}"
        )


def same_bytes(found: bytes, wanted: bytes, what: str) -> None:
    """Fail unless both are equal; names the first byte that differs."""
    equal(len(found), len(wanted), f"the length of {what}")
    if found != wanted:
        at = next(
            index for index, (left, right) in enumerate(zip(found, wanted, strict=True)) if left != right
        )
        raise AssertionError(f"{what}: byte {at} of {len(found)} is {found[at]}, expected {wanted[at]}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
