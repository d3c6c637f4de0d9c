"""A HAL library in Python, through ctypes: for the conformance kit, the doctor, and vendors who try their
library.

`load` opens a library and negotiates by the rules of core's own loader (csrc/hal), in the same words. The
structures and function types are made from hal.h at run time (`_hal_header`). Calls release the GIL.

    hal = load("reference", path)
    hal.system.init()
    pointer = hal.memory.allocate(0, 4096)       # outputs are returned; a status but OK raises HalError
    status = hal.raw.memory.release(0, pointer)  # the C signature; returns the status
"""

from __future__ import annotations

import ctypes
import os
import platform
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from torch_fl_base._hal_header import CType, Function, header
from torch_fl_base._hal_types import ctype, new_structure, prototype, status_name
from torch_fl_base.spec import BackendError

OLDEST_MINOR = 0
"""Libraries of an older minor are refused. 0: no minor before 1.0 was ever released."""

_LARGEST_TABLE = 1 << 16  # bytes; a struct_size beyond it is garbage, not a table of the future
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_VERSIONED = _POINTER + 8  # struct_size, abi_major, abi_minor: what never changes, whatever the version


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
    """A HAL function failed. `status` is the short name ("OUT_OF_MEMORY"), `detail` what last_error said.

    There is no detail for NOT_READY and for a function that the library lacks.
    """

    def __init__(self, message: str, status: str, detail: Detail | None) -> None:
        super().__init__(message)
        self.status = status
        self.detail = detail


class RawGroup:
    """The functions of one group with their C signatures: outputs by reference, the status returned."""

    def __init__(self, functions: dict[str, Callable[..., int]]) -> None:
        self._functions = functions

    def __getattr__(self, name: str) -> Callable[..., int]:
        try:
            return self._functions[name]
        except KeyError:
            raise AttributeError(
                f"the group has no function {name!r}; it has {', '.join(self._functions)}"
            ) from None


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
    """An opened library. It is never unloaded: pointers into it may be anywhere. init is the caller's to
    call."""

    def __init__(
        self, name: str, path: str, abi: tuple[int, int], tables: dict[str, dict[str, Any]], has: set[str]
    ) -> None:
        self.name = name
        self.path = path
        self.query: Callable[..., int] | None = None
        """The library's flagos_hal_query, with the table as an address; None where the tables came
        otherwise."""
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
        """Call a function with its inputs alone; outputs are made here, and given back whatever the
        status."""
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
            raise HalError(
                f"flagos: system.last_error failed: {status_name(status)}", status_name(status), None
            )
        return Detail(
            status=status_name(error.status),
            vendor_code=error.vendor_code,
            vendor_name=_text(error.vendor_name),
            message=_text(error.message),
            function=_text(error.function),
        )

    def error(self, qualified: str, inputs: tuple[Any, ...], status: str) -> HalError:
        """Return the exception that describes a failed call."""
        _, text = header().statuses.get(status, (-1, "?"))
        call = f"{qualified}({', '.join(_describe(value) for value in inputs)})"
        detail = None
        message = f"flagos: {self.name}: {call} failed: {status} ({text})"
        if not self.has(qualified):
            message += ": the library has no such function"
        elif status != "NOT_READY":
            detail = self.last_error()
            vendor = f" [{detail.vendor_name}, {detail.vendor_code}]" if detail.vendor_name else ""
            message += f": {detail.message}{vendor}"
        return HalError(message, status, detail)


