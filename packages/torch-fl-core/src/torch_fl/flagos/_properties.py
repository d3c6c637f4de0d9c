"""The data class of a device's properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import torch


@dataclass(frozen=True)
class DeviceProperties:
    """What a backend tells of one device, in torch.cuda's names; None is what it does not tell, never a
    guess."""

    name: str
    """The vendor's name of the device."""
    backend: str
    """The backend that the device belongs to, as in FLAGOS_BACKENDS."""
    local_index: int
    """Index of the device within its backend."""
    total_memory: int
    """Bytes."""
    arch: str | None = None
    """The compiler's name of the architecture."""
    major: int | None = None
    minor: int | None = None
    multi_processor_count: int | None = None
    warp_size: int | None = None
    max_threads_per_block: int | None = None
    max_threads_per_multi_processor: int | None = None
    regs_per_multiprocessor: int | None = None
    shared_memory_per_block: int | None = None
    shared_memory_per_block_optin: int | None = None
    shared_memory_per_multiprocessor: int | None = None
    L2_cache_size: int | None = None
    """Bytes, as the three above."""
    clock_rate: int | None = None
    """kHz."""
    is_integrated: bool | None = None
    uuid: UUID | None = None
    pci_bus_id: str | None = None
    """ "0000:3b:00.0"."""
    dtypes: frozenset[torch.dtype] | None = None
    """Data types that the hardware computes on."""
    driver_version: str | None = None
    sdk_version: str | None = None


# Field here, key of the bindings (which has the HAL's names), where the two differ.
_RENAMED = {
    "major": "capability_major",
    "minor": "capability_minor",
    "multi_processor_count": "multiprocessor_count",
    "max_threads_per_multi_processor": "max_threads_per_multiprocessor",
    "regs_per_multiprocessor": "registers_per_multiprocessor",
    "L2_cache_size": "l2_cache_size",
    "clock_rate": "clock_rate_khz",
}


def from_native(told: Mapping[str, Any]) -> DeviceProperties:
    """Return the data class for what the bindings tell of a device."""
    values = {field: told[_RENAMED.get(field, field)] for field in DeviceProperties.__dataclass_fields__}
    values["uuid"] = None if told["uuid"] is None else UUID(bytes=told["uuid"])
    values["dtypes"] = None if told["dtypes"] is None else frozenset(told["dtypes"])
    return DeviceProperties(**values)
