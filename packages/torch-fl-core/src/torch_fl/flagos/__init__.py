"""The device `flagos`: what torch.cuda offers for its device, torch.flagos offers for this one.

Everything here can be called before the first use of a device, and opens one only where it must. What
torch.cuda has and this lacks is listed, each name with its reason, in _missing.py; asking for one tells it.
"""

from typing import Any

from torch import OutOfMemoryError

from torch_fl_base.spec import BackendError

from . import amp, memory, random, streams
from ._device import (
    _exchange_device as _exchange_device,
)
from ._device import (
    _is_in_bad_fork as _is_in_bad_fork,
)
from ._device import (
    _lazy_init as _lazy_init,
)
from ._device import (
    _maybe_exchange_device as _maybe_exchange_device,
)
from ._device import (
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_memory_used,
    device_of,
    get_amp_supported_dtype,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    ipc_collect,
    is_available,
    is_bf16_supported,
    is_initialized,
    set_device,
    synchronize,
)
from ._legacy import storage_types as _storage_types
from ._legacy import tensor_types as _tensor_types
from .memory import (
    caching_allocator_alloc,
    caching_allocator_delete,
    caching_allocator_disabled,
    caching_allocator_enable,
    empty_cache,
    empty_host_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from .random import (
    _get_generator as _get_generator,
)
from .random import (
    _get_rng_state_offset as _get_rng_state_offset,
)
from .random import (
    _set_rng_state_offset as _set_rng_state_offset,
)
from .random import (
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    is_current_stream_capturing,
    set_stream,
    stream,
)
from .streams import (
    _set_stream_by_id as _set_stream_by_id,
)


def __getattr__(name: str) -> Any:
    """Import what is seldom needed, when it is."""
    if name == "DeviceProperties":
        from ._properties import DeviceProperties

        return DeviceProperties
    if name == "_initialized":  # torch.utils.checkpoint keeps the generator's state only where this is true
        return is_initialized()
    from ._missing import MISSING

    reason = f": {MISSING[name]}" if name in MISSING else ""
    raise AttributeError(f"module 'torch.flagos' has no attribute {name!r}{reason}")


has_half = True
"""float16 can be used on every device, by whichever source; the name is torch.cuda's."""

__all__ = [
    "BackendError",
    "Event",
    "ExternalStream",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "amp",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "empty_host_cache",
    "get_allocator_backend",
    "get_amp_supported_dtype",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_stream_from_external",
    "has_half",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "random",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "streams",
    "synchronize",
]

globals().update(_tensor_types())
globals().update(_storage_types())
