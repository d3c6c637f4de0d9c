"""The environment variables of torch-fl: one table, one parser for each type, and the page made from them.

Nothing else of core reads the environment for a FLAGOS_ variable; the reference library alone reads its own
FLAGOS_REFERENCE_ ones, which are declared here so that a bad value is found before the library is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from torch_fl_base.spec import BackendError

T = TypeVar("T")

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZE = r"(\d{1,18}) *([A-Za-z]*)"
LOG_LEVELS = ("error", "warning", "info", "debug")


class _Refused(ValueError):
    """A parser does not accept the text; the message is not shown."""


class Variable(Generic[T]):
    """One environment variable: what it is called, what it may hold, and how it is read.

    Not a dataclass: making one takes a noticeable part of what core may add to `import torch`.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        allowed: str,
        default: T,
        shown_default: str,
        sentence: str,
        parse: Callable[[str], T],
        reader: str = "core",
    ) -> None:
        self.name = name
        self.kind = kind
        """The type in words, for the page."""
        self.allowed = allowed
        """What may be written, for the page and the error."""
        self.default = default
        self.shown_default = shown_default
        self.sentence = sentence
        self.parse = parse
        self.reader = reader
        """Who reads it: core, or the reference library."""

    def read(self, environ: Mapping[str, str] | None = None) -> T:
        """Return the value in effect; unset and empty both mean the default, save where empty is a value.

        Raises: BackendError for a value that is not allowed: name, value and what is.
        """
        text = (os.environ if environ is None else environ).get(self.name)
        if text is None or not text.strip():
            return self.default
        try:
            return self.parse(text.strip())
        except _Refused:
            raise BackendError(
                f"flagos: environment variable {self.name}={text!r} is not understood. "
                f"Allowed: {self.allowed}. Default: {self.shown_default}."
            ) from None


