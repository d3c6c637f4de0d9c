"""Streams: current stream per thread and device, contexts, pools, order, memory that outlives its stream's
use."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from torch_fl.testing.device.support import companion_of, exported, module


def test_default_stream_is_current_at_first(device: torch.device) -> None:
    assert module().current_stream() == module().default_stream()
    assert module().current_stream(device).device == device
    assert torch.accelerator.current_stream() == module().current_stream()


def test_stream_is_torchs(device: torch.device) -> None:
    assert issubclass(module().Stream, torch.Stream)
    stream = torch.Stream(device="flagos")
    assert stream.device == device
    assert stream.query()
    stream.synchronize()
    assert stream.record_event().query() in (True, False)


def test_streams_are_compared_by_what_they_name(device: torch.device) -> None:
    first, second = module().Stream(), module().Stream()
    assert first != second
    assert first == module().Stream(stream_id=first.stream_id, device_index=0)
    assert hash(first) == hash(module().Stream(stream_id=first.stream_id, device_index=0))
    assert first != module().default_stream()


def test_stream_context_is_undone(device: torch.device) -> None:
    before, stream = module().current_stream(), module().Stream()
    with module().stream(stream):
        assert module().current_stream() == stream
        with module().stream(None):
            assert module().current_stream() == stream
    assert module().current_stream() == before
    with pytest.raises(ValueError, match="on purpose"), module().stream(stream):
        raise ValueError("on purpose")
    assert module().current_stream() == before
    with stream:
        assert module().current_stream() == stream
    assert module().current_stream() == before


def test_stream_context_of_another_device(device: torch.device, second_device: torch.device) -> None:
    stream = module().Stream(second_device)
    with module().stream(stream):
        assert module().current_device() == second_device.index
        assert module().current_stream() == stream
        assert module().current_stream(device) == module().default_stream(device)
    assert module().current_device() == 0
    assert module().current_stream(second_device) == module().default_stream(second_device)


def test_current_stream_is_per_thread(device: torch.device) -> None:
    stream = module().Stream()
    module().set_stream(stream)
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.append(module().current_stream()))
    thread.start()
    thread.join()
    assert seen == [module().default_stream()]
    assert module().current_stream() == stream
    module().set_stream(module().default_stream())


def test_pool_gives_many_streams(device: torch.device) -> None:
    streams = [module().Stream() for _ in range(100)]
    assert len({stream.stream_id for stream in streams}) >= 16
    for stream in streams:
        with module().stream(stream):
            torch.ones(4, device=device)
        stream.synchronize()


def test_priorities_are_clamped_to_the_range(device: torch.device) -> None:
    least, greatest = module().Stream.priority_range()
    assert greatest <= least
    assert module().Stream(priority=-100).priority == greatest
    assert module().Stream(priority=100).priority == least


def test_work_on_one_stream_is_in_order(device: torch.device) -> None:
    stream = module().Stream()
    with module().stream(stream):
        target = torch.zeros(1000, device=device)
        for value in range(20):
            target.copy_(torch.full((1000,), float(value)).pin_memory(), non_blocking=True)
    stream.synchronize()
    assert target.sum().item() == 19_000.0


def test_wait_stream_orders_two_streams(delays: Callable[..., str]) -> None:
    printed = delays(
        """
        import torch, torch_fl
        host, back = torch.ones(1000).pin_memory(), torch.zeros(1000).pin_memory()
        mine = torch.zeros(1000, device="flagos")
        first, second = torch.flagos.Stream(), torch.flagos.Stream()
        torch.flagos.synchronize()
        with torch.flagos.stream(first):
            mine.copy_(host, non_blocking=True)
        second.wait_stream(first)
        with torch.flagos.stream(second):
            back.copy_(mine, non_blocking=True)
        assert not second.query()
        second.synchronize()
        assert second.query() and back.sum().item() == 1000.
        print("right")
        """,
        copy=100_000,
    )
    assert printed.strip() == "right"


def test_streams_run_side_by_side(delays: Callable[..., str]) -> None:
    printed = delays(
        """
        import time, torch, torch_fl
        host = torch.ones(1000).pin_memory()
        targets = [torch.zeros(1000, device="flagos") for _ in range(4)]
        streams = [torch.flagos.Stream() for _ in targets]
        torch.flagos.synchronize()
        start = time.perf_counter()
        for stream, target in zip(streams, targets):
            with torch.flagos.stream(stream):
                target.copy_(host, non_blocking=True)
        torch.flagos.synchronize()
        took = time.perf_counter() - start
        assert took < 0.7, f"four copies of 0.2 s took {took:.2f} s: one after the other"
        print("right")
        """,
        copy=200_000,
    )
    assert printed.strip() == "right"


def test_record_stream_keeps_memory_until_the_other_stream_is_done(delays: Callable[..., str]) -> None:
    printed = delays(
        """
        import torch, torch_fl
        side = torch.flagos.Stream()
        back = torch.zeros(1000).pin_memory()
        mine = torch.ones(1000, device="flagos")
        torch.flagos.synchronize()
        with torch.flagos.stream(side):
            back.copy_(mine, non_blocking=True)
        mine.record_stream(side)
        address = mine.data_ptr()
        del mine
        others = [torch.full((1000,), 7., device="flagos") for _ in range(4)]
        assert address not in [other.data_ptr() for other in others], "memory in use was given away"
        side.synchronize()
        assert back.sum().item() == 1000.
        torch.flagos.synchronize()
        later = [torch.full((1000,), 7., device="flagos") for _ in range(8)]
        print("right")
        """,
        copy=100_000,
    )
    assert printed.strip() == "right"


def test_operators_wait_for_the_current_stream_only(delays: Callable[..., str]) -> None:
    printed = delays(
        """
        import time, torch, torch_fl
        host = torch.ones(1000).pin_memory()
        slow = torch.zeros(1000, device="flagos")
        ready = torch.ones(10, device="flagos")
        side = torch.flagos.Stream()
        torch.flagos.synchronize()
        with torch.flagos.stream(side):
            slow.copy_(host, non_blocking=True)
        start = time.perf_counter()
        assert (ready + 1).sum().item() == 20.
        took = time.perf_counter() - start
        assert not side.query() and took < 0.2, took
        print("right")
        """,
        copy=400_000,
    )
    assert printed.strip() == "right"


def test_native_handle_is_a_number(device: torch.device) -> None:
    assert isinstance(module().Stream().native_handle, int)
    if companion_of(0) is None:
        assert isinstance(module().Stream().hal_handle, int)


def test_external_stream_names_an_existing_one(device: torch.device) -> None:
    if companion_of(0) is not None:
        pytest.skip("streams are the companion's and have no handle of the HAL")
    stream = module().Stream()
    external = module().ExternalStream(stream.hal_handle)
    with module().stream(external):
        assert torch.ones(3, device=device).sum().item() == 3.0
    external.synchronize()


def test_synchronize_of_each_kind_returns(device: torch.device) -> None:
    torch.accelerator.synchronize()
    module().synchronize()
    module().synchronize(device)
    module().current_stream().synchronize()


__all__ = exported(globals())
