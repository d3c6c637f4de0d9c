"""The end of the process: work in flight finishes, late objects do no harm, nothing is printed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

Evaluate = Callable[..., Any]


def test_exit_waits_for_work_in_flight(evaluate: Evaluate) -> None:
    # `evaluate` asserts status 0 and that nothing is printed.
    assert (
        evaluate(
            """
        stream = torch.Stream("flagos")
        event = torch.Event("flagos"); event.record(stream)
        answer = event.query()
        """,
            FLAGOS_REFERENCE_LATENCY="event:300000",
        )
        is False
    )


def test_threads_that_work_during_the_shutdown_get_an_error(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        errors = []
        def work(index):
            stream = torch.Stream(f"flagos:{index % 2}")
            try:
                while True:
                    event = torch.Event("flagos"); event.record(stream); event.wait(stream); event.query()
            except RuntimeError as error:
                errors.append(str(error))
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        [t.start() for t in threads]
        time.sleep(0.05)
        native.devices.shutdown()
        [t.join() for t in threads]
        answer = errors
        """
    )
    assert len(answer) == 4
    for error in answer:
        assert "shut down" in error


@pytest.mark.parametrize("kept", ["module attribute", "reference cycle", "atexit callback", "thread local"])
def test_objects_that_outlive_the_runtime_are_destroyed_quietly(evaluate: Evaluate, kept: str) -> None:
    evaluate(
        f"""
        import atexit, sys
        objects = [torch.Stream("flagos"), torch.Event("flagos"), torch.Generator("flagos")]
        objects[1].record(objects[0])
        kept = {kept!r}
        if kept == "module attribute":
            sys.modules["json"].kept = objects
        elif kept == "reference cycle":
            objects.append(objects)
        elif kept == "atexit callback":
            atexit.register(objects.clear)
        else:
            local = threading.local(); local.objects = objects
        del objects
        answer = None
        """
    )


def test_uses_after_shutdown_say_so_and_releases_do_nothing(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        devices = native.devices
        stream, event = torch.Stream("flagos"), torch.Event("flagos")
        event.record(stream)
        devices.shutdown()
        devices.shutdown()
        uses = [devices.activate, stream.query, event.query, lambda: event.record(stream),
                lambda: torch.Stream("flagos"), lambda: native.generators.default_generator(0)]
        answer = [[caught(use) for use in uses], devices.device_count(), devices.is_shut_down()]
        del stream, event
        """
    )
    errors, count, down = answer
    for error in errors:
        assert error is not None
        assert "shut down" in error[1]
    assert (count, down) == (0, True)


_ENDS_WITH_BACKWARD = """
import torch, torch_fl
class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2
x = torch.randn(64, 64, device="flagos", requires_grad=True)
for _ in range(3):
    Doubled.apply(x @ x).sum().backward()
"""


def test_programs_that_end_right_after_backward_end_well() -> None:
    # One in five aborted while a worker of autograd was leaving; eight at a time on few cores find it nearly
    # always.
    command = [sys.executable, "-W", "error", "-c", _ENDS_WITH_BACKWARD]
    programs = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    ended = [(program.communicate(timeout=240)[1], program.returncode) for program in programs]
    assert ended == [("", 0)] * 8


def test_shutdown_without_any_use_is_harmless(evaluate_bare: Evaluate) -> None:
    assert evaluate_bare("devices.shutdown(); answer = devices.device_count()") == 0
