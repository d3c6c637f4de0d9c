"""Two things measured in one process in turns, so that what else the machine does hits both alike."""

from __future__ import annotations

import gc
import statistics
import time
import timeit
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Pair:
    """Medians over the rounds: nanoseconds of each side, and of the rounds' own ratios."""

    ours: float
    theirs: float
    ratio: float
    spread: float
    """Half the distance between the quartiles of the ratio, relative to it."""


def compare(
    statement: str,
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    *,
    rounds: int = 41,
    seconds_per_round: float = 0.01,
    setup: str = "pass",
    clock: Callable[[], float] = time.process_time,
) -> Pair:
    """Return the processor time that `statement` takes with the names of `ours` against those of `theirs`.

    The time of all threads of the process counts, what other processes do does not. Each round times both,
    the order turning; the garbage collector rests meanwhile.

    Args:
        statement: Python; runs as the body of timeit's loop, so that calling it costs nothing.
        ours, theirs: the names it uses.
        rounds: how many pairs of timings.
        seconds_per_round: of one side; the number of repetitions is chosen for it.
        setup: runs before each timing.
        clock: seconds; time.perf_counter where a driver's own threads must not count.
    """
    timers = [timeit.Timer(statement, setup, timer=clock, globals=dict(names)) for names in (ours, theirs)]
    for timer in timers:
        timer.timeit(20)
    number = max(1, round(seconds_per_round / max(timers[1].timeit(50) / 50, 1e-9)))
    found: list[list[float]] = [[], []]
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            for side in (0, 1) if turn % 2 else (1, 0):
                found[side].append(timers[side].timeit(number) / number * 1e9)
    finally:
        gc.enable()
    ratios = [a / b for a, b in zip(*found, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return Pair(statistics.median(found[0]), statistics.median(found[1]), middle, (high - low) / 2 / middle)
