"""The stand-in companion: a complete PyTorch device over host memory, under the device type `hpu`.

Core's companion mode takes allocator, streams, events, generator and kernels from a device that libtorch
already serves. Where there is no GPU this device takes CUDA's place. It is strict: what would be undefined
behaviour on a GPU is an error with words (a tensor of the host among device tensors, memory that is not the
allocator's, a stale event, another device's generator). It remembers what ran where.

    import torch              # with TORCH_DEVICE_BACKEND_AUTOLOAD=0
    import standin            # with this folder on the path
    standin.load()            # before anything asks PyTorch for an accelerator
    torch.ones(2, device="hpu").add_(1)
    assert standin.calls("add_.Tensor") == 1

Environment:
    STANDIN_LIBRARY: a library that `standin_build.build()` made; without it `load()` builds.
    STANDIN_CACHE: the folder of builds; default: one of the user under the system's temporary folder.
    STANDIN_DEVICES: 1 to 8, default 2. STANDIN_MEMORY_MB: memory of each device, default 4096.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

_LABELS = {"any": 0, "privateuse1": 1, "own": 2}
_TEXTS = ("called_ops", "stream_log", "memory_log", "faults", "counts")
_NUMBERS = (
    "calls",
    "device_count",
    "current_device",
    "exchange_device",
    "live_blocks",
    "live_events",
    "live_pinned_blocks",
    "pinned_uses",
    "allocated_bytes",
    "submitted",
    "current_stream",
    "random_state",
    "set_random_state",
    "owner",
)

_library: ctypes.CDLL | None = None


class Work(NamedTuple):
    """One piece of work in the log of the streams."""

    what: str  # an operator ("aten::add.Tensor"), "record event 3", "wait for event 3", "synchronize stream"
    device: int  # of the stream
    stream: int  # its id
    current_device: int  # of the thread when the work was queued, before the kernel set its own
    depth: int  # > 0: queued by another kernel of the stand-in


class MemoryEvent(NamedTuple):
    """One entry of the allocator's log."""

    what: str  # "allocate", "free", "record_stream"
    address: int
    bytes: int
    device: int
    stream: int  # current on the device at an allocation; the recorded one; -1 at a free
    current_device: int
    in_kernel: bool  # made by a kernel of the stand-in, not by its caller


def load(library: Path | None = None) -> None:
    """Load the stand-in into this process: from then on `hpu` is a device. A second call does nothing.

    Must come before anything asks PyTorch for the accelerator (`torch.accelerator`, pinned memory): PyTorch
    looks for the hooks once. Where torch_fl claims its name in the same process, that device is the
    accelerator all the same.

    Raises: RuntimeError if PyTorch has looked already.
    """
    global _library
    if _library is not None:
        return
    import torch

    given = os.environ.get("STANDIN_LIBRARY")
    if library is None and given is None:
        library = importlib.import_module("standin_build").build()
    path = str(library or given)
    torch.ops.load_library(path)  # type: ignore[no-untyped-call]
    _library = ctypes.CDLL(path)
    if not _library.standin_hooks_in_use():
        raise RuntimeError("the stand-in came too late: PyTorch had already looked for an accelerator")
    for name in _TEXTS:
        getattr(_library, f"standin_{name}").restype = ctypes.c_char_p
    for name in _NUMBERS:
        getattr(_library, f"standin_{name}").restype = ctypes.c_int64

    module = importlib.import_module("standin_module")
    torch._register_device_module("hpu", module)  # type: ignore[no-untyped-call]


# --- what tests ask -----------------------------------------------------------------------------------------


def _loaded() -> ctypes.CDLL:
    if _library is None:
        raise RuntimeError("the stand-in is not loaded: call standin.load() first")
    return _library


def _json(function: str) -> Any:
    return json.loads(getattr(_loaded(), f"standin_{function}")())


def _full(op: str) -> bytes:
    return (op if "::" in op else f"aten::{op}").encode()


def _known(number: int, what: str) -> int:
    if number < 0:
        raise KeyError(f"the stand-in has no {what}")
    return int(number)


def calls(op: str) -> int:
    """Return how often a kernel of the stand-in ran since `reset()`, e.g. of "add.Tensor".

    Raises: KeyError if the stand-in has no kernel of its own of this name (PyTorch composes it of others),
    or does not count it (the view primitives).
    """
    return _known(_loaded().standin_calls(_full(op)), f"counted kernel for {op!r}")


def called_ops() -> dict[str, int]:
    """Return all operators that ran since `reset()`, by full name."""
    return {name: number for name, number in _json("called_ops") if number}


def served_ops() -> set[str]:
    """Return the full names of all operators that the stand-in serves and counts."""
    return {name for name, _ in _json("called_ops")}


def stream_log(device: int | None = None, stream: int | None = None) -> list[Work]:
    """Return the work that was queued since `reset()`, in order; of one device, of one stream id."""
    log = [Work(*entry) for entry in _json("stream_log")]
    return [work for work in log if device in (None, work.device) and stream in (None, work.stream)]


def memory_log(what: str | None = None) -> list[MemoryEvent]:
    """Return what the allocator did since `reset()`, in order; only the entries named `what`."""
    log = [MemoryEvent._make([*entry[:-1], bool(entry[-1])]) for entry in _json("memory_log")]
    return [event for event in log if what in (None, event.what)]


