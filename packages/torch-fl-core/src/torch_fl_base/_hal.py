"""A HAL library in Python, through ctypes: for the conformance kit, the doctor, and vendors who try their library.

`load` opens a library and negotiates by the rules of core's own loader (csrc/hal), in the same words. The structures and
function types are made from hal.h at run time (`_hal_header`). Calls release the GIL.

    hal = load("reference", path)
    hal.system.init()
    pointer = hal.memory.allocate(0, 4096)       # outputs are returned; a status other than OK raises HalError
    status = hal.raw.memory.release(0, pointer)  # the C signature; returns the status
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_fl_base._hal_header import CType, Function, header
from torch_fl_base.spec import BackendError

OLDEST_MINOR = 0
"""Libraries of an older minor are refused. 0: no minor before 1.0 was ever released."""

_LARGEST_TABLE = 1 << 16  # bytes; a struct_size beyond it is garbage, not a table of the future
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_SCALARS: dict[str, type[Any]] = {
    "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "uint8_t": ctypes.c_uint8,
    "double": ctypes.c_double,
    "char": ctypes.c_char,
    "flagos_hal_status": ctypes.c_int32,
}


class HalLoadError(BackendError):
    """A library cannot be used as a HAL. `kind` is what reports print as the backend's state."""

    KINDS = ("NotFound", "NotALibrary", "NoEntryPoint", "AbiRefused", "BadTable", "InitFailed")

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Detail:
    """What system.last_error said."""

    status: str
    vendor_code: int
    vendor_name: str
    message: str
    function: str


class HalError(BackendError):
    """A HAL function failed. `status` is the short name ("OUT_OF_MEMORY"), `detail` what last_error said; NOT_READY has none."""

    def __init__(self, message: str, status: str, detail: Detail | None) -> None:
        super().__init__(message)
        self.status = status
        self.detail = detail


def status_name(status: int) -> str:
    """Return "OUT_OF_MEMORY" for 5; "?" for a number that is no status."""
    return next((name for name, (number, _) in header().statuses.items() if number == status), "?")


def status_text(status: int) -> str:
    """Return the text of hal_status.def; "?" for a number that is no status."""
    return next((text for number, text in header().statuses.values() if number == status), "?")


@functools.cache
def structure(name: str) -> type[ctypes.Structure]:
    """Return the ctypes mirror of a structure of hal.h, by its C name. Raises: KeyError."""
    fields = [(field.name, ctype(field.type)) for field in header().structures[name]]
    return type(name, (ctypes.Structure,), {"_fields_": fields, "__slots__": ()})


def new_structure(name: str, **values: Any) -> Any:
    """Return a zeroed structure with struct_size set, and `values`."""
    cls = structure(name)
    instance = cls(**values)
    if any(field.name == "struct_size" for field in header().structures[name]) and "struct_size" not in values:
        instance.struct_size = ctypes.sizeof(cls)  # type: ignore[attr-defined]
    return instance


def ctype(spelled: CType) -> type[Any]:
    """Return the ctypes type for a type of hal.h. Handles and untyped pointers are c_void_p."""
    if spelled.base == "function":
        return ctypes.CFUNCTYPE(None, *(ctype(parameter) for parameter in spelled.parameters))
    if spelled.pointers == 0:
        base = _SCALARS.get(spelled.base) or structure(spelled.base)
        return base * spelled.array if spelled.array else base
    if spelled.base == "char" and spelled.pointers == 1:
        return ctypes.c_char_p
    if spelled.base == "void" or spelled.base in header().opaque:
        return ctypes.c_void_p if spelled.pointers == 1 else ctypes.POINTER(ctypes.c_void_p)
    return ctypes.POINTER(ctype(CType(spelled.base, spelled.pointers - 1)))


@functools.cache
def prototype(qualified: str) -> type[Any]:
    """Return the ctypes function type of "group.name"."""
    parameters = header().function(qualified).parameters
    return ctypes.CFUNCTYPE(ctypes.c_int32, *(ctype(parameter.type) for parameter in parameters))


class RawGroup:
    """The functions of one group with their C signatures: outputs by reference, the status returned."""

    def __init__(self, functions: dict[str, Callable[..., int]]) -> None:
        self._functions = functions

    def __getattr__(self, name: str) -> Callable[..., int]:
        try:
            return self._functions[name]
        except KeyError:
            raise AttributeError(f"the group has no function {name!r}; it has {', '.join(self._functions)}") from None


class RawTables:
    """All groups; `raw.memory.allocate(device, size, byref(pointer))`."""

    def __init__(self, groups: dict[str, RawGroup]) -> None:
        self._groups = groups

    def __getattr__(self, name: str) -> RawGroup:
        try:
            return self._groups[name]
        except KeyError:
            raise AttributeError(f"hal.h has no group {name!r}; it has {', '.join(self._groups)}") from None


class Group:
    """The functions of one group, called with their inputs; outputs are returned."""

    def __init__(self, hal: Hal, name: str) -> None:
        self._hal = hal
        self._name = name

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self._hal.caller(f"{self._name}.{name}")


