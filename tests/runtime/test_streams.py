"""Streams: pools and priorities, each thread's current stream, order of work, streams of two backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Evaluate = Callable[..., Any]

# Recording an event keeps its stream busy for this long.
SLOW = {"FLAGOS_REFERENCE_LATENCY": "event:300000"}


def test_new_streams_differ_and_come_round_after_32(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        made = [torch.Stream("flagos:0") for _ in range(70)]
        handles = {native.streams.hal_handle(s.stream_id, 0) for s in made}
        other = torch.Stream("flagos:1")
        answer = {
            "ids": [s.stream_id for s in made], "handles": len(handles),
            "other": [other.stream_id, other.device_index],
            "default": native.streams.hal_handle(0, 0) in handles,
        }
        """
    )
    ids = answer["ids"]
    assert len(set(ids)) == 32
    assert 0 not in ids
    assert ids[:32] == ids[32:64]
    assert answer["handles"] == 32
    assert not answer["default"]
    assert answer["other"][1] == 1


def test_two_streams_work_at_the_same_time_and_one_stream_in_order(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        first, second = torch.Stream("flagos"), torch.Stream("flagos")
        events = [torch.Event("flagos") for _ in range(3)]
        start = time.monotonic()
        events[0].record(first); events[1].record(second); events[2].record(first)
        queued = time.monotonic() - start
        idle = [first.query(), second.query()]
        second.synchronize()
        apart = time.monotonic() - start
        seen = [events[1].query(), events[2].query()]
        first.synchronize()
        answer = [queued, idle, apart, seen, time.monotonic() - start, first.query()]
        """,
        **SLOW,
    )
    queued, idle, apart, seen, together, finished = answer
    assert queued < 0.25
    assert idle == [False, False]
    assert 0.25 < apart < 0.55
    assert seen == [True, False]
    assert together > 0.55
    assert finished


def test_priorities_are_clamped_and_kept(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        streams = native.streams
        least, greatest = streams.priority_range(0)
        made = [torch.Stream("flagos", priority=p) for p in (-1000, greatest, 0, least, 1000)]
        answer = {
            "range": [least, greatest],
            "priorities": [streams.priority(s.stream_id, s.device_index) for s in made],
            "ids": [s.stream_id for s in made],
            "native": streams.native_handle(made[2].stream_id, 0) != streams.native_handle(0, 0),
        }
        """
    )
    least, greatest = answer["range"]
    assert least >= 0 >= greatest
    assert answer["priorities"] == [greatest, greatest, 0, least, least]
    assert len(set(answer["ids"])) == 5
    assert answer["native"]


def test_the_current_stream_belongs_to_thread_and_device(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        now = lambda index=None: torch.accelerator.current_stream(index).stream_id
        side, other, third = torch.Stream("flagos:0"), torch.Stream("flagos:1"), torch.Stream("flagos:1")
        torch.accelerator.set_stream(side)
        native.streams.set_current_stream(other.stream_id, 1)
        seen = []
        thread = threading.Thread(target=lambda: seen.extend([now(0), now(1)])); thread.start(); thread.join()
        device = native.devices.current_device()
        with third:
            inside = [native.devices.current_device(), now()]
        answer = [[now(0), now(1)] == [side.stream_id, other.stream_id], seen, device,
                  inside == [1, third.stream_id], native.devices.current_device(), now() == side.stream_id]
        """
    )
    assert answer == [True, [0, 0], 0, True, 0, True]


def test_a_stream_that_was_never_given_out_is_refused(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        torch.Stream("flagos:0")
        calls = {
            "set": lambda: native.streams.set_current_stream(7, 0),
            "negative": lambda: native.streams.set_current_stream(-3, 0),
            "query": lambda: torch.Stream(stream_id=99, device_index=0, device_type=20).query(),
            "other device": lambda: native.streams.hal_handle(1, 1),
            "null external": lambda: native.streams.external_stream(0, 0),
            "another device's": lambda: native.streams.external_stream(native.streams.hal_handle(0, 0), 1),
        }
        answer = {name: caught(call) for name, call in calls.items()}
        """
    )
    assert "flagos:0 (reference, local 0) has no stream with id 7" in answer["set"][1]
    assert "no stream with id -3" in answer["negative"][1]
    assert "no stream with id 99" in answer["query"][1]
    assert "flagos:1 (reference, local 1) has no stream with id 1" in answer["other device"][1]
    assert "null handle" in answer["null external"][1]
    assert "stream of local device 0" in answer["another device's"][1]