def _truth(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise _Refused(text)


def _size(most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        match = re.fullmatch(_SIZE, text)
        if match is None or match[2].lower() not in _UNITS:
            raise _Refused(text)
        size = int(match[1]) * _UNITS[match[2].lower()]
        if not 0 < size <= most:
            raise _Refused(text)
        return size

    return parse


def _integer(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text) or not least <= int(text) <= most:
            raise _Refused(text)
        return int(text)

    return parse


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise _Refused(text)
        return text.lower()

    return parse


def _list_of(pattern: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not all(re.fullmatch(pattern, part.strip()) for part in text.split(",")):
            raise _Refused(text)
        return text

    return parse


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(re.fullmatch(r"[a-z][a-z0-9_]*(:[a-z0-9_]+)?", name) for name in names):
        raise _Refused(text)
    return names


def _trace(text: str) -> str:
    if text.lower() in _TRUE:
        return "1"
    if text.lower() in _FALSE:
        return ""
    return text


def _assignments(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    from torch_fl_base.routes.shorthand import parse

    return parse(text)


def _levels(text: str) -> tuple[tuple[str, str], ...]:
    levels = []
    for part in text.split(","):
        subject, _, level = part.strip().rpartition("=")
        if level not in LOG_LEVELS or not re.fullmatch(r"[a-z_]*", subject):
            raise _Refused(text)
        levels.append((subject, level))
    return tuple(levels)


_REFERENCE = "the reference library"
_TRUTH_TEXT = "1, true, yes, on; 0, false, no, off"

BACKENDS: Variable[tuple[str, ...] | None] = Variable(
    "FLAGOS_BACKENDS",
    "list of backend names",
    "names of installed backends, comma-separated; `<name>:<instance>` for a second instance of one library",
    None,
    "all backends that have a device",
    "Which backends this process uses, in the order of their device indices.",
    _names,
)
AUTOLOAD: Variable[bool | None] = Variable(
    "FLAGOS_AUTOLOAD",
    "truth value",
    _TRUTH_TEXT,
    None,
    "1 where torch has no accelerator of its own that could be used, else 0",
    "Whether `import torch` alone makes the device `flagos` known.",
    _truth,
)
HAL_VALIDATE: Variable[bool] = Variable(
    "FLAGOS_HAL_VALIDATE",
    "truth value",
    _TRUTH_TEXT,
    False,
    "0",
    "Check arguments, handles and lifetimes around every call into a backend's library.",
    _truth,
)
HAL_TRACE: Variable[str] = Variable(
    "FLAGOS_HAL_TRACE",
    "truth value or path",
    "1 for standard error, 0 for off, or the path of a file to write",
    "",
    "0",
    "Write one line for every call into a backend's library.",
    _trace,
)
LOG: Variable[tuple[tuple[str, str], ...]] = Variable(
    "FLAGOS_LOG",
    "log levels",
    f"a level ({', '.join(LOG_LEVELS)}) for everything, or `<subject>=<level>`, comma-separated",
    (),
    "warning",
    "What is logged, as a whole or by subject; subject `x` is the logger `torch_fl.x`.",
    _levels,
)
ALLOCATOR: Variable[str] = Variable(
    "FLAGOS_ALLOCATOR",
    "choice",
    "caching, direct",
    "caching",
    "caching",
    "`direct` asks the backend for every block of device memory, to find faults that a cache hides.",
    _choice("caching", "direct"),
)
ROUTES: Variable[tuple[tuple[str, tuple[str, ...]], ...]] = Variable(
    "FLAGOS_ROUTES",
    "routes",
    "`<operator>=<source>[,<source>…]`, separated by `;`; `*` in an operator stands for any characters; "
    "sources: native, boxed, gems, gems_cpp, triton, tileops, cpu",
    (),
    "none",
    "Which source serves an operator, over all route tables: `mm=cpu; _foreach_*=boxed,cpu`.",
    _assignments,
)
ROUTES_FILE: Variable[str] = Variable(
    "FLAGOS_ROUTES_FILE",
    "path",
    "path of a route table (docs/routing.md)",
    "",
    "none",
    "A route table of one's own, over those of the backends.",
    lambda text: text,
)
ROUTE_CHECK: Variable[bool] = Variable(
    "FLAGOS_ROUTE_CHECK",
    "truth value",
    _TRUTH_TEXT,
    False,
    "0",
    "Run every operator by a second source too and report results that differ; slow.",
    _truth,
)
FALLBACK: Variable[str] = Variable(
    "FLAGOS_FALLBACK",
    "choice",
    "error, warn, allow",
    "warn",
    "warn",
    "What happens when an operator runs on the host because the device has no kernel for it.",
    _choice("error", "warn", "allow"),
)
COMPANION: Variable[str] = Variable(
    "FLAGOS_COMPANION",
    "choice",
    "auto, off",
    "auto",
    "auto",
    "Whether a backend uses the memory, streams and kernels of the device type that torch itself serves on "
    "the same chips.",
    _choice("auto", "off"),
)
ALIAS_CUDA: Variable[bool] = Variable(
    "FLAGOS_ALIAS_CUDA",
    "truth value",
    _TRUTH_TEXT,
    False,
    "0",
    "Whether `cuda` means flagos in this process, where torch has no accelerator of its own.",
    _truth,
)
REFERENCE_DEVICES: Variable[int] = Variable(
    "FLAGOS_REFERENCE_DEVICES",
    "integer",
    "0 to 64",
    2,
    "2",
    "Number of devices that the reference backend emulates.",
    _integer(0, 64),
    _REFERENCE,
)
REFERENCE_MEMORY: Variable[int] = Variable(
    "FLAGOS_REFERENCE_MEMORY",
    "size",
    "bytes, or a whole number with KiB, MiB, GiB or TiB; at most 64TiB",
    4 << 30,
    "4GiB",
    "Memory of each emulated device; asking for more is an out-of-memory error.",
    _size(64 << 40),
    _REFERENCE,
)
REFERENCE_MEMORY_FAULT: Variable[bool] = Variable(
    "FLAGOS_REFERENCE_MEMORY_FAULT",
    "truth value",
    _TRUTH_TEXT,
    False,
    "0",
    "Emulated device memory faults when the host touches it, as on a chip with its own memory.",
    _truth,
    _REFERENCE,
)
REFERENCE_IPC: Variable[bool] = Variable(
    "FLAGOS_REFERENCE_IPC",
    "truth value",
    _TRUTH_TEXT,
    False,
    "0",
    "Emulated device memory and events can be shared with other processes.",
    _truth,
    _REFERENCE,
)
REFERENCE_FAIL: Variable[str] = Variable(
    "FLAGOS_REFERENCE_FAIL",
    "faults to inject",
    "`<group>.<function>`, `work.copy`, `work.fill`, each with `:<nth>`, `:<nth>+` or nothing (every call) "
    "and with `=<STATUS>` or nothing; `device.lost:<index>`; comma-separated",
    "",
    "none",
    "What fails: memory.allocate:3 makes the third allocation fail.",
    _list_of(r"[a-z_]+\.[a-z_]+(:\d{1,18}\+?)?(=[A-Z_]+)?"),
    _REFERENCE,
)
REFERENCE_LATENCY: Variable[str] = Variable(
    "FLAGOS_REFERENCE_LATENCY",
    "delays to inject",
    "`<target>:<microseconds>`, comma-separated; targets: copy, fill, event, callback, `<group>.<function>`",
    "",
    "none",
    "Time that emulated work or calls take longer, to make missing synchronisation visible.",
    _list_of(r"[a-z_]+(\.[a-z_]+)?:\d{1,18}"),
    _REFERENCE,
)

VARIABLES: tuple[Variable[Any], ...] = (
    BACKENDS,
    AUTOLOAD,
    ALLOCATOR,
    ROUTES,
    ROUTES_FILE,
    ROUTE_CHECK,
    FALLBACK,
    COMPANION,
    ALIAS_CUDA,
    LOG,
    HAL_VALIDATE,
    HAL_TRACE,
    REFERENCE_DEVICES,
    REFERENCE_MEMORY,
    REFERENCE_MEMORY_FAULT,
    REFERENCE_IPC,
    REFERENCE_FAIL,
    REFERENCE_LATENCY,
)


def check(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return one message for every variable that has a bad value, in the order of the table."""
    problems = []
    for variable in VARIABLES:
        try:
            variable.read(environ)
        except BackendError as error:
            problems.append(str(error))
    return problems


def in_effect(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the declared variables that are set, as they are written."""
    environ = os.environ if environ is None else environ
    return {
        variable.name: environ[variable.name]
        for variable in VARIABLES
        if environ.get(variable.name, "").strip()
    }


def unknown(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return set variables that begin with FLAGOS_ but are not declared, each with the nearest declared name
    or ""."""
    from difflib import get_close_matches

    # What all names begin with would make every name look like every other.
    declared = [variable.name.removeprefix("FLAGOS_") for variable in VARIABLES]
    found = {}
    for name in sorted(os.environ if environ is None else environ):
        rest = name.removeprefix("FLAGOS_")
        if rest != name and rest not in declared:
            close = get_close_matches(rest, declared, n=1)
            found[name] = f"FLAGOS_{close[0]}" if close else ""
    return found


def runtime_settings(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what the C++ runtime is told, as canonical text by variable name: truths are "1" or "0".

    Raises: BackendError with every bad value, the reference library's too.
    """
    problems = check(environ)
    if problems:
        raise BackendError("\n".join(problems))
    told = (HAL_TRACE, ALLOCATOR, COMPANION, FALLBACK)
    settings = {variable.name: str(variable.read(environ)) for variable in told}
    settings[HAL_VALIDATE.name] = "1" if HAL_VALIDATE.read(environ) else "0"
    return settings
