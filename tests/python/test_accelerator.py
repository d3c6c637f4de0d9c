"""torch.accelerator on flagos: each of its functions works, and says what torch.flagos says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torch_fl  # noqa: F401

accelerator = torch.accelerator
flagos = torch.flagos


def _device_index_block() -> None:
    with accelerator.device_index(1):
        assert flagos.current_device() == 1
    assert flagos.current_device() == 0


def _streams() -> None:
    stream = torch.Stream("flagos")
    accelerator.set_stream(stream)
    assert accelerator.current_stream() == stream == flagos.current_stream()
    accelerator.set_stream(flagos.default_stream())


def _set_device() -> None:
    accelerator.set_device_index("flagos:1")
    assert accelerator.current_device_index() == flagos.current_device() == 1
    accelerator.set_device_index(0)


def _memory() -> None:
    before = accelerator.memory_allocated(1)
    tensor = torch.empty(1 << 20, dtype=torch.uint8, device="flagos:1")
    assert accelerator.memory_allocated(1) == flagos.memory_allocated("flagos:1") == before + (1 << 20)
    del tensor
    accelerator.reset_peak_memory_stats(1)
    assert accelerator.max_memory_allocated(1) == before
    accelerator.reset_accumulated_memory_stats(1)
    assert accelerator.memory_stats(1)["allocation.all.allocated"] == 0
    accelerator.empty_cache()
    assert accelerator.memory_reserved(1) == flagos.memory_reserved(1) <= accelerator.max_memory_reserved(1)


def _capability() -> None:
    assert torch.float32 in accelerator.get_device_capability()["supported_dtypes"]


# Every public name of torch.accelerator, and what shows that it works.
CHECKS: dict[str, Callable[[], Any]] = {
    "current_accelerator": lambda: accelerator.current_accelerator(check_available=True).type == "flagos",
    "current_device_idx": _set_device,
    "current_device_index": _set_device,
    "current_stream": _streams,
    "device_count": lambda: accelerator.device_count() == flagos.device_count() == 2,
    "device_index": _device_index_block,
    "empty_cache": _memory,
    "empty_host_cache": lambda: accelerator.empty_host_cache() is None,
    "get_device_capability": _capability,
    "get_memory_info": lambda: accelerator.get_memory_info(1) == flagos.mem_get_info(1),
    "is_available": lambda: accelerator.is_available() and flagos.is_available(),
    "max_memory_allocated": _memory,
    "max_memory_reserved": _memory,
    "memory_allocated": _memory,
    "memory_reserved": _memory,
    "memory_stats": _memory,
    "reset_accumulated_memory_stats": _memory,
    "reset_peak_memory_stats": _memory,
    "set_device_idx": _set_device,
    "set_device_index": _set_device,
    "set_stream": _streams,
    "synchronize": lambda: accelerator.synchronize("flagos:1") is None,
}
MISSING = {"Graph": "graph capture is not offered yet"}


@pytest.mark.parametrize("name", sorted(accelerator.__all__))
def test_function_works_and_agrees_with_torch_flagos(name: str) -> None:
    flagos.set_device(0)
    torch.empty(1, device="flagos")
    if name in MISSING:
        pytest.skip(MISSING[name])
    assert CHECKS[name]() in (None, True)


def test_generic_stream_and_event_are_of_flagos() -> None:
    event = torch.Event(enable_timing=True)
    assert event.device.type == "flagos"
    assert torch.Stream().device == torch.device("flagos:0")
    with torch.Stream("flagos:1") as stream:
        assert flagos.current_device() == 1
        assert flagos.current_stream() == stream
        event = stream.record_event()
    assert flagos.current_device() == 0
    event.synchronize()
    assert event.query()
