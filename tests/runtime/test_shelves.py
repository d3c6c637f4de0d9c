"""The shelves on which threads keep small free blocks: nothing is lost there, sums and peaks are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Evaluate = Callable[..., Any]
MIB = 1 << 20

# A second thread that frees what it is given, and stays: its shelf keeps small blocks.
_OTHER_THREAD = """
import queue, threading
jobs, done = queue.Queue(), queue.Queue()
def work():
    while (job := jobs.get()) is not None:
        done.put(job())
other = threading.Thread(target=work)
other.start()
def there(job):
    jobs.put(job)
    return done.get()
def make(size):
    return torch.empty(size, dtype=torch.uint8, device="flagos:0")
"""


def test_small_blocks_that_another_thread_keeps_are_counted_and_given_back(evaluate: Evaluate) -> None:
    answer = evaluate(
        _OTHER_THREAD,
        """
        try:
            held = [make(64 << 10) for _ in range(32)]
            used = stat("allocated_bytes")
            there(held.clear)
            freed = [stat("allocated_bytes"), stat("active"), stat("allocation")]
            states = {b["state"] for s in memory.snapshot() for b in s["blocks"]}
            there(lambda: [make(512) for _ in range(4)].clear())
            flagos.empty_cache()
            answer = [used, freed, sorted(states), stat("reserved_bytes")]
        finally:
            jobs.put(None)
        """,
    )
    assert answer == [2 * MIB, [0, 0, 0], ["inactive"], 0]


def test_small_blocks_that_another_thread_keeps_serve_a_request_before_the_device_is_asked(
    evaluate: Evaluate,
) -> None:
    answer = evaluate(
        _OTHER_THREAD,
        """
        try:
            held = [make(256 << 10) for _ in range(8)]  # a whole segment
            there(held.clear)
            before = stat("reserved_bytes")
            again = [make(256 << 10) for _ in range(8)]
            answer = [before, stat("reserved_bytes"), stat("allocated_bytes")]
        finally:
            jobs.put(None)
        """,
    )
    assert answer == [2 * MIB, 2 * MIB, 2 * MIB]


def test_peaks_are_exact_where_threads_take_turns(evaluate: Evaluate) -> None:
    answer = evaluate(
        _OTHER_THREAD,
        """
        def keys(name):
            table = flagos.memory_stats("flagos:0")
            return [table[f"{name}.small_pool.{of}"] for of in ("current", "peak", "allocated", "freed")]
        try:
            warm = make(1024); there(lambda: make(1024) is None); del warm
            flagos.reset_peak_memory_stats("flagos:0"); flagos.reset_accumulated_memory_stats("flagos:0")
            mine = [make(1024) for _ in range(3)]           # 3 live
            theirs = there(lambda: [make(1024) for _ in range(4)])  # 7 live
            del mine                                        # 4
            mine = make(1024)                               # 5
            there(theirs.clear)                             # 1
            mine = [mine, make(1024)]                       # 2
            answer = [keys("allocated_bytes"), keys("allocation"), keys("requested_bytes"), keys("active")]
        finally:
            jobs.put(None)
        """,
    )
    in_bytes = [2 * 1024, 7 * 1024, 9 * 1024, 7 * 1024]
    assert answer == [in_bytes, [2, 7, 9, 7], in_bytes, [2, 7, 9, 7]]


def test_counts_are_exact_after_many_threads(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        import threading
        sizes = [512, 1000, 4096, 70_000, 300_000]
        passed_on = []
        def work(seed):
            mine = []
            for i in range(400):
                mine.append(torch.empty(sizes[(i * seed) % 5], dtype=torch.uint8, device="flagos:0"))
                if i % 3 == 0:
                    mine.pop(0)
            passed_on.append(mine)  # freed by another thread, after this one has ended
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 9)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        live = [tensor for mine in passed_on for tensor in mine]
        held = [stat("allocation") == len(live), stat("requested_bytes") == sum(t.numel() for t in live)]
        del live; passed_on.clear()
        table = flagos.memory_stats("flagos:0")
        flagos.empty_cache()
        answer = [held, table["allocation.all.current"], table["allocation.all.allocated"],
                  table["allocation.all.freed"], stat("allocated_bytes"), stat("requested_bytes"),
                  stat("inactive_split"), stat("reserved_bytes")]
        """,
    )
    assert answer == [[True, True], 0, 3200, 3200, 0, 0, 0, 0]
