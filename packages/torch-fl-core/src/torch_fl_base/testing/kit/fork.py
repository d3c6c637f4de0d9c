"""GEN-04: the library in a forked process."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable

from torch_fl_base._hal_header import header
from torch_fl_base.testing.kit.bench import Bench
from torch_fl_base.testing.kit.checks import Skipped, equal, expect, isolated, skip
from torch_fl_base.testing.kit.memory import pattern
from torch_fl_base.testing.kit.subjects import FUNCTIONS, RELEASING, SIZE, arguments, placeholders

CHILD_LIMIT_S = 15.0


def in_forked_child(work: Callable[[], None]) -> None:
    """Run `work` in a forked child and raise here what it raised there. A child that hangs is killed and has
    failed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        complaint = b""
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the child must not go on with the parent's programme
            frames = "".join(traceback.format_tb(error.__traceback__)[-2:])
            complaint = f"in the forked child: {error}\n{frames}".encode()
        os.write(writer, complaint[:60000] or b"\0")
        os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], CHILD_LIMIT_S)
    answer = os.read(reader, 65536) if ready else b""
    os.close(reader)
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    expect(bool(ready), f"a call in the forked child did not return within {CHILD_LIMIT_S:.0f} s")
    killer = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else ""
    expect(not killer, f"the forked child died of {killer}")
    expect(answer == b"\0", answer.decode())


def _all_forked(bench: Bench, inputs_of: dict[str, list[object]]) -> None:
    for qualified in FUNCTIONS:
        if qualified == "system.last_error" or not bench.hal.has(qualified):
            continue
        inputs = inputs_of.get(qualified) or placeholders(qualified)
        if qualified in RELEASING:
            equal(bench.hal.call(qualified, *inputs).status, "OK", f"the status of {qualified} after a fork")
        else:
            bench.refuses("FORKED", qualified, *inputs)


@isolated()
def test_gen_04_child_forked_after_init_is_turned_away(bench: Bench) -> None:
    bench.requires_devices(1)
    live: dict[str, list[object]] = {}
    for qualified in FUNCTIONS:
        # Live arguments: the library must not reach for its objects before it has seen that it is in a fork.
        # Not those that change what others can do.
        if qualified.partition(".")[0] in ("graph", "trace", "ipc", "system") or not bench.hal.has(qualified):
            continue
        try:
            live[qualified] = arguments(bench, qualified)
        except Skipped:
            continue
    # Freshly made live arguments are held in the parent, so a release in the child must not take them away.
    pointer = bench.allocate(SIZE)
    bench.put(pointer, pattern(SIZE, 1))
    started = time.monotonic()
    in_forked_child(lambda: _all_forked(bench, live))
    expect(time.monotonic() - started < CHILD_LIMIT_S, "the calls in the child took too long")
    bench.holds(pointer, pattern(SIZE, 1), "the parent's memory after its child called everything")
    for handle in (live["stream.query"][0], live["stream.destroy"][0]):
        equal(bench.hal.call("stream.query", handle).status, "OK", "the parent's stream after the fork")
    equal(bench.hal.call("memory.release", *live["memory.release"]).status, "OK", "the parent's own release")


@isolated()
def test_gen_04_child_of_a_busy_parent_is_turned_away_at_once(bench: Bench) -> None:
    bench.requires_devices(1)
    stream, pointer = bench.stream(), bench.allocate(SIZE)
    gate = bench.gate(stream)
    bench.hal.memory.fill_async(stream, pointer, 1, SIZE)

    def child() -> None:
        bench.refuses("FORKED", "stream.synchronize", stream)
        bench.refuses("FORKED", "device.synchronize", 0)
        bench.refuses("FORKED", "memory.fill_async", stream, pointer, 1, SIZE)
        bench.refuses("FORKED", "system.shutdown")
        equal(
            bench.hal.call("stream.destroy", stream).status,
            "OK",
            "stream.destroy of a busy stream in the child",
        )

    in_forked_child(child)
    bench.still_shut(gate, "a call in the forked child")
    gate.open()
    bench.hal.stream.synchronize(stream)


@isolated()
def test_gen_04_fork_while_other_threads_call(bench: Bench) -> None:
    """A lock that another thread holds at the fork stays held in the child for ever; no call there may want
    it."""
    bench.requires_devices(1)
    stop = threading.Event()

    def hammer() -> None:
        while not stop.is_set():
            pointer = bench.hal.memory.allocate(0, SIZE)
            bench.hal.memory.pointer_info(pointer)
            stream = bench.hal.stream.create(0, None)
            bench.hal.memory.fill_async(stream, pointer, 1, SIZE)
            bench.hal.stream.destroy(stream)
            bench.hal.memory.release(0, pointer)
            bench.hal.call("device.health", -1)

    threads = [threading.Thread(target=hammer, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()

    def child() -> None:
        for qualified in ("memory.allocate", "memory.pointer_info", "stream.create", "device.memory_info"):
            bench.refuses("FORKED", qualified, *placeholders(qualified))
        equal(bench.hal.call("memory.release", 0, 4096).status, "OK", "memory.release in the child")

    try:
        for _ in range(15):
            in_forked_child(child)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@isolated(initialised=False)
def test_gen_04_child_forked_before_init_may_use_the_library(bench: Bench) -> None:
    def use() -> None:
        bench.hal.system.init()
        if not bench.hal.device.count():
            skip("needs 1 device, the library has 0")
        pointer = bench.hal.memory.allocate(0, SIZE)
        stream = bench.hal.stream.create(0, None)
        bench.hal.memory.fill_async(stream, pointer, 0x19, SIZE)
        bench.hal.stream.synchronize(stream)
        bench.holds(pointer, b"\x19" * SIZE, "memory in the process that called init after the fork")
        bench.hal.stream.destroy(stream)
        bench.hal.memory.release(0, pointer)
        bench.hal.system.shutdown()

    bench.hal.system.info()
    in_forked_child(use)
    use()


@isolated()
def test_gen_04_child_forked_after_shutdown_is_refused(bench: Bench) -> None:
    """A vendor's runtime seldom survives a fork once it was started, even if it was stopped."""
    bench.hal.system.shutdown()

    def child() -> None:
        for qualified in ("system.init", "system.shutdown", "system.info", "device.count"):
            bench.refuses("FORKED", qualified)

    in_forked_child(child)


@isolated()
def test_gen_04_last_error_and_query_work_in_the_child(bench: Bench) -> None:
    def child() -> None:
        bench.refuses("FORKED", "device.count")
        equal(bench.detail().status, "FORKED", "the status in the detail in the child")
        if bench.hal.query is not None:
            import ctypes

            table = ctypes.c_void_p()
            status = bench.hal.query(*header().abi, ctypes.byref(table))
            equal(status, 0, "the status of query in the child")

    in_forked_child(child)
