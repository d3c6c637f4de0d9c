"""Backends and devices: who joins when, the table of indices, the current device, errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Evaluate = Callable[..., Any]


def set_current_calls(trace: Path) -> list[str]:
    return [line for line in trace.read_text().splitlines() if " device.set_current(" in line]


def test_an_emulated_backend_waits_until_a_flagos_object_is_made(evaluate_bare: Evaluate) -> None:
    answer = evaluate_bare(
        """
        before = [devices.device_count(), devices.activated(), torch.accelerator.is_available()]
        record = devices.backend_records()[0]
        torch.Stream("flagos")
        answer = [before, record["state"], record["reason"], devices.device_count(), devices.activated()]
        """
    )
    before, state, reason, count, activated = answer
    assert before == [0, False, False]
    assert state == "waiting"
    assert "first flagos tensor" in reason
    assert (count, activated) == (2, True)


def test_the_number_of_devices_counts_emulated_ones_once_they_are_allowed(evaluate_bare: Evaluate) -> None:
    answer = evaluate_bare(
        """
        before = devices.device_count()
        devices.allow_emulated()
        answer = [before, devices.device_count()]
        """,
        FLAGOS_REFERENCE_DEVICES="3",
    )
    assert answer == [0, 3]


def test_a_backward_on_the_cpu_opens_nothing_and_later_ones_on_flagos_work(evaluate_bare: Evaluate) -> None:
    # The autograd engine counts devices once, at the first backward of all, and dies where one more turns up.
    answer = evaluate_bare(
        """
        x = torch.ones(3, requires_grad=True)
        (x * x).sum().backward()
        opened = devices.activated()
        y = torch.ones(3, device="flagos:1", requires_grad=True)
        (y * y).sum().backward()
        answer = [opened, y.grad.tolist()]
        """
    )
    assert answer == [False, [2.0, 2.0, 2.0]]


def test_an_emulated_backend_stays_out_where_another_has_a_device(evaluate_bare: Evaluate) -> None:
    answer = evaluate_bare(
        """
        devices.set_backend_requests([
            {"name": "chip", "path": REFERENCE},
            {"name": "emulated", "path": REFERENCE, "private_copy": True, "emulated": True},
        ])
        count = devices.device_count()
        devices.allow_emulated()
        answer = [count, devices.activate(), devices.backend_records()]
        """
    )
    count, activated, records = answer
    assert (count, activated) == (2, 2)
    assert records[0]["state"] == "selected"
    assert records[1]["state"] == "waiting"
    assert "FLAGOS_BACKENDS" in records[1]["reason"]


def test_indices_of_two_backends_lie_end_to_end(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        devices = native.devices
        devices.activate()
        records = devices.backend_records()
        answer = {
            "count": devices.device_count(),
            "first": [record["first_device"] for record in records],
            "places": [[p["backend"], p["local_index"]] for p in map(devices.properties, range(4))],
            "peers": [devices.can_access_peer(0, 1), devices.can_access_peer(0, 2)],
        }
        """,
        FLAGOS_BACKENDS="reference,reference:second",
    )
    assert answer["count"] == 4
    assert answer["first"] == [0, 2]
    assert answer["places"] == [
        ["reference", 0],
        ["reference", 1],
        ["reference:second", 0],
        ["reference:second", 1],
    ]
    assert answer["peers"] == [True, False]


@pytest.mark.parametrize(
    ("status", "state"), [("UNAVAILABLE", "SDK missing"), ("UNKNOWN", "failed"), ("DEVICE_BUSY", "failed")]
)
def test_a_backend_that_fails_in_init_says_so(evaluate_bare: Evaluate, status: str, state: str) -> None:
    answer = evaluate_bare(
        """
        error = caught(devices.activate)
        answer = [devices.backend_records()[0], error]
        """,
        FLAGOS_REFERENCE_FAIL=f"system.init={status}",
    )
    record, error = answer
    assert record["state"] == state
    assert status in record["reason"]
    assert error[0] == "RuntimeError"
    assert "no backend has a device" in error[1]
    assert f"reference: {state}: {record['reason']}" in error[1]
    assert "torch_fl.doctor" in error[1]


