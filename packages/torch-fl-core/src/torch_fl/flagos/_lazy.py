"""What every part of torch.flagos shares: the bindings, activation, and what names a device."""

from __future__ import annotations

from typing import Any

import torch

from torch_fl_base import _native
from torch_fl_base.spec import BackendError

DEVICE = "flagos"
DeviceLike = torch.device | str | int | None
"""What names a device: an index, "flagos:1", torch.device; None and "flagos" mean the current one."""

native: Any = _native.load()
_count = 0  # of devices, once they are open: it then stays the same, and asking again would take a lock


def index_of(device: DeviceLike = None) -> int:
    """Return the index that `device` names; the current device's where it names none.

    Raises: ValueError for a device of another type, TypeError for anything else.
    """
    if device is None:
        return int(native.devices.current_device())
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if not isinstance(device, torch.device):
        raise TypeError(
            f"flagos: a device is a torch.device, a string or an index, not {type(device).__name__}"
        )
    if device.type != DEVICE:
        raise ValueError(f"flagos: expected a flagos device, got {device}")
    return int(native.devices.current_device()) if device.index is None else device.index


def activate() -> int:
    """Open the backends and return the number of devices.

    Raises: BackendError with every candidate and its reason if none has a device; with one sentence in a
        forked child whose parent has used a device, and at exit.
    """
    global _count
    try:
        _count = int(native.devices.activate())
    except RuntimeError as error:
        raise BackendError(str(error)) from None
    return _count


def valid_index(device: DeviceLike = None) -> int:
    """Return the index that `device` names and make sure that there is such a device; activates.

    Raises: BackendError naming the number of devices, or every candidate backend where none has a device.
    """
    index = index_of(device)
    count = _count or activate()
    if not 0 <= index < count:
        devices = "1 device" if count == 1 else f"{count} devices"
        raise BackendError(
            f"flagos: device index {index} is out of range: there {'is' if count == 1 else 'are'} {devices}"
        )
    return index
