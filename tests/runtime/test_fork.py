"""fork(): a child of a process that opened the devices gets one sentence; every other child is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Evaluate = Callable[..., Any]

# Runs `child` in a fork and returns what it returned, as JSON through a pipe.
IN_CHILD = """
import os
def in_child(child):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            text = json.dumps(child())
        except BaseException as error:
            text = json.dumps(["raised", repr(error)])
        os.write(writing, text.encode()); os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    status = os.waitpid(pid, 0)[1]
    return [status, json.loads(text) if text else None]
"""


def test_every_use_in_a_child_of_an_active_parent_names_the_cure(evaluate: Evaluate) -> None:
    answer = evaluate(
        IN_CHILD,
        """
devices, streams = native.devices, native.streams
stream, event = torch.Stream("flagos:1"), torch.Event("flagos")
event.record(stream)
uses = {
    "activate": devices.activate,
    "set_device": lambda: devices.set_device(0),
    "set_device 1": lambda: devices.set_device(1),
    "exchange": lambda: torch.accelerator.set_device_index(1),
    "synchronize": lambda: torch.accelerator.synchronize(),
    "properties": lambda: devices.properties(0),
    "new stream": lambda: torch.Stream("flagos"),
    "stream query": stream.query,
    "stream wait": stream.synchronize,
    "current stream": lambda: streams.current_stream(0),
    "event record": lambda: event.record(stream),
    "event query": event.query,
    "event wait": event.synchronize,
    "event block": lambda: event.wait(stream),
    "generator": lambda: torch.Generator("flagos"),
    "default generator": lambda: native.generators.default_generator(0),
    "requests": lambda: devices.set_backend_requests([]),
}
status, errors = in_child(lambda: {name: caught(use) for name, use in uses.items()})
answer = [status, errors, stream.query(), devices.in_bad_fork()]
""",
    )
    status, errors, parent_works, parent_is_bad = answer
    assert status == 0
    for name, error in errors.items():
        assert error is not None, f"{name} did not raise"
        assert "set_start_method('spawn')" in error[1], f"{name}: {error}"
    assert parent_works
    assert not parent_is_bad


def test_a_child_that_leaves_the_devices_alone_is_left_alone(evaluate: Evaluate) -> None:
    answer = evaluate(
        IN_CHILD,
        """
devices = native.devices
stream = torch.Stream("flagos:1")
event = torch.Event("flagos"); event.record(stream)
def child():
    global event, stream
    torch.manual_seed(3)                       # what a DataLoader's worker does first
    total = torch.ones(8).sum().item()
    event = stream = None                      # destroys the parent's objects
    devices.shutdown()                         # what atexit would do
    return [devices.in_bad_fork(), devices.device_count(), devices.current_device(), total,
            torch.flagos.is_initialized()]
status, seen = in_child(child)
answer = [status, seen, stream.query(), event.query()]
""",
    )
    assert answer == [0, [True, 2, 0, 8.0, False], True, True]


def test_a_child_of_a_parent_that_opened_nothing_may_use_the_devices(evaluate_bare: Evaluate) -> None:
    answer = evaluate_bare(
        IN_CHILD,
        """
x = torch.ones(2, requires_grad=True); x.sum().backward()  # asks the emulated backend for its count
def child():
    stream = torch.Stream("flagos:1")
    event = torch.Event("flagos"); event.record(stream); event.synchronize()
    return [devices.in_bad_fork(), devices.device_count(), event.query()]
first = in_child(child)
answer = [first, devices.activated(), devices.activate()]
""",
    )
    assert answer == [[0, [False, 2, True]], False, 2]


def test_a_child_forked_while_another_thread_opens_the_devices_is_told(evaluate_bare: Evaluate) -> None:
    answer = evaluate_bare(
        IN_CHILD,
        """
thread = threading.Thread(target=devices.activate); thread.start()
time.sleep(0.15)                               # within the 0.5 s that init takes
status, error = in_child(lambda: caught(torch.Stream, "flagos"))
thread.join()
answer = [status, error, torch.Stream("flagos").query()]
""",
        FLAGOS_REFERENCE_LATENCY="system.init:500000",
    )
    status, error, parent_works = answer
    assert status == 0
    assert "spawn" in error[1]
    assert parent_works


def test_a_child_forked_after_shutdown_says_that_the_runtime_is_down(evaluate: Evaluate) -> None:
    answer = evaluate(
        IN_CHILD,
        """
torch.Stream("flagos")
native.devices.shutdown()
answer = in_child(lambda: caught(torch.Stream, "flagos"))
""",
    )
    assert answer[0] == 0
    assert "shut down" in answer[1][1]
