"""The caching allocator beside the HAL: streams, running out of memory, failures, fork, exit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Evaluate = Callable[..., Any]
MIB = 1 << 20

# A copy from pinned memory that takes 150 ms on a side stream, into memory that is freed meanwhile.
_IN_FLIGHT = """
side = torch.Stream(device="flagos:0")
source = torch.ones(MIB, dtype=torch.uint8).pin_memory()
target = torch.zeros(MIB, dtype=torch.uint8, device="flagos:0")
flagos.synchronize()
address = target.data_ptr()
"""
_SLOW = {"FLAGOS_REFERENCE_LATENCY": "copy:150000"}


def test_memory_in_use_on_another_stream_is_not_reused(evaluate: Evaluate) -> None:
    answer = evaluate(
        _IN_FLIGHT,
        """
        with side:
            target.copy_(source, non_blocking=True)
        target.record_stream(side)
        del target
        busy = not side.query()
        fresh = torch.empty(MIB, dtype=torch.uint8, device="flagos:0")
        states = {b["state"] for s in memory.snapshot() for b in s["blocks"] if b["address"] == address}
        pending = stat("active_bytes") - stat("allocated_bytes")
        side.synchronize()
        again = [torch.empty(MIB, dtype=torch.uint8, device="flagos:0") for _ in range(2)]
        back = address in [tensor.data_ptr() for tensor in again]
        answer = [busy, fresh.data_ptr() == address, sorted(states), pending, back]
        """,
        **_SLOW,
    )
    assert answer == [True, False, ["active_pending_free"], MIB, True]


def test_peak_of_active_memory_counts_what_waits_for_other_streams(evaluate: Evaluate) -> None:
    answer = evaluate(
        _IN_FLIGHT,
        """
        table = lambda: flagos.memory_stats("flagos:0")
        read = lambda: [table()[f"{name}.all.{of}"] for name in ("active_bytes", "allocated_bytes")
                        for of in ("current", "peak", "allocated", "freed")]
        flagos.reset_peak_memory_stats("flagos:0"); flagos.reset_accumulated_memory_stats("flagos:0")
        with side:
            target.copy_(source, non_blocking=True)
        target.record_stream(side)
        del target
        waiting = read()
        fresh = torch.empty(MIB, dtype=torch.uint8, device="flagos:0")
        both = read()
        side.synchronize()
        flagos.empty_cache()
        settled = read()
        flagos.reset_peak_memory_stats("flagos:0"); flagos.reset_accumulated_memory_stats("flagos:0")
        del fresh
        answer = [waiting, both, settled, read()]
        """,
        **_SLOW,
    )
    waiting, both, settled, after = answer
    #                  active: current, peak, in, out;  allocated: the same
    assert waiting == [MIB, MIB, 0, 0, 0, MIB, 0, MIB]
    assert both == [2 * MIB, 2 * MIB, MIB, 0, MIB, MIB, MIB, MIB]
    assert settled == [MIB, 2 * MIB, MIB, MIB, MIB, MIB, MIB, MIB]
    assert after == [0, MIB, 0, MIB, 0, MIB, 0, MIB]


def test_work_queued_after_record_stream_is_waited_for_too(evaluate: Evaluate) -> None:
    answer = evaluate(
        _IN_FLIGHT,
        """
        target.record_stream(side)  # before any work; an event recorded here would be reached at once
        with side:
            target.copy_(source, non_blocking=True)
        del target
        fresh = torch.full((MIB,), 7, dtype=torch.uint8, device="flagos:0")
        elsewhere = fresh.data_ptr() != address
        side.synchronize()
        answer = [elsewhere, bool((fresh == 7).all())]
        """,
        **_SLOW,
    )
    assert answer == [True, True]


def test_without_record_stream_the_test_sees_the_early_reuse(evaluate: Evaluate) -> None:
    """The two tests above would fail if events were not recorded: here is what they would see."""
    answer = evaluate(
        _IN_FLIGHT,
        """
        with side:
            target.copy_(source, non_blocking=True)
        del target
        fresh = torch.full((MIB,), 7, dtype=torch.uint8, device="flagos:0")
        reused = fresh.data_ptr() == address
        side.synchronize()
        answer = [reused, bool((fresh == 7).all())]
        """,
        **_SLOW,
    )
    assert answer == [True, False]


def test_a_busy_stream_holds_up_only_its_own_blocks(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        busy, idle = torch.Stream(device="flagos:0"), torch.Stream(device="flagos:0")
        first, second = (memory.allocate(MIB, 0, 0) for _ in range(2))
        source = torch.ones(MIB, dtype=torch.uint8).pin_memory()
        target = torch.zeros(MIB, dtype=torch.uint8, device="flagos:0")
        flagos.synchronize()
        with busy:
            target.copy_(source, non_blocking=True)
        memory.record_stream(first, busy.stream_id, 0)
        memory.record_stream(second, idle.stream_id, 0)
        memory.release(first)
        memory.release(second)
        idle.synchronize()
        fresh = [memory.allocate(MIB, 0, 0) for _ in range(3)]
        answer = [not busy.query(), second in fresh, first in fresh]
        """,
        **_SLOW,
    )
    assert answer == [True, True, False]


