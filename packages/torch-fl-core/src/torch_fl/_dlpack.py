"""DLPack for flagos tensors: the one place where a class of torch is changed, when the device is claimed.

`Tensor.__dlpack_device__`, which every consumer calls first, compares the device's type with the literal
"privateuse1" and so fails for a device that was renamed (torch 2.10 to 2.15). And `Tensor.__dlpack__` orders
streams for cuda only, so a consumer that names its stream could read before the work queued here has run.
Both are answered for flagos tensors; for every other tensor torch's own functions run, with the same result.
Where torch answers rightly, its answer is left alone.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import has_torch_function_unary

from torch_fl_base.autoload import DEVICE

EXT_DEV = 12
"""kDLExtDev: DLPack has no number of its own for most chips, so that all backends export under this one."""

_installed = False


def install() -> None:
    """Replace what is wrong in this torch; needs the renamed device. A second call does nothing."""
    global _installed
    if not _installed:
        if not torch_answers():
            _replace_device()
        _replace_export()
        _installed = True


def torch_answers() -> bool:
    """Return whether torch's own `__dlpack_device__` knows a renamed device; asks it about a stand-in, not a
    tensor."""
    stand_in: Any = SimpleNamespace(device=torch.device(DEVICE, 0), is_pinned=lambda: False)
    try:
        return int(torch.Tensor.__dlpack_device__(stand_in)[0]) == EXT_DEV
    except (ValueError, TypeError, AttributeError):
        return False


def _replace_device() -> None:
    original = torch.Tensor.__dlpack_device__

    @functools.wraps(original)
    def __dlpack_device__(self: torch.Tensor) -> Any:
        if self.device.type != DEVICE or has_torch_function_unary(self):
            return original(self)
        from torch.utils.dlpack import DLDeviceType

        return DLDeviceType.kDLExtDev, self.device.index

    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]


def _replace_export() -> None:
    original = torch.Tensor.__dlpack__

    @functools.wraps(original)
    def __dlpack__(self: torch.Tensor, *, stream: Any = -1, **options: Any) -> Any:
        if stream != -1 and self.device.type == DEVICE and not has_torch_function_unary(self):
            _order(self.device, stream)
        return original(self, stream=stream, **options)

    torch.Tensor.__dlpack__ = __dlpack__  # type: ignore[method-assign]


def _order(device: torch.device, stream: int | None) -> None:
    """See to it that the consumer's stream runs after what is queued on the current one; None is the default
    stream."""
    from torch_fl_base import _native

    flagos = _native.load_part(f"torch.{DEVICE}")
    current, default = flagos.current_stream(device), flagos.default_stream(device)
    if stream is None or stream == default.native_handle:
        if default != current:
            default.wait_stream(current)
    elif type(stream) is not int:
        raise TypeError(f"stream must be an int or None, not {type(stream).__name__}")
    elif stream != current.native_handle:
        # A vendor's handle alone cannot be made to wait through the HAL, so the host waits: slower, and
        # right.
        current.synchronize()
