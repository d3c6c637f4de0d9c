"""Automatic mixed precision: torch.amp with the device filled in."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ._lazy import DEVICE

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(torch.amp.autocast):
    """The same as torch.autocast("flagos", …); float16 by default, as on other accelerators."""

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool = True
    ) -> None:
        super().__init__(DEVICE, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """The same as torch.amp.GradScaler("flagos", …)."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(DEVICE, *arguments, **options)


custom_fwd = functools.partial(torch.amp.custom_fwd, device_type=DEVICE)
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type=DEVICE)
