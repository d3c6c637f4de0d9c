"""The lines of keys in a TOML document, which TOML parsers do not tell.

Reads a document that a parser has accepted, so that it may trust its form.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from typing import Any, NamedTuple

from torch_fl_base.routes.errors import KeyPath

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRINGS = (
    # Up to two quotes may stand before the three that close a multi-line string.
    re.compile(r'"""(?:\\.|[^\\])*?"""(?:"{0,2})', re.DOTALL),
    re.compile(r"'''.*?'''(?:'{0,2})", re.DOTALL),
    re.compile(r'"(?:\\.|[^"\\])*"'),
    re.compile(r"'[^']*'"),
)
_BARE_VALUE = re.compile(r"[^,\]}#\n]+")


class Header(NamedTuple):
    """A line `[a.b]` or `[[a.b]]`; the path of the latter ends with the element's index."""

    line: int
    path: KeyPath


class Lines:
    """The line of every key and table header of a document."""

    def __init__(self, text: str) -> None:
        self.keys: dict[KeyPath, int] = {}
        self.headers: list[Header] = []
        self._text = text
        self._position = 0
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        self._elements: dict[KeyPath, int] = {}
        """How many elements an array of tables has so far."""
        self._document()

    def of(self, path: KeyPath) -> int | None:
        """Return the line of the key at `path`, or of the nearest table around it; None for the document."""
        for length in range(len(path), 0, -1):
            line = self.keys.get(path[:length])
            if line is not None:
                return line
        return None

    def _document(self) -> None:
        prefix: KeyPath = ()
        while self._skip_blank():
            if self._text[self._position] != "[":
                self._pair(prefix)
                continue
            line = self._line()
            double = self._text.startswith("[[", self._position)
            self._position += 2 if double else 1
            prefix = self._absolute(self._key(), double)
            self._position += 2 if double else 1
            self.headers.append(Header(line, prefix))
            self.keys.setdefault(prefix, line)

    def _absolute(self, key: tuple[str, ...], double: bool) -> KeyPath:
        """Return a header's path; inside arrays of tables it means their last element."""
        path: KeyPath = ()
        for index, part in enumerate(key):
            path = (*path, part)
            self.keys.setdefault(path, self._line())
            if double and index == len(key) - 1:
                self._elements[path] = self._elements.get(path, 0) + 1
            if path in self._elements:
                path = (*path, self._elements[path] - 1)
        return path

    def _pair(self, prefix: KeyPath) -> None:
        line = self._line()
        path = prefix
        for part in self._key():
            path = (*path, part)
            self.keys.setdefault(path, line)
        self._position += 1  # the "="
        self._value(path)

    def _key(self) -> tuple[str, ...]:
        """Read a dotted key and the spaces after it."""
        parts: list[str] = []
        while True:
            self._skip_blank()
            match = _BARE_KEY.match(self._text, self._position)
            if match is not None:
                parts.append(match[0])
                self._position = match.end()
            else:
                parts.append(self._string())
            self._skip_blank()
            if not self._text.startswith(".", self._position):
                return tuple(parts)
            self._position += 1

    def _string(self) -> str:
        for pattern in _STRINGS:
            match = pattern.match(self._text, self._position)
            if match is not None:
                self._position = match.end()
                decoded: Any = tomllib.loads(f"key = {match[0]}")["key"]
                return str(decoded)
        raise AssertionError(f"no string at line {self._line()}")

    def _value(self, path: KeyPath) -> None:
        self._skip_blank()
        first = self._text[self._position]
        if first in "\"'":
            self._string()
        elif first == "[":
            self._position += 1
            index = 0
            while self._skip_blank() and self._text[self._position] != "]":
                self.keys.setdefault((*path, index), self._line())
                self._value((*path, index))
                index += 1
                self._skip_comma()
            self._position += 1
        elif first == "{":
            self._position += 1
            while self._skip_blank() and self._text[self._position] != "}":
                self._pair(path)
                self._skip_comma()
            self._position += 1
        else:
            match = _BARE_VALUE.match(self._text, self._position)
            self._position = match.end() if match is not None else len(self._text)

    def _skip_comma(self) -> None:
        if self._skip_blank() and self._text[self._position] == ",":
            self._position += 1

    def _skip_blank(self) -> bool:
        """Go past spaces, newlines and comments; False at the end of the document."""
        match = _BLANK.match(self._text, self._position)
        self._position = match.end() if match is not None else self._position
        return self._position < len(self._text)

    def _line(self) -> int:
        return bisect_left(self._newlines, self._position) + 1
