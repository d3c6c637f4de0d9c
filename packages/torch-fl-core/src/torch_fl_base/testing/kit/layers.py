"""Opening a library through core's own loader and its validating layer, libflagos_hal_layers.so, without
torch."""

from __future__ import annotations

import ctypes
from typing import Any

from torch_fl_base._hal import Hal, HalLoadError, load, negotiate, query_prototype

VALIDATE, QUIET = 1 << 0, 1 << 3


def open_with_layers(layers: str, name: str, path: str, *, flags: int = VALIDATE | QUIET) -> Hal:
    """Return a library opened with validation. Raises: HalLoadError, in the words of core's loader."""
    library: Any = ctypes.CDLL(layers)
    library.flagos_layers_open.restype = ctypes.c_void_p
    library.flagos_layers_open.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_char_p]
    library.flagos_layers_error.restype = ctypes.c_char_p
    address = library.flagos_layers_open(name.encode(), path.encode(), flags, None)
    if address is None:
        kind = library.flagos_layers_error_kind()
        raise HalLoadError(HalLoadError.KINDS[kind], library.flagos_layers_error().decode())

    def query(major: int, minor: int, out: Any) -> int:
        out[0] = address
        return 0

    layered = negotiate(name, path, query_prototype()(query))
    # The layers fill what a library lacks with stubs; what it has itself, only it can say.
    layered.has = load(name, path).has  # type: ignore[method-assign]
    return layered