def test_a_stream_of_another_device_is_waited_for(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        far = torch.Stream(device="flagos:1")
        source = torch.ones(MIB, dtype=torch.uint8).pin_memory()
        target = torch.zeros(MIB, dtype=torch.uint8, device="flagos:1")
        flagos.synchronize(1)
        mine = torch.zeros(MIB, dtype=torch.uint8, device="flagos:0")
        address = mine.data_ptr()
        with far:
            target.copy_(source, non_blocking=True)
        mine.record_stream(far)
        del mine
        fresh = torch.empty(MIB, dtype=torch.uint8, device="flagos:0")
        early = fresh.data_ptr() == address
        far.synchronize()
        later = [torch.empty(MIB, dtype=torch.uint8, device="flagos:0") for _ in range(2)]
        answer = [early, address in [t.data_ptr() for t in later]]
        """,
        **_SLOW,
    )
    assert answer == [False, True]


def test_allocations_follow_the_current_stream(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        side = torch.Stream(device="flagos:0")
        with side:
            tensor = torch.empty(MIB, dtype=torch.uint8, device="flagos:0")
        answer = [s["stream"] == side.stream_id for s in memory.snapshot()]
        """
    )
    assert answer == [True]


def test_memory_in_use_elsewhere_is_waited_for_before_giving_up(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        side = torch.Stream(device="flagos:0")
        source = torch.ones(24 * MIB, dtype=torch.uint8).pin_memory()
        target = torch.zeros(24 * MIB, dtype=torch.uint8, device="flagos:0")
        flagos.synchronize()
        with side:
            target.copy_(source, non_blocking=True)
        target.record_stream(side)
        address = target.data_ptr()
        del target
        busy = not side.query()
        fresh = torch.empty(24 * MIB, dtype=torch.uint8, device="flagos:0")
        stats = memory.stats(0)
        answer = [busy, fresh.data_ptr() == address, stats["num_alloc_retries"], stats["num_ooms"],
                  stats["num_sync_all_streams"]]
        """,
        FLAGOS_REFERENCE_MEMORY="40MiB",
        **_SLOW,
    )
    assert answer == [True, True, 1, 0, 1]


def test_the_cache_is_given_back_before_giving_up(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        blocks = [memory.allocate(20 * MIB, 0, 0) for _ in range(3)]
        for block in blocks:
            memory.release(block)
        large = memory.allocate(50 * MIB, 0, 0)
        stats = memory.stats(0)
        answer = [stats[name] for name in ("num_alloc_retries", "num_ooms", "num_device_free")]
        answer.append(stat("reserved_bytes"))
        """,
        FLAGOS_REFERENCE_MEMORY="64MiB",
    )
    assert answer == [1, 0, 3, 50 * MIB]


def test_cached_memory_is_given_back_only_when_its_stream_has_finished(evaluate: Evaluate) -> None:
    """The HAL refuses to take memory back that queued work uses, so an early release would be an error."""
    answer = evaluate(
        """
        source = torch.ones(8 * MIB, dtype=torch.uint8).pin_memory()
        target = torch.zeros(8 * MIB, dtype=torch.uint8, device="flagos:0")
        flagos.synchronize()
        target.copy_(source, non_blocking=True)
        busy = not flagos.current_stream().query()
        del source, target
        memory.empty_cache()
        answer = [busy, stat("reserved_bytes"), memory.info(0)[0] == memory.info(0)[1]]
        """,
        **_SLOW,
    )
    assert answer == [True, 0, True]


