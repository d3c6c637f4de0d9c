"""The ctypes mirror of hal.h: structures and function types, made from the header when first asked for."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from torch_fl_base._hal_header import CType, header

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
    if (
        any(field.name == "struct_size" for field in header().structures[name])
        and "struct_size" not in values
    ):
        instance.struct_size = ctypes.sizeof(cls)
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