def test_activation_is_tried_again_after_a_failure(evaluate_bare: Evaluate) -> None:
    answer = evaluate_bare(
        "answer = [caught(devices.activate) is not None, devices.activate()]",
        FLAGOS_REFERENCE_FAIL="device.count:1",
    )
    assert answer == [True, 2]


def test_every_candidate_and_its_reason_are_in_the_error(evaluate_bare: Evaluate, tmp_path: Path) -> None:
    text = tmp_path / "text.so"
    text.write_text("not a library")
    answer = evaluate_bare(
        f"""
        devices.set_backend_requests([
            {{"name": "text", "path": {str(text)!r}}},
            {{"name": "missing", "path": {str(tmp_path / "missing.so")!r}}},
            {{"name": "empty", "path": REFERENCE}},
            {{"name": "other", "path": "", "skip": "disabled: FLAGOS_BACKENDS does not name it"}},
        ])
        count = devices.device_count()
        answer = [count, caught(devices.activate)[1], [r["state"] for r in devices.backend_records()]]
        """,
        FLAGOS_REFERENCE_DEVICES="0",
    )
    count, error, states = answer
    assert count == 0
    assert states == ["failed", "failed", "no device", "skipped"]
    assert str(text) in error
    assert str(tmp_path / "missing.so") in error
    assert "empty: no device" in error
    assert "FLAGOS_BACKENDS does not name it" in error


def test_one_broken_backend_does_not_stop_the_others(evaluate_bare: Evaluate) -> None:
    answer = evaluate_bare(
        """
        devices.set_backend_requests([
            {"name": "missing", "path": "/no/such/library.so"},
            {"name": "reference", "path": REFERENCE},
        ])
        answer = [devices.activate(), [r["first_device"] for r in devices.backend_records()]]
        """
    )
    assert answer == [2, [0, 0]]


def test_the_list_of_backends_and_the_settings_are_fixed_once_devices_are_open(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        devices = native.devices
        devices.activate()
        errors = [caught(devices.set_backend_requests, []), caught(devices.configure, {})]
        answer = [*errors, devices.device_count()]
        """
    )
    requests, settings, count = answer
    assert "after the devices were opened" in requests[1]
    assert "after the devices were opened" in settings[1]
    assert count == 2


def test_bad_requests_are_refused_with_what_is_allowed(evaluate_bare: Evaluate) -> None:
    answer = evaluate_bare(
        """
        twice = [{"name": "a", "path": REFERENCE}, {"name": "a", "path": REFERENCE}]
        answer = [
            caught(devices.set_backend_requests, twice)[1],
            caught(devices.set_backend_requests, [{"name": "a"}])[1],
            caught(devices.set_backend_requests, [{"name": "a", "path": "", "emulate": True}])[1],
        ]
        """
    )
    assert "'a' is listed twice" in answer[0]
    assert "'path'" in answer[1]
    assert "emulate" in answer[2]
    assert "private_copy" in answer[2]


def test_an_index_out_of_range_is_named_whole(evaluate: Evaluate) -> None:
    # 256 and 300 would be devices 0 and 44 in eight bits.
    indices = [2, 63, 64, 127, 128, 256, 300, -2, -129, 1 << 40]
    answer = evaluate(
        f"""
        devices = native.devices
        calls = [devices.set_device, devices.exchange_device, devices.synchronize, devices.properties,
                 native.streams.current_stream, native.generators.default_generator]
        errors = [[caught(call, index) for call in calls] for index in {indices}]
        answer = [errors, devices.current_device()]
        """
    )
    errors, current = answer
    for index, per_call in zip(indices, errors, strict=True):
        for error in per_call:
            assert error is not None
            assert f"device index {index} is out of range" in error[1]
            assert "2 flagos devices (reference: 0 to 1)" in error[1]
    assert current == 0


def test_the_current_device_belongs_to_the_thread(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        devices = native.devices
        seen = []
        def work():
            seen.append(devices.current_device())
            devices.set_device(1)
            seen.append(torch.accelerator.current_device_index())
        thread = threading.Thread(target=work); thread.start(); thread.join()
        before = devices.exchange_device(1)
        kept = devices.exchange_device(-1)
        answer = [seen, before, kept, devices.current_device()]
        """
    )
    assert answer == [[0, 1], 0, 1, 1]