def counts() -> dict[str, int]:
    """Return how often guard and hooks were called since `reset()`: "setDevice", "exchangeStream", …"""
    return dict(_json("counts"))


def faults() -> list[str]:
    """Return what was wrong where nothing could be raised: double frees, writes beyond a block, stale events.

    Each was also printed to stderr when it was found.
    """
    return list(_json("faults"))


def check(blocks: int | None = None) -> None:
    """Assert that there are no faults and, where given, that so many blocks of memory are alive."""
    found = faults()
    assert not found, "faults of the stand-in:\n  " + "\n  ".join(found)
    alive = live_blocks()
    assert blocks in (None, alive), f"{alive} blocks of hpu memory are alive, {blocks} were expected"


def reset() -> None:
    """Forget logs, counts, faults and failures to come. Memory, events, streams and rules stay."""
    _loaded().standin_reset()


def live_blocks(device: int = -1) -> int:
    """Return how many blocks of memory are alive, of one device or (-1) of all."""
    return int(_loaded().standin_live_blocks(device))


def live_events() -> int:
    """Return how many events were recorded and not destroyed."""
    return int(_loaded().standin_live_events())


def live_pinned_blocks() -> int:
    """Return how many blocks of pinned memory are alive."""
    return int(_loaded().standin_live_pinned_blocks())


def pinned_uses() -> int:
    """Return how often a pinned block was recorded as used by a stream, since the library was loaded."""
    return int(_loaded().standin_pinned_uses())


def allocated_bytes(device: int = 0) -> int:
    """Return the bytes in use on a device, as they were asked for."""
    return _known(_loaded().standin_allocated_bytes(device), f"device {device}")


def submitted(device: int, stream: int) -> int:
    """Return how much work was ever queued on a stream, by its id; `reset()` does not set it back."""
    number = _loaded().standin_submitted(device, ctypes.c_int64(stream))
    return _known(number, f"stream {stream} of device {device}")


def current_stream(device: int = 0) -> int:
    """Return the id of the calling thread's current stream of a device."""
    return _known(_loaded().standin_current_stream(device), f"device {device}")


def current_device() -> int:
    """Return the calling thread's current device."""
    return int(_loaded().standin_current_device())


def device_count() -> int:
    """Return the number of devices."""
    return int(_loaded().standin_device_count())


def owner(address: int) -> int | None:
    """Return the device in whose live memory an address lies, or None."""
    device = int(_loaded().standin_owner(ctypes.c_void_p(address)))
    return None if device < 0 else device


def random_state(device: int = 0) -> tuple[int, int]:
    """Return seed and offset of a device's default generator."""
    seed, offset = ctypes.c_uint64(), ctypes.c_uint64()
    number = _loaded().standin_random_state(device, ctypes.byref(seed), ctypes.byref(offset))
    _known(number, f"device {device}")
    return seed.value, offset.value


# --- what tests demand --------------------------------------------------------------------------------------


def exchange_device(device: int) -> int:
    """Make a device current for this thread, as the device's own interface would; the one before."""
    return _known(_loaded().standin_exchange_device(device), f"device {device}")


def set_random_state(device: int, seed: int, offset: int = 0) -> None:
    """Set seed and offset (a multiple of 4) of a device's default generator."""
    number = _loaded().standin_set_random_state(device, ctypes.c_uint64(seed), ctypes.c_uint64(offset))
    _known(number, f"device {device}, or the offset {offset} is no multiple of 4")


def fail_next_allocation(skip: int = 0, times: int = 1) -> None:
    """Let `skip` allocations pass; the next `times` throw c10::OutOfMemoryError (torch.OutOfMemoryError)."""
    _loaded().standin_fail_allocations(ctypes.c_int64(skip), ctypes.c_int64(times))


def fail(op: str, times: int = 1) -> None:
    """Make the next `times` calls of an operator throw after its work: in-place arguments are written.

    Raises: KeyError if the stand-in does not serve the operator.
    """
    done = _loaded().standin_fail_op(_full(op), ctypes.c_int64(times))
    _known(0 if done else -1, f"counted kernel for {op!r}")


def rules(
    *,
    storage_labels: str = "any",
    foreign_label_ops: Iterable[str] | None = None,
    own_memory: bool = True,
    bare_tensors: bool = False,
) -> None:
    """Set what kernels demand of their arguments; what is not given goes back to its default.

    Args:
        storage_labels: whose label a storage under a tensor of hpu may carry: "any" device's, "privateuse1"
            (or hpu), or "own" (hpu alone). Views and growing of a storage with another label are refused
            always.
        foreign_label_ops: where given, the only operators that may see a storage with another label.
        own_memory: whether the bytes must lie in a live block of the allocator, on the tensor's device.
        bare_tensors: refuse arguments with autograd's keys (save those of in-place `_foreach_*`, which count
            versions). True of what core lends, not of tensors that a program makes on hpu itself.
    """
    ops = None
    if foreign_label_ops is not None:
        ops = b" ".join(_full(op) for op in foreign_label_ops)
    _loaded().standin_set_rules(_LABELS[storage_labels], ops, int(own_memory), int(bare_tensors))