def test_a_medium_request_is_content_with_a_tight_segment(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        first = memory.allocate(20 * MIB, 0, 0)
        second = memory.allocate(8 * MIB, 0, 0)  # the usual segment of 20 MiB does not fit any more
        answer = [segment["total_size"] for segment in memory.snapshot()]
        """,
        FLAGOS_REFERENCE_MEMORY="32MiB",
    )
    assert sorted(answer) == [8 * MIB, 20 * MIB]


def test_the_out_of_memory_error_explains_itself(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        seen = []
        memory.attach_out_of_memory_observer(lambda *arguments: seen.append(arguments))
        memory.set_fraction(0.75, 0)
        kept = [memory.allocate(20 * MIB, 0, 0) for _ in range(2)]
        small = memory.allocate(512, 0, 0)
        failure = caught(memory.allocate, 30 * MIB, 0, 0)
        after = memory.allocate(512, 0, 0)
        beyond = caught(memory.allocate, 1 << 60, 0, 0)
        stats = memory.stats(0)
        answer = [failure, beyond, seen, stats["num_ooms"], stat("allocation")]
        """,
        FLAGOS_REFERENCE_MEMORY="64MiB",
    )
    (kind, message), (beyond_kind, beyond), seen, ooms, live = answer
    assert (kind, beyond_kind) == ("OutOfMemoryError", "OutOfMemoryError")
    for part in (
        "flagos:0 (backend 'reference')",
        "Asked for 30.00 MiB",
        "22.00 MiB of the device's 64.00 MiB are free",
        "40.00 MiB allocated",
        "42.00 MiB reserved",
        "the largest free block it holds has 2.00 MiB",
        "may reserve 48.00 MiB",
        "Tried: ",
        "What to do: raise the fraction",
        "memory_summary()",
    ):
        assert part in message, message
    assert "more than the device has" in beyond
    assert seen == [[0, 30 * MIB, 64 * MIB, 22 * MIB], [0, 1 << 60, 64 * MIB, 22 * MIB]]
    assert (ooms, live) == (2, 4)


def test_a_failing_observer_does_not_hide_the_error(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        import sys
        raised = []
        sys.unraisablehook = lambda unraisable: raised.append(str(unraisable.exc_value))
        def observer(*arguments):
            raise KeyError("mine")
        memory.attach_out_of_memory_observer(observer)
        answer = [caught(memory.allocate, 1 << 40, 0, 0)[0], raised]
        """
    )
    assert answer == ["OutOfMemoryError", ["'mine'"]]


def test_pieces_are_named_where_they_are_the_cause(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        blocks = [memory.allocate(10 * MIB, 0, 0) for _ in range(6)]
        for block in blocks[::2]:
            memory.release(block)
        answer = caught(memory.allocate, 25 * MIB, 0, 0)
        """,
        FLAGOS_REFERENCE_MEMORY="64MiB",
    )
    assert "lies in pieces" in answer[1]


@pytest.mark.parametrize("status", ["UNKNOWN", "OUT_OF_MEMORY", "DEVICE_BUSY"])
def test_a_failing_allocate_changes_nothing(evaluate: Evaluate, status: str) -> None:
    answer = evaluate(
        """
        first = memory.allocate(512, 0, 0)
        failure = caught(memory.allocate, 30 * MIB, 0, 0)
        held = stat("reserved_bytes")
        second = memory.allocate(30 * MIB, 0, 0)
        memory.release(first)
        memory.release(second)
        memory.empty_cache()
        free, total = memory.info(0)
        answer = [failure, held, free == total, stat("reserved_bytes"), stat("active")]
        """,
        FLAGOS_REFERENCE_FAIL=f"memory.allocate:2={status}",
    )
    failure, held, *after = answer
    if status == "OUT_OF_MEMORY":  # the ladder's second try succeeds
        assert failure is None
        assert held == 32 * MIB
        assert after[0] is False  # that first block is still allocated
    else:
        assert failure[0] == ("AcceleratorError" if status == "UNKNOWN" else "RuntimeError")
        assert "allocate 30.00 MiB of device memory" in failure[1]
        assert status in failure[1]
        assert (held, *after) == (2 * MIB, True, 0, 0)