def test_the_hal_is_told_of_a_device_only_when_it_changes(evaluate: Evaluate, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    evaluate(
        """
        devices = native.devices
        for index in (0, 0, 0, 1, 1, 3, 3, 1):
            devices.set_device(index)
        for index in range(3):
            with torch.accelerator.device_index(1):
                devices.current_device()
        answer = None
        """,
        FLAGOS_BACKENDS="reference,reference:second",
        FLAGOS_HAL_TRACE=str(trace),
    )
    calls = [line.split()[2:4] for line in set_current_calls(trace)]
    assert calls == [
        ["reference", "device.set_current(device=0)"],
        ["reference", "device.set_current(device=1)"],
        ["reference:second", "device.set_current(device=1)"],
        ["reference", "device.set_current(device=1)"],
    ]


def test_a_new_thread_tells_the_hal_its_device_once(evaluate: Evaluate, tmp_path: Path) -> None:
    # A vendor's runtime may have no context on a thread until its device was set there, device 0 included.
    trace = tmp_path / "trace"
    evaluate(
        """
        def work():
            for _ in range(3):
                native.devices.set_device(0)
        for _ in range(2):
            thread = threading.Thread(target=work); thread.start(); thread.join()
        answer = None
        """,
        FLAGOS_HAL_TRACE=str(trace),
    )
    assert len(set_current_calls(trace)) == 2


def test_a_device_that_refuses_leaves_the_one_before_current(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        devices = native.devices
        devices.set_device(0)
        error = caught(devices.set_device, 1)
        after = devices.current_device()
        devices.set_device(1)
        answer = [error, after, devices.current_device()]
        """,
        FLAGOS_REFERENCE_FAIL="device.set_current:2=DEVICE_BUSY",
    )
    error, after, retried = answer
    assert "cannot make the device current on flagos:1 (reference, local 1)" in error[1]
    assert "DEVICE_BUSY" in error[1]
    assert "Another process holds the device" in error[1]
    assert (after, retried) == (0, 1)


def test_a_lost_device_names_its_first_failure_and_spares_the_others(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        devices = native.devices
        first = torch.Stream("flagos:0")
        event = torch.Event("flagos")
        answer = [
            caught(event.record, first),
            caught(first.synchronize),
            devices.health(0),
            devices.health(1),
            torch.Stream("flagos:1").query(),
        ]
        """,
        FLAGOS_REFERENCE_FAIL="event.record:1=DEVICE_LOST",
    )
    record, synchronize, health, other_health, other = answer
    assert record[0] == "AcceleratorError"
    assert "cannot record an event on flagos:0 (reference, local 0)" in record[1]
    assert "first failure" not in record[1]
    assert "restart the process" in record[1]
    assert "cannot wait for a stream on flagos:0" in synchronize[1]
    assert "The first failure on this device was: cannot record an event" in synchronize[1]
    assert "DEVICE_LOST" in health
    assert (other_health, other) == ("", True)


def test_threads_that_use_the_devices_first_open_them_once(evaluate_bare: Evaluate, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    answer = evaluate_bare(
        """
        barrier = threading.Barrier(8)
        counts = []
        def work():
            barrier.wait()
            counts.append([devices.activate(), len(devices.backend_records()), devices.device_count()])
        threads = [threading.Thread(target=work) for _ in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        answer = counts
        """,
        FLAGOS_HAL_TRACE=str(trace),
    )
    assert answer == [[2, 1, 2]] * 8
    assert trace.read_text().count(" system.init(") == 1


def test_properties_are_the_hals_and_none_where_it_does_not_tell(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        told = native.devices.properties(1)
        answer = {name: told[name] for name in
                  ("name", "backend", "local_index", "total_memory", "warp_size", "uuid", "is_integrated")}
        answer["float32"] = torch.float32 in told["dtypes"]
        capability = torch.accelerator.get_device_capability("flagos")
        answer["accelerator"] = torch.float32 in capability["supported_dtypes"]
        """,
        FLAGOS_REFERENCE_MEMORY="64MiB",
    )
    assert answer["total_memory"] == 64 << 20
    assert (answer["backend"], answer["local_index"]) == ("reference", 1)
    assert answer["warp_size"] is None
    assert answer["uuid"] is None
    assert answer["float32"]
    assert answer["accelerator"]
