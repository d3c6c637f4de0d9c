"""The data class of a device's properties."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import torch


@dataclass(frozen=True)
class DeviceProperties:
    """What a backend tells of one device, in torch.cuda's names; None is what it does not tell, never a guess."""

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