def test_a_failing_release_keeps_the_segment_and_says_so(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        blocks = [memory.allocate(20 * MIB, 0, 0) for _ in range(3)]
        for block in blocks:
            memory.release(block)
        failure = caught(memory.empty_cache)
        held = stat("reserved_bytes")
        reused = memory.allocate(20 * MIB, 0, 0) in blocks
        memory.release([b["address"] for s in memory.snapshot() for b in s["blocks"]][0])
        memory.empty_cache()
        answer = [failure, held, reused, stat("reserved_bytes"), memory.info(0)[0] == memory.info(0)[1]]
        """,
        FLAGOS_REFERENCE_FAIL="memory.release:2",
    )
    failure, *rest = answer
    assert failure[0] == "AcceleratorError"
    assert "give device memory back" in failure[1]
    assert rest == [20 * MIB, True, 0, True]


@pytest.mark.parametrize("function", ["event.create", "event.record", "event.query"])
@pytest.mark.parametrize("nth", ["1", "1+"])
def test_failing_events_never_let_memory_be_reused_early(evaluate: Evaluate, function: str, nth: str) -> None:
    answer = evaluate(
        _IN_FLIGHT,
        """
        target.record_stream(side)
        with side:
            target.copy_(source, non_blocking=True)
        del target
        fresh = torch.full((MIB,), 7, dtype=torch.uint8, device="flagos:0")
        reused_in_flight = fresh.data_ptr() == address and not side.query()
        side.synchronize()
        intact = bool((fresh == 7).all())
        del fresh, source
        flagos.synchronize()
        failure = caught(memory.empty_cache) or caught(memory.empty_cache)
        answer = [reused_in_flight, intact, stat("active"), stat("reserved_bytes"),
                  memory.info(0)[0] == memory.info(0)[1]]
        """,
        FLAGOS_REFERENCE_FAIL=f"{function}:{nth}",
        **_SLOW,
    )
    assert answer == [False, True, 0, 0, True]


def test_memory_whose_stream_cannot_be_waited_for_stays_out_of_use(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        side = torch.Stream(device="flagos:0")
        block = memory.allocate(MIB, 0, 0)
        memory.record_stream(block, side.stream_id, 0)
        memory.release(block)
        fresh = memory.allocate(MIB, 0, 0)
        held = [stat("active"), stat("allocation")]
        memory.release(fresh)
        first = caught(memory.empty_cache)
        second = caught(memory.empty_cache)
        answer = [fresh == block, held, first, second, stat("active"), stat("reserved_bytes")]
        """,
        FLAGOS_REFERENCE_FAIL="event.create:1,event.create:2,event.create:3,stream.synchronize:1,"
        "stream.synchronize:2",
    )
    reused, held, first, second, active, reserved = answer
    assert reused is False
    assert held == [2, 1]
    assert first is not None
    assert second is None
    assert (active, reserved) == (0, 0)


def test_a_lost_device_keeps_its_memory_and_others_go_on(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        side = torch.Stream(device="flagos:0")
        block = memory.allocate(MIB, 0, 0)
        memory.record_stream(block, side.stream_id, 0)
        lost = caught(memory.allocate, 30 * MIB, 0, 0)
        memory.release(block)
        after = caught(memory.allocate, 30 * MIB, 0, 0)
        other = memory.allocate(30 * MIB, 1, 0)
        memory.release(other)
        answer = [lost, after, stat("active"), stat("active", 1)]
        """,
        FLAGOS_REFERENCE_FAIL="memory.allocate:2=DEVICE_LOST",
    )
    lost, after, active, other = answer
    assert "DEVICE_LOST" in lost[1]
    assert "DEVICE_LOST" in after[1]
    assert (active, other) == (1, 0)


def test_direct_mode_gives_every_block_back_at_once(evaluate: Evaluate) -> None:
    answer = evaluate(
        _IN_FLIGHT,
        """
        free = memory.info(0)[0]
        with side:
            target.copy_(source, non_blocking=True)
        target.record_stream(side)
        del target  # waits for the copy: the HAL would refuse memory in use
        answer = [memory.mode(), flagos.get_allocator_backend(), side.query(), memory.info(0)[0] - free]
        del source
        memory.empty_cache()
        answer += [stat("reserved_bytes"), stat("active")]
        """,
        FLAGOS_ALLOCATOR="direct",
        **_SLOW,
    )
    assert answer == ["direct", "direct", True, MIB, 0, 0]


def test_direct_mode_survives_failures(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        block = memory.allocate(MIB, 0, 0)
        memory.release(block)  # the HAL refuses; the block is kept for the next occasion
        held = stat("reserved_bytes")
        other = memory.allocate(MIB, 0, 0)
        memory.release(other)
        memory.empty_cache()
        answer = [held, stat("reserved_bytes"), memory.info(0)[0] == memory.info(0)[1]]
        """,
        FLAGOS_ALLOCATOR="direct",
        FLAGOS_REFERENCE_FAIL="memory.release:1",
    )
    assert answer == [MIB, 0, True]


