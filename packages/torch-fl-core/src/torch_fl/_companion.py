"""The same memory and the same streams under two names: flagos, and the device type that torch itself serves
on the chips (`cuda` on NVIDIA)."""

from __future__ import annotations

from typing import Any, overload

import torch

from torch_fl_base import _native
from torch_fl_base.autoload import DEVICE
from torch_fl_base.spec import BackendError


@overload
def as_companion(value: torch.Tensor) -> torch.Tensor: ...
@overload
def as_companion(value: torch.Stream) -> torch.Stream: ...
def as_companion(value: Any) -> Any:
    """Return a flagos tensor or stream as one of the companion's, without a copy.

    Args:
        value: a dense tensor, any sizes, strides and dtype; or a stream of a flagos device.
    Returns: a tensor over the same memory, which it keeps alive, or the same stream. Autograd does not follow
        the tensor: it comes detached. Work that other streams do on it is not seen by the allocator: call
        record_stream on the flagos tensor.
    Raises: BackendError if the device has no companion in this process (says why).
    """
    if isinstance(value, torch.Stream):
        companion, local = _companion_of(value.device)
        return _stream(companion, value.stream_id, local)
    return _native.load().ops.as_companion(value)


@overload
def from_companion(value: torch.Tensor) -> torch.Tensor: ...
@overload
def from_companion(value: torch.Stream) -> torch.Stream: ...
def from_companion(value: Any) -> Any:
    """Return a tensor or stream of the companion as a flagos one, without a copy: as_companion's reverse.

    Raises: BackendError if its device is the companion of no flagos device.
    """
    if isinstance(value, torch.Stream):
        native = _native.load().devices
        native.activate()
        for record in native.backend_records():
            if record["companion"] == value.device.type:
                return _stream(DEVICE, value.stream_id, record["first_device"] + value.device.index)
        raise BackendError(f"flagos: {value.device} is the companion of no flagos device in this process.")
    return _native.load().ops.from_companion(value)


def companion(device: torch.device | str | int | None = None) -> str | None:
    """Return the device type that serves a flagos device as its companion ("cuda"); None if there is none.

    Args:
        device: default the current one. Opens the devices.
    """
    record, _ = _record_of(torch.device(DEVICE if device is None else device))
    name: str | None = record["companion"]
    return name


def _record_of(device: torch.device) -> tuple[dict[str, Any], int]:
    native = _native.load().devices
    native.activate()
    index = native.current_device() if device.index is None else device.index
    for record in native.backend_records():
        local = index - record["first_device"]
        if 0 <= local < record["device_count"]:
            return record, local
    raise BackendError(f"flagos: there is no device {device}.")


def _companion_of(device: torch.device) -> tuple[str, int]:
    if device.type != DEVICE:
        raise BackendError(f"flagos: as_companion takes what is on a flagos device; this is on {device}.")
    record, local = _record_of(device)
    if record["companion"] is None:
        why = record["companion_reason"] or "torch serves its chips under no other device type"
        raise BackendError(f"flagos: {device} has no companion: {why}.")
    return record["companion"], local


def _stream(kind: str, stream_id: int, index: int) -> torch.Stream:
    device = torch.device(kind, index)
    plain = torch.Stream(device=device)
    numbers = {"stream_id": stream_id, "device_index": index, "device_type": plain.device_type}
    made = getattr(getattr(torch, kind, None), "Stream", torch.Stream)
    stream: torch.Stream = made(**numbers)
    return stream
