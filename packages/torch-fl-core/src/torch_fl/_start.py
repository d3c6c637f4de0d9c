"""What `import torch_fl` does: import torch, claim the device, and share torch.flagos as torch_fl.flagos."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from torch_fl_base import _native
from torch_fl_base._build import build_info
from torch_fl_base.spec import BackendError


def _import_torch() -> ModuleType:
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        info = build_info()
        wanted = f"torch=={info.torch}.*" if info else "torch"
        raise ImportError(
            f'flagos: torch is not installed; pip install "{wanted}". {_native.DOCTOR}'
        ) from None
    return torch


def _start() -> tuple[Any, ModuleType]:
    """Return the bindings and torch.flagos.

    Raises: ImportError if there is no torch; BackendError if core does not fit it, or as `_claim.claim`.
    """
    problem = _native.mismatch(_import_torch().__version__)
    if problem:
        raise BackendError(problem)
    _native.load_part("torch_fl._claim").claim(explicit=True)
    module = _native.load_part("torch.flagos")
    sys.modules["torch_fl.flagos"] = module
    return _native.load(), module


bindings, flagos = _start()