def bind(function: Function, inputs: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """Return the C arguments and the output objects for a call. An `inout_` parameter takes an input and
    gives an output."""
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
        raise TypeError(
            f"{function.qualified} takes {len(inputs) - len(remaining)} inputs, got {len(inputs)}"
        )
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


# --- loading --------------------------------------------------------------------------------------------


def load(name: str, path: str | os.PathLike[str], *, private_copy: bool = False) -> Hal:
    """Open the HAL library at `path` as backend `name` and negotiate the ABI. Does not call init.

    Args:
        private_copy: load a second instance with globals of its own, from an anonymous copy of the file.
    Raises: HalLoadError, whose kind says at which step.
    """
    shown = os.fspath(path)
    _check_file(name, shown)
    opened = os.path.abspath(shown)
    if private_copy:
        descriptor = os.memfd_create(name)  # stays open: the name below leads to it
        with open(descriptor, "wb", closefd=False) as copy:
            copy.write(Path(shown).read_bytes())
        opened = f"/proc/self/fd/{descriptor}"
    try:
        library = ctypes.CDLL(opened, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        # The loader's words for a library that this one needs; a HAL library should open its SDK at run time
        # instead.
        dependency = "cannot open shared object file" in str(error)
        advice = (
            f" Install the library that is missing or put it on the loader path. {_DETAILS}"
            if dependency
            else _ADVICE
        )
        raise HalLoadError(
            "NotFound" if dependency else "NotALibrary",
            f"flagos: backend '{name}': '{shown}' cannot be loaded: {error}.{advice}",
        ) from error
    try:
        query = ctypes.cast(library.flagos_hal_query, query_prototype())
    except AttributeError:
        raise HalLoadError(
            "NoEntryPoint",
            f"flagos: backend '{name}': '{shown}' does not export flagos_hal_query, so it is not a HAL "
            f"library, or was linked without that export. `nm -D --defined-only` on it must list the "
            f"symbol.{_ADVICE}",
        ) from None
    hal = negotiate(name, shown, query)
    hal.query = query
    return hal


_DETAILS = "Details: python -m torch_fl.doctor"
_ADVICE = f" Reinstall the package that brings this backend. {_DETAILS}"
_MACHINES = {
    62: "x86-64",
    3: "32-bit x86",
    183: "AArch64",
    40: "32-bit ARM",
    21: "PowerPC64",
    243: "RISC-V",
    22: "s390x",
}
_OWN_MACHINE = {"x86_64": 62, "AMD64": 62, "aarch64": 183, "riscv64": 243, "ppc64le": 21, "s390x": 22}


def _check_file(name: str, path: str) -> None:
    start = f"flagos: backend '{name}': "
    if not path:
        raise HalLoadError("NotFound", f"{start}no path of a HAL library was given.{_ADVICE}")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise HalLoadError("NotFound", f"{start}there is no HAL library at '{path}'.{_ADVICE}") from None
    except OSError as error:
        reason = f"{start}the HAL library '{path}' cannot be read: {error.strerror}.{_ADVICE}"
        raise HalLoadError("NotFound", reason) from error
    try:
        fault = (
            "is not a file"
            if not stat.S_ISREG(os.fstat(descriptor).st_mode)
            else _elf_fault(os.pread(descriptor, 64, 0)) or _cut_off(descriptor)
        )
    finally:
        os.close(descriptor)
    if fault:
        raise HalLoadError("NotALibrary", f"{start}'{path}' {fault}.{_ADVICE}")


def _elf_fault(head: bytes) -> str:
    """Return what is wrong with the first 64 bytes of a library, "" if nothing is: the loader's own words
    vary."""
    if not head:
        return "is empty"
    if head[:4] != b"\x7fELF":
        return "is not an ELF shared library (its first bytes are not \\x7fELF)"
    if len(head) < 64:
        return "is cut off: it ends within the ELF header"
    kind, machine = struct.unpack_from("=HH", head, 16)
    if kind != 3:
        return "is an ELF file but not a shared library"
    own = _OWN_MACHINE.get(platform.machine())
    if own is not None and machine != own:
        theirs = _MACHINES.get(machine, f"machine number {machine}")
        return f"is built for {theirs}, this process is {_MACHINES[own]}"
    return ""


def _cut_off(descriptor: int) -> str:
    """Return what is wrong with a library that ends before its last segment, "" if nothing is. The loader
    maps it all the same, and the process dies with SIGBUS."""
    header = os.pread(descriptor, 64, 0)
    (table,) = struct.unpack_from("=Q", header, 32)
    entry, count = struct.unpack_from("=HH", header, 54)
    end = table + entry * count
    for index in range(count):
        segment = os.pread(descriptor, 56, table + entry * index)
        if len(segment) < 56:
            break
        (kind,) = struct.unpack_from("=I", segment)
        offset, _, _, size = struct.unpack_from("=QQQQ", segment, 8)
        if kind == 1:  # PT_LOAD
            end = max(end, offset + size)
    size = os.fstat(descriptor).st_size
    return f"is cut off: it has {size} bytes of at least {end}" if end > size else ""


def query_prototype() -> type[Any]:
    """Return the ctypes type of flagos_hal_query; the table comes back as an address."""
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint32, ctypes.POINTER(ctypes.c_void_p))


def negotiate(name: str, path: str, query: Any) -> Hal:
    """Ask a library's query function for its tables and check them. Raises: HalLoadError."""
    return _Negotiation(name, path).run(query)


class _Negotiation:
    """The rules of csrc/hal/negotiation.cpp."""

    def __init__(self, name: str, path: str) -> None:
        self._name = name
        self._path = path
        self._faults: list[str] = []
        self._missing: list[str] = []
        self._has: set[str] = set()

    def run(self, query: Any) -> Hal:
        major, minor = header().abi
        table = ctypes.c_void_p()
        status = ctypes.cast(query, query_prototype())(major, minor, ctypes.byref(table))
        abi = self._check_answer(status, table.value)
        address = int(table.value or 0)
        size = _size_at(address)
        tables = {}
        for index, (group, functions) in enumerate(header().groups.items()):
            offset = _VERSIONED + index * _POINTER
            entry = (
                ctypes.c_void_p.from_address(address + offset).value if offset + _POINTER <= size else None
            )
            tables[group] = self._group(group, functions, entry, abi)
        if self._faults:
            self._refuse("BadTable", f"has unusable tables: {'; '.join(self._faults)}")
        if self._missing:
            wanted = f"HAL ABI {abi[0]}.{abi[1]}"
            self._refuse("BadTable", f"lacks required functions of {wanted}: {', '.join(self._missing)}")
        return Hal(self._name, self._path, abi, tables, self._has)

    def _refuse(self, kind: str, what: str) -> NoReturn:
        advice = (
            "Install a release of the backend's package that fits this torch-fl-core."
            if kind == "AbiRefused"
            else "It is a fault of the library: report it to its vendor, or try another release."
        )
        raise HalLoadError(
            kind, f"flagos: backend '{self._name}': '{self._path}' {what}. {advice} {_DETAILS}"
        )

    def _refuse_version(self, theirs: str) -> NoReturn:
        major, minor = header().abi
        ours = f"{major}.{minor}" + (f" (back to {major}.{OLDEST_MINOR})" if minor > OLDEST_MINOR else "")
        self._refuse("AbiRefused", f"speaks HAL ABI {theirs}, this torch-fl-core speaks {ours}")

    def _check_answer(self, status: int, address: int | None) -> tuple[int, int]:
        readable = (
            address is not None and address % _POINTER == 0 and not _size_fault(_size_at(address), _VERSIONED)
        )
        abi = _version_at(address) if address is not None and readable else (0, 0)
        if status == header().statuses["ABI_MISMATCH"][0]:
            self._refuse_version(f"{abi[0]}.{abi[1]}" if readable else "of an unknown version")
        if status != 0:
            self._refuse(
                "BadTable", f"flagos_hal_query returned {status_name(status)} ({status}) instead of tables"
            )
        if address is None:
            self._refuse("BadTable", "flagos_hal_query returned OK and no tables")
        if address % _POINTER:
            self._refuse("BadTable", "flagos_hal_query returned a misaligned pointer")
        fault = _size_fault(_size_at(address), _VERSIONED)
        if fault:
            self._refuse("BadTable", f"has an unusable flagos_hal_api: {fault}")
        if abi[0] != header().abi[0] or abi[1] < OLDEST_MINOR:
            self._refuse_version(f"{abi[0]}.{abi[1]}")
        return abi

    def _group(
        self, group: str, functions: tuple[Function, ...], table: int | None, abi: tuple[int, int]
    ) -> dict[str, Any]:
        size = 0
        if table is not None:
            # A table of nothing but its size is as good as none, and surely not meant.
            fault = (
                "the pointer is misaligned"
                if table % _POINTER
                else _size_fault(_size_at(table), 2 * _POINTER)
            )
            if fault:
                self._faults.append(f"group '{group}': {fault}")
            else:
                size = _size_at(table)
                self._has.add(group)
        elif group not in header().optional_groups:
            self._faults.append(f"the required group '{group}' is null")
        members: dict[str, Any] = {}
        for index, function in enumerate(functions):
            offset = _POINTER + index * _POINTER
            entry = (
                ctypes.c_void_p.from_address(int(table or 0) + offset).value
                if offset + _POINTER <= size
                else None
            )
            if entry is not None:
                self._has.add(function.qualified)
                members[function.name] = prototype(function.qualified)(entry)
                continue
            # What a later minor than the library's made required cannot be asked of it.
            if not function.optional and int(function.since.partition(".")[2]) <= abi[1]:
                self._missing.append(f"{function.qualified} ({function.requirement})")
            members[function.name] = _unsupported
        return members


def _size_at(address: int) -> int:
    return int(ctypes.c_size_t.from_address(address).value)


def _version_at(address: int) -> tuple[int, int]:
    versions = (ctypes.c_uint32 * 2).from_address(address + _POINTER)
    return versions[0], versions[1]


def _size_fault(size: int, least: int) -> str:
    if least <= size <= _LARGEST_TABLE and size % _POINTER == 0:
        return ""
    start = f"struct_size is {size}, expected "
    if size % _POINTER != 0 and least < size < _LARGEST_TABLE:
        return f"{start}a multiple of {_POINTER}"
    return f"{start}{least} to {_LARGEST_TABLE}"


def _unsupported(*_: Any) -> int:
    return header().statuses["UNSUPPORTED"][0]