def test_an_external_stream_is_entered_once_and_works(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        made = torch.Stream("flagos:1")
        handle = native.streams.hal_handle(made.stream_id, 1)
        default = native.streams.hal_handle(0, 1)
        first, again = native.streams.external_stream(handle, 1), native.streams.external_stream(handle, 1)
        stream = torch.Stream(stream_id=first[0], device_index=1, device_type=made.device_type)
        event = torch.Event("flagos"); event.record(stream); stream.synchronize()
        answer = [list(first) == list(again), list(native.streams.external_stream(default, 1)), event.query()]
        """
    )
    assert answer == [True, [0, 1], True]


def test_where_no_more_streams_can_be_made_those_there_are_handed_out_again(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        made = [torch.Stream("flagos:0").stream_id for _ in range(6)]
        urgent = torch.Stream("flagos:0", priority=-1).stream_id
        answer = [made, urgent, caught(torch.Stream, "flagos:1")]
        """,
        FLAGOS_REFERENCE_FAIL="stream.create:4+=OUT_OF_MEMORY",
    )
    made, urgent, none_at_all = answer
    assert made == [1, 2, 3, 1, 2, 3]
    assert urgent in (1, 2, 3)
    assert "cannot make a stream besides its default one" in none_at_all[1]


def test_a_failing_creation_is_reported_and_the_next_works(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        error = caught(torch.Stream, "flagos:1")
        stream = torch.Stream("flagos:1")
        answer = [error, stream.stream_id, stream.query()]
        """,
        FLAGOS_REFERENCE_FAIL="stream.create:1",
    )
    error, identity, works = answer
    assert error[0] == "AcceleratorError"
    assert "cannot make a stream on flagos:1 (reference, local 1)" in error[1]
    assert (identity, works) == (1, True)


def test_work_that_failed_on_the_device_is_reported_by_the_next_wait(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        target = torch.empty(8, dtype=torch.uint8, device="flagos")
        source = torch.ones(8, dtype=torch.uint8).pin_memory()
        error = caught(lambda: (target.copy_(source, non_blocking=True), torch.accelerator.synchronize()))
        target.copy_(source)
        answer = [error, target.tolist()]
        """,
        FLAGOS_REFERENCE_FAIL="work.copy:1",
    )
    error, values = answer
    assert error is not None
    assert "flagos:0 (reference, local 0)" in error[1]
    assert values == [1] * 8


def test_synchronize_waits_for_all_streams_of_one_device_only(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        ours, theirs = torch.Stream("flagos:0"), torch.Stream("flagos:1")
        for stream in (ours, theirs, theirs, theirs):
            torch.Event("flagos").record(stream)
        torch.accelerator.synchronize(0)
        answer = [ours.query(), theirs.query()]
        torch.accelerator.synchronize(1)
        answer.append(theirs.query())
        """,
        **SLOW,
    )
    assert answer == [True, False, True]


def test_threads_may_share_streams_and_pools(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        shared = torch.Stream("flagos:0")
        failures = []
        def work(seed):
            try:
                mine = []
                for step in range(200):
                    stream = torch.Stream(f"flagos:{step % 2}", priority=-(step % 3))
                    mine.append(native.streams.hal_handle(stream.stream_id, stream.device_index))
                    event = torch.Event("flagos")
                    event.record(shared if step % 2 == 0 else stream)
                    event.wait(shared)
                    with stream:
                        assert torch.accelerator.current_stream() == stream
                assert 0 not in mine
            except BaseException as error:
                failures.append(repr(error))
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        torch.accelerator.synchronize(0); torch.accelerator.synchronize(1)
        answer = failures
        """,
        FLAGOS_HAL_VALIDATE="1",
    )
    assert answer == []
