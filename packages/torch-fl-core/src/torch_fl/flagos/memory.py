"""Memory of the device: the caching allocator's numbers and controls, in torch.cuda's names and torch.cuda's
stats keys.

Before the first use of a device all of it answers too: the numbers are then empty or 0.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, Literal

import torch

from ._lazy import DeviceLike, activate, index_of, native, valid_index


def _flat(nested: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in nested.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict):
            yield from _flat(value, name)
        else:
            yield name, value


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """Return the allocator's statistics of a device as nested dicts; empty before the first use of a
    device."""
    if not native.devices.activated():
        return {}
    return dict(native.memory.stats(valid_index(device)))


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """Return the allocator's statistics of a device, sorted by key; empty before the first use of a device.

    Keys are `<statistic>.<all|large_pool|small_pool>.<current|peak|allocated|freed>` for allocation, segment,
    active, inactive_split (counts) and allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes,
    requested_bytes; and num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free,
    max_split_size.
    """
    return dict(sorted(_flat(memory_stats_as_nested_dict(device))))


def memory_allocated(device: DeviceLike = None) -> int:
    """Return the bytes that tensors occupy on a device now."""
    return _statistic("allocated_bytes", "current", device)


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the most bytes that tensors occupied at once since the start or the last
    reset_peak_memory_stats."""
    return _statistic("allocated_bytes", "peak", device)


def memory_reserved(device: DeviceLike = None) -> int:
    """Return the bytes that the allocator holds on a device now, in use or not."""
    return _statistic("reserved_bytes", "current", device)


def max_memory_reserved(device: DeviceLike = None) -> int:
    """Return the most bytes that the allocator held at once since the start or the last
    reset_peak_memory_stats."""
    return _statistic("reserved_bytes", "peak", device)


def _statistic(name: str, metric: str, device: DeviceLike) -> int:
    stats = memory_stats_as_nested_dict(device)
    return int(stats[name]["all"][metric]) if stats else 0


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Let the peaks of a device start again from the present values."""
    if native.devices.activated():
        native.memory.reset_peak_stats(valid_index(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Let the totals of a device (allocated, freed, retries, out-of-memory errors) start again from 0."""
    if native.devices.activated():
        native.memory.reset_accumulated_stats(valid_index(device))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Return (free, total) bytes of a device, as the backend counts them: all processes, and what the
    allocator holds."""
    free, total = native.memory.info(valid_index(device))
    return int(free), int(total)


def empty_cache() -> None:
    """Give all memory that the allocator holds without use back to the backends, on all devices."""
    if native.devices.activated():
        native.memory.empty_cache()


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limit what this process may hold on a device to a fraction of its memory; more is an out-of-memory
    error.

    Raises: ValueError for a fraction outside [0, 1]; BackendError if there is no such device.
    """
    if not 0 <= float(fraction) <= 1:
        raise ValueError(f"flagos: a memory fraction lies between 0 and 1, got {fraction}")
    index = valid_index(device)
    companion = _companion_of(index)
    if companion is None:
        native.memory.set_fraction(float(fraction), index)
    else:
        companion[0].set_per_process_memory_fraction(float(fraction), companion[1])


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """Return the fraction of a device's memory that this process may hold; 1.0 unless it was set."""
    index = valid_index(device)
    companion = _companion_of(index)
    if companion is None:
        return float(native.memory.fraction(index))
    return float(companion[0].get_per_process_memory_fraction(companion[1]))


def _companion_of(index: int) -> tuple[Any, int] | None:
    """Return the module that keeps the memory of a device, and the index of the device there; None where that
    is core."""
    for record in native.devices.backend_records():
        local = index - record["first_device"]
        if record["companion"] is not None and 0 <= local < record["device_count"]:
            return getattr(torch, record["companion"]).memory, local
    return None


def _companions() -> list[tuple[Any, int]]:
    """Return each module that keeps memory of flagos devices, and the index of the first of them."""
    records = [record for record in native.devices.backend_records() if record["companion"] is not None]
    return [(getattr(torch, record["companion"]).memory, record["first_device"]) for record in records]


def caching_allocator_alloc(size: int, device: DeviceLike = None, stream: torch.Stream | None = None) -> int:
    """Return the address of `size` bytes for use on `stream` (by default the current one), for other
    libraries.

    Owns: the caller, until caching_allocator_delete.
    Raises: torch.OutOfMemoryError; ValueError for a negative size; BackendError if there is no such device.
    """
    if size < 0:
        raise ValueError(f"flagos: cannot allocate {size} bytes")
    index = valid_index(device if stream is None else stream.device)
    if stream is not None and device is not None and index_of(device) != index:
        raise ValueError(f"flagos: the stream belongs to flagos:{index}, not to flagos:{index_of(device)}")
    stream_id = native.streams.current_stream(index)[0] if stream is None else stream.stream_id
    return int(native.memory.allocate(size, index, stream_id))


def caching_allocator_delete(mem_ptr: int) -> None:
    """Give back what caching_allocator_alloc gave.

    Raises: ValueError for an address that it did not give.
    """
    native.memory.release(mem_ptr)


def get_allocator_backend() -> str:
    """Return "caching", or "direct" where FLAGOS_ALLOCATOR or caching_allocator_enable(False) says so."""
    return str(native.memory.mode())