@dataclass(frozen=True)
class Outcome:
    """A call's status by name, and its outputs whatever the status: none, the value, or a tuple of values."""

    status: str
    value: Any


class Hal:
    """An opened library. It is never unloaded: pointers into it may be anywhere. init is the caller's to call."""

    def __init__(self, name: str, path: str, abi: tuple[int, int], tables: dict[str, dict[str, Any]], has: set[str]) -> None:
        self.name = name
        self.path = path
        self.abi = abi
        """The version that the library was compiled with."""
        self._has = has
        self.raw = RawTables({group: RawGroup(functions) for group, functions in tables.items()})

    def __getattr__(self, name: str) -> Group:
        if name in header().groups:
            return Group(self, name)
        raise AttributeError(f"hal.h has no group {name!r}")

    def has(self, qualified: str) -> bool:
        """Return whether the library itself brings a group ("peer") or function ("stream.host_callback")."""
        return qualified in self._has

    def function(self, qualified: str) -> Callable[..., int]:
        """Return the raw function called "group.name"."""
        group, _, name = qualified.partition(".")
        return getattr(getattr(self.raw, group), name)  # type: ignore[no-any-return]

    def caller(self, qualified: str) -> Callable[..., Any]:
        """Return `call` bound to a function, raising HalError unless the status is OK."""
        header().function(qualified)  # an unknown name fails here

        def checked(*inputs: Any) -> Any:
            outcome = self.call(qualified, *inputs)
            if outcome.status != "OK":
                raise self.error(qualified, inputs, outcome.status)
            return outcome.value

        return checked

    def call(self, qualified: str, *inputs: Any) -> Outcome:
        """Call a function with its inputs alone; outputs are made here, and given back whatever the status."""
        function = header().function(qualified)
        arguments, outputs = bind(function, inputs)
        status = self.function(qualified)(*arguments)
        values = tuple(_value(output) for output in outputs)
        return Outcome(status_name(status), None if not values else values[0] if len(values) == 1 else values)

    def last_error(self) -> Detail:
        """Return the detail of this thread's last failing call. Raises: HalError if even that fails."""
        error = new_structure("flagos_hal_error")
        status = self.raw.system.last_error(ctypes.byref(error))
        if status != 0:
            raise HalError(f"flagos: system.last_error failed: {status_name(status)}", status_name(status), None)
        return Detail(
            status=status_name(error.status),
            vendor_code=error.vendor_code,
            vendor_name=_text(error.vendor_name),
            message=_text(error.message),
            function=_text(error.function),
        )

    def error(self, qualified: str, inputs: tuple[Any, ...], status: str) -> HalError:
        """Return the exception that describes a failed call."""
        number, text = header().statuses.get(status, (-1, "?"))
        call = f"{qualified}({', '.join(_describe(value) for value in inputs)})"
        detail = None
        message = f"flagos: {self.name}: {call} failed: {status} ({text})"
        if status != "NOT_READY":
            detail = self.last_error()
            # A stub of an absent function leaves nothing behind in the library: its detail may be another call's.
            if detail.function == qualified and detail.status == status:
                vendor = f" [{detail.vendor_name}, {detail.vendor_code}]" if detail.vendor_name else ""
                message += f": {detail.message}{vendor}"
        return HalError(message, status, detail)


