"""Threads: many at once on shared and on own tensors, streams and devices."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from torch_fl.testing.device.support import exported, module

THREADS = 8


def _all_at_once(work: Callable[[int], None]) -> None:
    """Run `work(index)` in all threads from one starting line; raise the first error."""
    line = threading.Barrier(THREADS)
    failures: list[BaseException] = []

    def run(index: int) -> None:
        try:
            line.wait()
            work(index)
        except BaseException as error:  # noqa: BLE001  raised again below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_eight_threads_read_one_pair_of_tensors(device: torch.device) -> None:
    a, b = torch.arange(64.0, device=device), torch.full((64,), 2.0, device=device)
    wanted = (torch.arange(64.0) * 2 + 2).tolist()

    def work(_: int) -> None:
        for _ in range(300):
            result = a * b + b
            assert result.device == device
            assert result.tolist() == wanted
            assert a.device == device
            assert a.view(8, 8).t().device == device

    _all_at_once(work)


def test_eight_threads_on_own_streams(device: torch.device) -> None:
    def work(index: int) -> None:
        stream = module().Stream()
        with module().stream(stream):
            for step in range(40):
                host = torch.full((500,), float(index * 1000 + step)).pin_memory()
                mine = host.to(device, non_blocking=True)
                back = (mine + 1).cpu()
                assert back.unique().tolist() == [float(index * 1000 + step + 1)]
        assert module().current_stream() == module().default_stream()

    _all_at_once(work)


def test_eight_threads_on_two_devices(device: torch.device, second_device: torch.device) -> None:
    def work(index: int) -> None:
        place = (device, second_device)[index % 2]
        module().set_device(place)
        for step in range(60):
            mine = torch.full((100,), float(step), device="flagos")
            assert mine.device == place
            other = mine.to((device, second_device)[(index + 1) % 2])
            assert other.sum().item() == 100.0 * step
        assert module().current_device() == place.index

    _all_at_once(work)


def test_eight_threads_allocate_and_free(device: torch.device) -> None:
    module().synchronize()
    before = module().memory_allocated()

    def work(index: int) -> None:
        generator = torch.Generator().manual_seed(index)
        kept: list[tuple[torch.Tensor, float]] = []
        for step in range(150):
            size = int(torch.randint(1, 200_000, (), generator=generator))
            kept.append((torch.full((size,), float(step), device=device), float(step)))
            if len(kept) > 5:
                tensor, value = kept.pop(step % 5)
                assert tensor[0].item() == tensor[-1].item() == value

    _all_at_once(work)
    module().synchronize()
    assert module().memory_allocated() == before


def test_eight_threads_pass_tensors_on(device: torch.device) -> None:
    import queue

    channel: queue.Queue[torch.Tensor] = queue.Queue()

    def work(index: int) -> None:
        for step in range(50):
            if index % 2:
                channel.put(torch.full((257,), float(step), device=device))
            else:
                tensor = channel.get(timeout=60)
                assert tensor.unique().numel() == 1

    _all_at_once(work)
    assert channel.empty()


def test_eight_threads_draw_random_numbers_without_repeats(device: torch.device) -> None:
    drawn: list[list[float]] = [[] for _ in range(THREADS)]

    def work(index: int) -> None:
        for _ in range(40):
            drawn[index] += torch.rand(8, dtype=torch.float64, device=device).tolist()

    _all_at_once(work)
    numbers = [number for part in drawn for number in part]
    assert len(set(numbers)) == len(numbers), "two threads were given the same random numbers"


def test_eight_threads_write_parts_of_one_tensor(device: torch.device) -> None:
    shared = torch.zeros(THREADS, 1000, device=device)

    def work(index: int) -> None:
        for _ in range(100):
            shared[index].add_(1)

    _all_at_once(work)
    assert shared.unique().tolist() == [100.0]


def test_first_use_from_many_threads() -> None:
    from torch_fl.testing.device.support import run_quietly

    printed = run_quietly(
        """
        import threading, torch, torch_fl
        line, sums = threading.Barrier(8), []
        def work():
            line.wait()
            sums.append(torch.ones(10, device="flagos").sum().item())
        threads = [threading.Thread(target=work) for _ in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        print(sums == [10.0] * 8)
        """
    )
    assert printed.strip() == "True"


__all__ = exported(globals())