def caching_allocator_enable(value: bool = True) -> None:
    """Let later allocations go through the cache (True), or each to the backend (False), to find faults that
    it hides."""
    native.memory.set_mode("caching" if value else "direct")


@contextlib.contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """Ask the backend for every block within a `with` block; afterwards the mode is as it was."""
    before = native.memory.mode()
    native.memory.set_mode("direct")
    try:
        yield
    finally:
        native.memory.set_mode(before)


def memory_snapshot() -> list[dict[str, Any]]:
    """Return every segment that the allocator holds, on all devices, each with its blocks; the keys are
    torch.cuda's.

    A segment has device, address, total_size, allocated_size, active_size, stream, segment_type ("small",
    "large") and blocks; a block has address, size, requested_size and state ("active_allocated",
    "active_pending_free", "inactive").
    """
    if not native.devices.activated():
        return []
    segments = list(native.memory.snapshot())
    for module, first in _companions():
        segments += [{**segment, "device": segment["device"] + first} for segment in module.memory_snapshot()]
    return segments


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Return the statistics of the allocator of pinned host memory as nested dicts; empty before the first
    use."""
    return dict(native.memory.host_stats()) if native.devices.activated() else {}


def host_memory_stats() -> dict[str, Any]:
    """Return the statistics of the allocator of pinned host memory, sorted by key; empty before the first
    use."""
    return dict(sorted(_flat(host_memory_stats_as_nested_dict())))


def reset_peak_host_memory_stats() -> None:
    """Let the peaks of pinned host memory start again from the present values."""
    if native.devices.activated():
        native.memory.reset_peak_host_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Let the totals of pinned host memory start again from 0."""
    if native.devices.activated():
        native.memory.reset_accumulated_host_stats()


def empty_host_cache() -> None:
    """Give all pinned host memory that is held without use back."""
    if native.devices.activated():
        native.memory.host_empty_cache()


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def _amount(value: int, is_bytes: bool) -> str:
    if not is_bytes:
        return f"{value:,}"
    scaled, unit = float(value), 0
    while scaled >= 1024 and unit + 1 < len(_UNITS):
        scaled, unit = scaled / 1024, unit + 1
    return f"{value} B" if unit == 0 else f"{scaled:.2f} {_UNITS[unit]}"


_SUMMARY = (
    ("memory of tensors", "allocated_bytes", True),
    ("memory as requested", "requested_bytes", True),
    ("memory in use or pending", "active_bytes", True),
    ("memory held", "reserved_bytes", True),
    ("memory unused in split blocks", "inactive_split_bytes", True),
    ("tensors' blocks", "allocation", False),
    ("blocks in use or pending", "active", False),
    ("segments", "segment", False),
    ("unused split blocks", "inactive_split", False),
)


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """Return a table of memory_stats for people.

    Args:
        device: what names the device.
        abbreviated: only the sums, not the pools of small and of large blocks.
    """
    index = index_of(device)
    stats = memory_stats_as_nested_dict(device)
    if not stats:
        return f"flagos:{index}: no device has been used yet"
    pools = [pool for pool in ("all", "large_pool", "small_pool") if not abbreviated or pool == "all"]
    rows = [["", "now", "peak", "total in", "total out"]]
    for label, key, is_bytes in _SUMMARY:
        for pool in pools:
            values = stats[key][pool]
            name = label if pool == "all" else f"  {pool.replace('_', ' ')}"
            rows.append(
                [name, *(_amount(values[m], is_bytes) for m in ("current", "peak", "allocated", "freed"))]
            )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [
        f"{row[0]:<{widths[0]}}" + "".join(f"  {row[c]:>{widths[c]}}" for c in range(1, 5)) for row in rows
    ]
    free, total = mem_get_info(index)
    head = [
        f"Memory of flagos:{index}: {_amount(free, True)} free of {_amount(total, True)}",
        f"Out-of-memory errors: {stats['num_ooms']}; retries with empty cache: {stats['num_alloc_retries']}",
    ]
    rule = "-" * len(lines[0])
    return "\n".join([*head, rule, lines[0], rule, *lines[1:], rule])


def _record_memory_history(
    enabled: Literal["state", "all"] | None = "all",
    context: Literal["state", "alloc", "all"] | None = "all",
    stacks: Literal["python", "all"] = "python",
    max_entries: int = sys.maxsize,
    device: DeviceLike = None,
    clear_history: bool = False,
) -> None:
    """Record allocations and frees of all devices from now on, for _snapshot; `enabled` None stops.

    Args:
        enabled: "all" keeps the last `max_entries` actions; "state" only where the live blocks came from.
        context: for which of them the place in the program is kept.
        stacks: "python"; "all" is accepted, the C++ frames are not recorded.
        device: accepted as torch.cuda's; the record covers all devices.
        clear_history: forget what was recorded before.
    """
    native.memory.record_history(enabled, context, stacks, max_entries, clear_history)


def _snapshot(device: DeviceLike = None) -> dict[str, Any]:
    """Return the segments and the recorded history of all devices, with the keys of
    torch.cuda.memory._snapshot."""
    activate()
    return {"segments": memory_snapshot(), "device_traces": native.memory.history()}


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    """Write _snapshot to a pickle file, to be shown by PyTorch's memory viewer."""
    import pickle

    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)