def bind(function: Function, inputs: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """Return the C arguments and the output objects for a call. An `inout_` parameter takes an input and gives an output."""
    arguments: list[Any] = []
    outputs: list[Any] = []
    remaining = list(inputs)
    for parameter in function.parameters:
        if parameter.is_output:
            target = CType(parameter.type.base, parameter.type.pointers - 1)
            if target.base in header().structures:
                output = new_structure(target.base)
            else:
                output = ctype(target)()
            if parameter.name.startswith("inout_"):
                output.value = remaining.pop(0)
            outputs.append(output)
            arguments.append(ctypes.byref(output))
        else:
            value = remaining.pop(0)
            if isinstance(value, ctypes.Structure):
                value = ctypes.byref(value)
            elif parameter.type.base == "function" and not callable(value):
                value = ctypes.cast(value, ctype(parameter.type))
            arguments.append(value)
    if remaining:
        raise TypeError(f"{function.qualified} takes {len(inputs) - len(remaining)} inputs, got {len(inputs)}")
    return arguments, outputs


def _value(output: Any) -> Any:
    return output if isinstance(output, ctypes.Structure) else output.value


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", errors="replace")


def _describe(value: Any) -> str:
    if isinstance(value, ctypes.Structure):
        return type(value).__name__
    if isinstance(value, int) and abs(value) > 1 << 32:
        return hex(value)
    return repr(value) if isinstance(value, (int, float, type(None))) else type(value).__name__


# ------------------------------------------------------------------------------------------------ loading ----


def load(name: str, path: str | os.PathLike[str], *, private_copy: bool = False) -> Hal:
    """Open the HAL library at `path` as backend `name` and negotiate the ABI. Does not call init.

    Args:
        private_copy: load a second instance with globals of its own, from an anonymous copy of the file.
    Raises: HalLoadError, whose kind says at which step.
    """
    shown = os.fspath(path)
    if not Path(shown).is_file():
        raise HalLoadError("NotFound", f"flagos: backend '{name}': no such file: {shown}")
    opened = shown
    if private_copy:
        descriptor = os.memfd_create(Path(shown).name)  # stays open: the name below leads to it
        with open(descriptor, "wb", closefd=False) as copy:
            copy.write(Path(shown).read_bytes())
        opened = f"/proc/self/fd/{descriptor}"
    try:
        library = ctypes.CDLL(opened, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise HalLoadError("NotALibrary", f"flagos: backend '{name}': {shown} cannot be loaded: {error}") from error
    symbol = "flagos_hal_query"
    try:
        query = getattr(library, symbol)
    except AttributeError:
        message = f"flagos: backend '{name}': {shown} does not export {symbol}; it is no HAL library"
        raise HalLoadError("NoEntryPoint", message) from None
    return negotiate(name, shown, query)


def query_prototype() -> type[Any]:
    """Return the ctypes type of flagos_hal_query; the table comes back as an address."""
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint32, ctypes.POINTER(ctypes.c_void_p))


def negotiate(name: str, path: str, query: Any) -> Hal:
    """Ask a library's query function for its tables and check them. Raises: HalLoadError."""
    major, minor = header().abi
    where = f"flagos: backend '{name}': {path}"
    ours = f"{major}.{minor}"
    table = ctypes.c_void_p()
    entry = ctypes.cast(query, query_prototype())
    status = entry(major, minor, ctypes.byref(table))
    address = table.value
    version = _version(address) if address else None
    if status == header().statuses["ABI_MISMATCH"][0]:
        theirs = f"{version[0]}.{version[1]}" if version else "unknown"
        raise HalLoadError("AbiRefused", f"{where} refuses HAL ABI {ours} of this core; its own is {theirs}")
    if status != 0:
        raise HalLoadError("BadTable", f"{where}: flagos_hal_query failed: {status_name(status)} ({status_text(status)})")
    if not address:
        raise HalLoadError("BadTable", f"{where}: flagos_hal_query returned OK and no table")
    if version is None:
        size = _size_at(address)
        raise HalLoadError("BadTable", f"{where}: flagos_hal_api has an impossible struct_size of {size} bytes")
    if version[0] != major or version[1] < OLDEST_MINOR:
        raise HalLoadError(
            "AbiRefused",
            f"{where} was built for HAL ABI {version[0]}.{version[1]}; this core speaks {ours} and accepts {major}."
            f"{OLDEST_MINOR} or a later {major}.x",
        )
    return Hal(name, path, version, *_tables(where, address))


def _size_at(address: int) -> int:
    return int(ctypes.c_size_t.from_address(address).value)


def _version(address: int) -> tuple[int, int] | None:
    size = _size_at(address)
    if not _POINTER + 8 <= size <= _LARGEST_TABLE:
        return None
    versions = (ctypes.c_uint32 * 2).from_address(address + _POINTER)
    return versions[0], versions[1]


def _tables(where: str, address: int) -> tuple[dict[str, dict[str, Any]], set[str]]:
    size = _size_at(address)
    tables: dict[str, dict[str, Any]] = {}
    has: set[str] = set()
    for index, (group, functions) in enumerate(header().groups.items()):
        offset = _POINTER + 8 + index * _POINTER
        known = offset + _POINTER <= size
        table = ctypes.c_void_p.from_address(address + offset).value if known else None
        required = group not in header().optional_groups
        if table is None and required:
            raise HalLoadError("BadTable", f"{where} lacks the required group {group}")
        if table is not None:
            has.add(group)
        tables[group] = _group(where, functions, table, has)
    return tables, has


def _group(where: str, functions: tuple[Function, ...], table: int | None, has: set[str]) -> dict[str, Any]:
    size = _size_at(table) if table is not None else 0
    if table is not None and not _POINTER <= size <= _LARGEST_TABLE:
        group = functions[0].group
        raise HalLoadError("BadTable", f"{where}: group {group} has an impossible struct_size of {size} bytes")
    members: dict[str, Any] = {}
    for index, function in enumerate(functions):
        offset = _POINTER + index * _POINTER
        known = table is not None and offset + _POINTER <= size
        entry = ctypes.c_void_p.from_address(table + offset).value if known and table is not None else None
        if entry is not None:
            has.add(function.qualified)
            members[function.name] = prototype(function.qualified)(entry)
        elif table is not None and not function.optional:
            raise HalLoadError("BadTable", f"{where} lacks the required function {function.qualified}")
        else:
            members[function.name] = _unsupported
    return members


def _unsupported(*_: Any) -> int:
    return header().statuses["UNSUPPORTED"][0]


