"""What `torch_fl.report()` tells: the backends of this process, their devices, and what did not work."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from torch_fl_base import _native, autoload, discovery
from torch_fl_base._build import build_info


@dataclass(frozen=True)
class Report:
    """The state of this process; printing it gives the text, `as_dict` plain data."""

    core: str
    """Version of torch-fl-core."""
    torch: str
    activated: bool
    """Whether the backends have been opened."""
    backends: tuple[discovery.Record, ...]
    """One per candidate, in the order of the devices."""
    autoload: str
    """What `import torch` decided, and why."""
    aliases: tuple[str, ...] = ()
    """Names that mean flagos in this process (torch_fl.compat.alias_cuda)."""

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "core": self.core,
            "torch": self.torch,
            "activated": self.activated,
            "autoload": self.autoload,
            "aliases": list(self.aliases),
            "backends": [record.as_dict() for record in self.backends],
        }

    def __str__(self) -> str:
        head = f"torch-fl-core {self.core}, torch {self.torch}; autoload: {self.autoload}"
        lines = discovery.describe(list(self.backends)) or ["no backend is installed"]
        lines += [f"{name} means flagos (torch_fl.compat.alias_{name})" for name in self.aliases]
        return "\n".join([head, *(f"  {line}" for line in lines)])


def report() -> Report:
    """Return what became of every candidate backend so far; opens nothing that is not open.

    A backend that waits is opened at the first use of a device; `torch.flagos.init()` does it at once.
    """
    import torch

    native = _native.load()
    claim = _native.load_part("torch_fl._claim")
    info = build_info()
    decision = autoload.last
    return Report(
        core=info.core if info else "unknown",
        torch=str(torch.__version__),
        activated=native.devices.activated(),
        backends=tuple(discovery.merge(claim.records, native.devices.backend_records())),
        autoload="not run"
        if decision is None
        else f"{'claimed' if decision.claim else 'not claimed'}: {decision.reason}",
        aliases=("cuda",) if _alias_cuda_in_effect() else (),
    )


def _alias_cuda_in_effect() -> bool:
    module = sys.modules.get("torch_fl._alias_cuda")  # only where somebody asked for it
    return module is not None and bool(module.in_effect())
