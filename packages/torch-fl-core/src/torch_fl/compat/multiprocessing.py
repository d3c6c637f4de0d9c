"""Sending flagos tensors to other processes.

Device memory is not shared between processes yet: pickling a flagos tensor for a queue or a new process is
refused (RuntimeError), since what expects shared memory would get a copy. A program that wants the copy asks
for it here.
"""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from torch_fl_base._undo import Undoable

_KINDS = (torch.Tensor, torch.nn.Parameter)


class send_copies(Undoable):
    """Let torch.multiprocessing send the values of flagos tensors, through shared host memory; not the memory
    itself.

    What the receiver writes is not seen by the sender. Gradients, hooks and shared storage are not sent. The
    receiver gets the tensor on the same device index and imports torch_fl for it; it must not be a forked
    child of a process that uses the device (use the spawn start method). In effect from the call until
    `undo`, or for a `with` block.
    """

    def __init__(self) -> None:
        reducers: dict[type, Callable[[Any], Any]] = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
        self._before = {kind: reducers[kind] for kind in _KINDS if kind in reducers}
        for kind, reduce in self._before.items():
            ForkingPickler.register(kind, _reducer(reduce))

    def undo(self) -> None:
        """Let torch refuse again."""
        for kind, reduce in self._before.items():
            ForkingPickler.register(kind, reduce)


def _reducer(otherwise: Callable[[Any], Any]) -> Callable[[torch.Tensor], Any]:
    def reduce(tensor: torch.Tensor) -> Any:
        if tensor.device.type != "flagos":
            return otherwise(tensor)
        if tensor.requires_grad and not tensor.is_leaf:
            raise RuntimeError("flagos: a tensor in an autograd graph cannot be sent; send tensor.detach()")
        parameter = type(tensor) is torch.nn.Parameter
        return _rebuild, (tensor.detach().cpu(), str(tensor.device), tensor.requires_grad, parameter)

    return reduce


def _rebuild(values: torch.Tensor, device: str, requires_grad: bool, parameter: bool) -> torch.Tensor:
    """Make the tensor in the receiving process; importing this module has claimed the device."""
    tensor = values.to(device)
    return torch.nn.Parameter(tensor, requires_grad) if parameter else tensor.requires_grad_(requires_grad)
