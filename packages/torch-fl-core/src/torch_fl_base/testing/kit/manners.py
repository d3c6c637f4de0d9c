"""GEN-09: what a library leaves alone."""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from torch_fl_base.testing.kit.bench import (
    Bench,
)
from torch_fl_base.testing.kit.checks import equal, isolated, skip
from torch_fl_base.testing.kit.subjects import SIZE


def _environment() -> list[bytes]:
    libc: Any = ctypes.CDLL(None)
    entries = ctypes.cast(libc.environ, ctypes.POINTER(ctypes.POINTER(ctypes.c_char_p))).contents
    found: list[bytes] = []
    while entries[len(found)] is not None:
        found.append(entries[len(found)])
    return found


def _workload(bench: Bench) -> None:
    bench.hal.system.init()
    if bench.hal.device.count():
        pointer = bench.allocate(SIZE)
        stream = bench.stream()
        event = bench.event()
        bench.hal.memory.fill_async(stream, pointer, 1, SIZE)
        bench.hal.event.record(event, stream)
        bench.hal.event.synchronize(event)
        bench.hal.stream.synchronize(stream)
        bench.hal.call("memory.allocate", -1, SIZE)
        bench.hal.call("stream.query", None)
    bench.close()
    bench.hal.system.shutdown()


@isolated(initialised=False)
def test_gen_09_prints_nothing(bench: Bench) -> None:
    with tempfile.TemporaryFile() as caught:
        kept = os.dup(1), os.dup(2)
        os.dup2(caught.fileno(), 1)
        os.dup2(caught.fileno(), 2)
        try:
            _workload(bench)
            ctypes.CDLL(None).fflush(None)
        finally:
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
        caught.seek(0)
        equal(caught.read(), b"", "what the library printed")


@isolated(initialised=False)
def test_gen_09_sets_no_environment_variable(bench: Bench) -> None:
    before = _environment()
    _workload(bench)
    equal(sorted(set(_environment()) ^ set(before)), [], "environment variables that changed")


@isolated(initialised=False)
def test_gen_09_no_thread_outlives_shutdown(bench: Bench) -> None:
    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    before = threads()
    _workload(bench)
    deadline = time.monotonic() + 2  # a joined thread may still be listed for a moment
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    equal(threads(), before, "the number of threads after shutdown")


def test_gen_09_released_memory_is_free_at_once(bench: Bench) -> None:
    if not bench.quirks.private_memory:
        skip("quirks.private_memory is False: other processes use the devices, too")
    bench.requires_devices(1)
    before = bench.memory_of(0)[0]
    blocks = [bench.hal.memory.allocate(0, size) for size in (SIZE, 1 << 20, 8 << 20)]
    for block in blocks:
        bench.hal.memory.release(0, block)
    equal(bench.memory_of(0)[0], before, "free memory after all was released")
