"""Events: query, wait, order between streams and devices, time, reuse, refusals."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch

from torch_fl.testing.device.support import exported, module


def test_event_without_record_is_done(device: torch.device) -> None:
    event = module().Event()
    assert event.query()
    event.synchronize()
    event.wait()


def test_event_is_torchs(device: torch.device) -> None:
    assert issubclass(module().Event, torch.Event)
    for event in (module().Event(enable_timing=True), torch.Event(device="flagos", enable_timing=True)):
        event.record()
        event.synchronize()
        assert event.query()
        assert event.device.type == "flagos"
        assert "Event" in repr(event)


def test_elapsed_time_grows_and_is_in_milliseconds(delays: Callable[..., str]) -> None:
    printed = delays(
        """
        import torch, torch_fl
        start, end = (torch.flagos.Event(enable_timing=True) for _ in range(2))
        host, mine = torch.ones(1000).pin_memory(), torch.zeros(1000, device="flagos")
        torch.flagos.synchronize()
        start.record()
        mine.copy_(host, non_blocking=True)
        end.record()
        end.synchronize()
        print(start.elapsed_time(end))
        """,
        copy=50_000,
    )
    assert 50.0 <= float(printed) < 500.0


def test_elapsed_time_needs_timing_and_completion(device: torch.device) -> None:
    plain, timed = module().Event(), module().Event(enable_timing=True)
    plain.record()
    timed.record()
    module().synchronize()
    with pytest.raises((RuntimeError, ValueError)):
        plain.elapsed_time(timed)
    with pytest.raises((RuntimeError, ValueError)):
        timed.elapsed_time(module().Event(enable_timing=True))
    assert timed.elapsed_time(timed) == 0.0


def test_event_may_be_recorded_again(device: torch.device) -> None:
    event, stream = module().Event(), module().Stream()
    for _ in range(50):
        event.record()
        event.record(stream)
        event.synchronize()
        assert event.query()


def test_query_does_not_wait_and_synchronize_does(delays: Callable[..., str]) -> None:
    printed = delays(
        """
        import time, torch, torch_fl
        host, mine = torch.ones(1000).pin_memory(), torch.zeros(1000, device="flagos")
        torch.flagos.synchronize()
        event = torch.flagos.Event()
        mine.copy_(host, non_blocking=True)
        event.record()
        start = time.perf_counter()
        early = event.query()
        asked = time.perf_counter() - start
        event.synchronize()
        waited = time.perf_counter() - start
        assert not early and event.query()
        assert asked < 0.1 <= waited, (asked, waited)
        print("right")
        """,
        copy=200_000,
    )
    assert printed.strip() == "right"


def test_wait_makes_a_stream_wait_but_not_the_host(delays: Callable[..., str]) -> None:
    printed = delays(
        """
        import time, torch, torch_fl
        host, mine = torch.ones(1000).pin_memory(), torch.zeros(1000, device="flagos")
        first, second = torch.flagos.Stream(), torch.flagos.Stream()
        torch.flagos.synchronize()
        start = time.perf_counter()
        with torch.flagos.stream(first):
            mine.copy_(host, non_blocking=True)
        event = first.record_event()
        second.wait_event(event)
        later = second.record_event()
        host_time = time.perf_counter() - start
        assert host_time < 0.1, host_time
        assert not later.query(), "the second stream did not wait"
        later.synchronize()
        assert event.query()
        print("right")
        """,
        copy=200_000,
    )
    assert printed.strip() == "right"


def test_event_orders_streams_of_two_devices(device: torch.device, second_device: torch.device) -> None:
    host = torch.ones(100_000).pin_memory()
    with module().device(device):
        mine = host.to(device, non_blocking=True)
        event = module().current_stream(device).record_event()
    stream = module().Stream(second_device)
    stream.wait_event(event)
    stream.synchronize()
    assert event.query()
    assert mine.sum().item() == 100_000.0


def test_event_of_a_destroyed_stream_object_still_works(device: torch.device) -> None:
    event = module().Stream().record_event()
    event.synchronize()
    assert event.query()


def test_many_events_do_not_leak_or_slow_down(device: torch.device) -> None:
    start = time.perf_counter()
    for _ in range(3000):
        event = module().Event()
        event.record()
    module().synchronize()
    assert event.query()
    assert time.perf_counter() - start < 10


def test_interprocess_events_are_refused_in_words(device: torch.device) -> None:
    with pytest.raises(NotImplementedError, match="between processes"):
        module().Event(interprocess=True)


__all__ = exported(globals())
