"""Events: record, wait, time; across devices and backends; failures leave them as they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Evaluate = Callable[..., Any]

SLOW = {"FLAGOS_REFERENCE_LATENCY": "event:300000"}


def test_an_event_never_recorded_is_reached_and_holds_nothing_up(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        event, stream = torch.Event("flagos"), torch.Stream("flagos")
        event.synchronize(); event.wait(stream)
        answer = [event.query(), stream.query()]
        """
    )
    assert answer == [True, True]


def test_the_hal_event_is_made_at_the_first_record_and_timed_only_if_asked(
    evaluate: Evaluate, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    evaluate(
        """
        stream = torch.Stream("flagos:1")
        plain, idle = torch.Event("flagos"), torch.Event("flagos")
        timed = torch.Event("flagos", enable_timing=True)
        for _ in range(3):
            plain.record(stream)
        timed.record(stream)
        stream.synchronize()
        del plain, timed, idle
        answer = None
        """,
        FLAGOS_HAL_TRACE=str(trace),
    )
    lines = trace.read_text().splitlines()
    made = [line for line in lines if " event.create(" in line]
    assert len(made) == 2
    assert all("device=1" in line for line in made)
    assert "flags=0" in made[0]
    assert "flags=1" in made[1] or "flags=0x1" in made[1]
    assert sum(" event.destroy(" in line for line in lines) == 2


def test_work_waits_for_an_event_of_another_stream_and_device(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        source, waiting = torch.Stream("flagos:0"), torch.Stream("flagos:1")
        slow = torch.Event("flagos"); slow.record(source)
        start = time.monotonic()
        slow.wait(waiting)
        queued = time.monotonic() - start
        behind = torch.Event("flagos"); behind.record(waiting)
        order = [slow.query(), behind.query()]
        behind.synchronize()
        answer = [queued, order, slow.query()]
        """,
        **SLOW,
    )
    queued, order, reached = answer
    assert queued < 0.2
    assert order == [False, False]
    assert reached


def test_a_wait_between_backends_is_kept_by_the_host(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        source, waiting = torch.Stream("flagos:0"), torch.Stream("flagos:2")
        slow = torch.Event("flagos"); slow.record(source)
        pending = not slow.query()
        slow.wait(waiting)
        answer = [pending, slow.query(), waiting.query()]
        """,
        FLAGOS_BACKENDS="reference,reference:second",
        **SLOW,
    )
    assert answer == [True, True, True]


def test_a_record_forgets_the_one_before(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        fast, slow = torch.Stream("flagos"), torch.Stream("flagos")
        event = torch.Event("flagos")
        event.record(fast); event.synchronize()
        event.record(slow)
        answer = [event.query()]
        event.synchronize()
        answer.append(event.query())
        """,
        **SLOW,
    )
    assert answer == [False, True]


def test_time_between_events_is_that_of_the_device(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        stream = torch.Stream("flagos")
        start, end = (torch.Event("flagos", enable_timing=True) for _ in range(2))
        start.record(stream); end.record(stream)
        early = caught(start.elapsed_time, end)
        end.synchronize()
        answer = [early, start.elapsed_time(end), end.elapsed_time(start), start.elapsed_time(start)]
        """,
        **SLOW,
    )
    early, forward, backward, none = answer
    assert early is not None
    assert 250 < forward < 2000
    assert backward == -forward
    assert none == 0


def test_misuse_of_events_is_explained(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        first, second = torch.Stream("flagos:0"), torch.Stream("flagos:1")
        event = torch.Event("flagos"); event.record(first)
        timed = [torch.Event("flagos", enable_timing=True) for _ in range(2)]
        timed[0].record(first); timed[1].record(second)
        torch.accelerator.synchronize(0); torch.accelerator.synchronize(1)
        untimed = torch.Event("flagos"); untimed.record(first); first.synchronize()
        answer = {
            "other device": caught(event.record, second),
            "still works": caught(event.record, first),
            "two clocks": caught(timed[0].elapsed_time, timed[1]),
            "untimed": caught(untimed.elapsed_time, timed[0]),
        }
        """
    )
    assert "flagos:0" in answer["other device"][1]
    assert "flagos:1" in answer["other device"][1]
    assert answer["still works"] is None
    assert "their clocks differ" in answer["two clocks"][1]
    assert "enable_timing=True" in answer["untimed"][1]


def test_a_failing_record_leaves_nothing_behind(evaluate: Evaluate, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    answer = evaluate(
        """
        stream, event = torch.Stream("flagos:1"), torch.Event("flagos")
        create, record = caught(event.record, stream), caught(event.record, stream)
        state = event.query()
        event.record(stream); event.synchronize()
        other = torch.Stream("flagos:1")
        wait = caught(event.wait, other)
        answer = [create, record, state, event.query(), wait, other.query()]
        """,
        FLAGOS_REFERENCE_FAIL="event.create:1=OUT_OF_MEMORY,event.record:1=INVALID_STATE,stream.wait_event:1",
        FLAGOS_HAL_TRACE=str(trace),
    )
    create, record, before, after, wait, idle = answer
    assert create[0] == "OutOfMemoryError"
    assert "cannot make an event on flagos:1 (reference, local 1)" in create[1]
    assert "cannot record an event on flagos:1" in record[1]
    assert "INVALID_STATE" in record[1]
    assert (before, after, idle) == (True, True, True)
    assert "cannot make a stream wait for an event on flagos:1" in wait[1]
    text = trace.read_text()
    made = sum(" event.create(" in line and " OK " in line for line in text.splitlines())
    assert made == 2
    # The one whose record failed, and the event itself when it was destroyed.
    assert text.count(" event.destroy(") == 2


def test_events_may_be_moved_between_threads(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        import queue
        handed = queue.Queue()
        results = []
        def consume():
            while (event := handed.get()) is not None:
                event.synchronize()
                results.append(event.query())
        threads = [threading.Thread(target=consume) for _ in range(3)]
        [t.start() for t in threads]
        stream = torch.Stream("flagos:1")
        for _ in range(300):
            event = torch.Event("flagos"); event.record(stream); handed.put(event)
        for _ in threads:
            handed.put(None)
        [t.join() for t in threads]
        answer = [len(results), all(results)]
        """,
        FLAGOS_HAL_VALIDATE="1",
    )
    assert answer == [300, True]
