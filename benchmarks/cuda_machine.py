"""What the benchmarks on a GPU share: the companion must be there, and the thread stays on a fast core."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator


def require_companion() -> None:
    """Raises: RuntimeError where flagos:0 does not run over CUDA in this process."""
    import torch

    if torch.version.cuda is None or not torch.cuda.is_available():
        raise RuntimeError("it compares with native CUDA; there is no GPU that this torch could use")
    import torch_fl

    companion = torch_fl.companion("flagos:0")
    if companion != "cuda":
        raise RuntimeError(
            f"flagos:0 must run over cuda, its companion is {companion}; see torch_fl.report()"
        )


def _spin() -> float:
    start = time.perf_counter()
    number = 0
    for value in range(100_000):
        number += value
    return time.perf_counter() - start


@contextlib.contextmanager
def on_one_core() -> Iterator[None]:
    """Bind the thread to the fastest core for a while: a virtual machine's cores run at different speeds."""
    before = os.sched_getaffinity(0)
    speeds = {}
    for core in before:
        os.sched_setaffinity(0, {core})
        speeds[core] = min(_spin() for _ in range(3))
    os.sched_setaffinity(0, {min(speeds, key=speeds.__getitem__)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