def test_memory_is_seen_by_the_profiler(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            tensor = torch.empty(3 * MIB, dtype=torch.uint8, device="flagos:0")
            del tensor
        events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
        answer = sorted(e.nbytes() for e in events)
        """,
        KINETO_LOG_LEVEL="99",
    )
    assert answer == [-3 * MIB, 3 * MIB]


def test_history_names_the_lines_that_allocated(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        flagos.memory._record_memory_history(max_entries=4)
        def allocate_here():
            return memory.allocate(3 * MIB, 0, 0)
        block = allocate_here()
        live = memory.snapshot()[0]["blocks"][0]["frames"]
        memory.release(block)
        for _ in range(3):
            memory.release(memory.allocate(3 * MIB, 0, 0))
        snapshot = flagos.memory._snapshot()
        trace = snapshot["device_traces"][0]
        flagos.memory._record_memory_history(None)
        memory.release(memory.allocate(3 * MIB, 0, 0))
        bad = [caught(memory.record_history, "some"), caught(memory.record_history, "all", "none")]
        answer = [[f["name"] for f in live], [e["action"] for e in trace], [e["size"] for e in trace],
                  [bool(e["frames"]) for e in trace], len(memory.history()[0]), [kind for kind, _ in bad]]
        """
    )
    frames, actions, sizes, have_frames, later, bad = answer
    assert frames[0] == "allocate_here"
    assert actions == ["free_completed", "alloc", "free_requested", "free_completed"]
    assert sizes == [3 * MIB] * 4
    assert have_frames == [False, True, True, False]
    assert later == 4
    assert bad == ["ValueError", "ValueError"]


def test_a_forked_child_may_drop_tensors_and_is_told_about_the_rest(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        import os
        tensor = torch.ones(MIB, dtype=torch.uint8, device="flagos:0")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            del tensor
            failure = caught(memory.allocate, 512, 0, 0)
            os.write(writing, json.dumps(failure).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        answer = [json.loads(os.read(reading, 10000)), int(tensor.sum()), stat("allocation")]
        """
    )
    (kind, message), total, live = answer
    assert kind == "RuntimeError"
    assert "spawn" in message
    assert (total, live) == (MIB, 1)


def test_tensors_that_outlive_the_runtime_are_dropped_quietly(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        import sys
        side = torch.Stream(device="flagos:0")
        tensor = torch.ones(MIB, dtype=torch.uint8, device="flagos:0")
        tensor.record_stream(side)
        sys.kept_alive = tensor  # dropped when the interpreter ends, after the runtime was shut down
        pinned = torch.ones(MIB, dtype=torch.uint8).pin_memory()
        sys.kept_alive_too = pinned
        native.devices.shutdown()
        del tensor, pinned
        answer = [caught(memory.allocate, 512, 0, 0)[0], caught(memory.empty_cache)]
        """
    )
    assert answer == ["RuntimeError", None]


def test_storages_carry_the_device_of_their_memory(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        empty = torch.empty(0, device="flagos:1")
        storage = empty.untyped_storage()
        with flagos.device(1):
            here = torch.empty(0, device="flagos")
        other = torch.ones(4, device="flagos:1")
        devices = [str(t.device) for t in (storage, here, other.untyped_storage())]
        answer = [devices, storage.data_ptr(), native.devices.current_device()]
        """
    )
    assert answer == [["flagos:1"] * 3, 0, 0]


def test_empty_cache_knows_no_private_pools(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        torch.accelerator.empty_cache()
        before = memory.allocate(20 * MIB, 0, 0)
        memory.release(before)
        torch.accelerator.empty_cache()
        answer = [stat("reserved_bytes"), torch.accelerator.memory_reserved(0)]
        """
    )
    assert answer == [0, 0]


def test_lazy_copies_are_refused_not_shared(evaluate: Evaluate) -> None:
    """c10's copy-on-write needs contexts that are addresses; a write through an alias would reach both."""
    answer = evaluate(
        """
        tensor = torch.ones(4, device="flagos:0")
        answer = [caught(torch._lazy_clone, tensor)[0], tensor.tolist()]
        """
    )
    assert answer == ["RuntimeError", [1.0] * 4]


def test_the_mode_is_what_was_asked_for_last(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        modes = [memory.mode()]
        memory.release(memory.allocate(MIB, 0, 0))
        memory.set_mode("caching")
        memory.release(memory.allocate(MIB, 1, 0))  # the first use of another device
        answer = [*modes, memory.mode(), stat("reserved_bytes", 0), stat("reserved_bytes", 1) > 0]
        """,
        FLAGOS_ALLOCATOR="direct",
    )
    assert answer == ["direct", "caching", 0, True]
