"""PyTorch on every accelerator: `import torch_fl` claims the device `flagos`, and holds what has no
torch.cuda counterpart.

The device's own functions are in `torch.flagos`, which is also `torch_fl.flagos`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torch_fl_base import _native
from torch_fl_base.spec import BackendError, BackendSpec

__all__ = [
    "BackendError",
    "BackendSpec",
    "Report",
    "as_companion",
    "companion",
    "compat",
    "flagos",
    "from_companion",
    "report",
    "routes",
    "trace",
]

if not _native.run_as_doctor(sys.argv, sys.orig_argv):
    from torch_fl._report import Report, report
    from torch_fl._start import bindings as _C  # noqa: F401  (`torch_fl._C`, as if it were imported the usual way)

    if TYPE_CHECKING:
        # `flagos` has the same files; at run time they are torch.flagos.
        from torch_fl import compat, flagos, routes
        from torch_fl._companion import as_companion, companion, from_companion
        from torch_fl._trace import trace
    else:
        from torch_fl._start import flagos


_LAZY = {
    "as_companion": "torch_fl._companion",
    "companion": "torch_fl._companion",
    "from_companion": "torch_fl._companion",
    "trace": "torch_fl._trace",
}


def __getattr__(name: str) -> Any:
    """Import what not every program needs at its first use."""
    import importlib

    if name in ("compat", "routes"):
        return importlib.import_module(f"torch_fl.{name}")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'torch_fl' has no attribute {name!r}")
