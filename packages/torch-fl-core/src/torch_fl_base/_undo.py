"""What a program asks for and takes back: by a call, or with the end of a `with` block."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

T = TypeVar("T", bound="Undoable")


class Undoable:
    """In effect from its making until `undo`, or for a `with` block."""

    def undo(self) -> None:
        """Take it back."""
        raise NotImplementedError

    def __enter__(self: T) -> T:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.undo()
