"""torch.flagos: devices, streams, events, and that torch.accelerator answers the same."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
import torch

import torch_fl
from torch_fl_base import BackendError

flagos = torch.flagos


@pytest.fixture(autouse=True)
def device_and_stream_as_before():
    """Every test begins and ends with device 0 and its default stream."""
    flagos.set_device(0)
    flagos.set_stream(flagos.default_stream(0))
    yield
    flagos.set_device(0)
    flagos.set_stream(flagos.default_stream(0))


def test_counts_agree() -> None:
    assert flagos.device_count() == torch.accelerator.device_count() == 2
    assert flagos.is_available()
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("flagos")


@pytest.mark.parametrize("named", [1, "flagos:1", torch.device("flagos", 1), torch.device("flagos:1")])
def test_set_device_takes_whatever_names_one(named: object) -> None:
    flagos.set_device(named)
    assert flagos.current_device() == torch.accelerator.current_device_index() == 1
    flagos.set_device("flagos")
    assert flagos.current_device() == 1
    flagos.set_device(-1)
    assert flagos.current_device() == 1


def test_set_through_torch_accelerator_is_seen() -> None:
    torch.accelerator.set_device_index(1)
    assert flagos.current_device() == 1


@pytest.mark.parametrize("named", [2, 64, 300, "flagos:2"])
def test_device_that_is_not_there_is_told_with_the_count(named: object) -> None:
    with pytest.raises(BackendError, match=r"out of range: there are 2 devices"):
        flagos.set_device(named)
    assert flagos.current_device() == 0


@pytest.mark.parametrize(
    "function", ["synchronize", "get_device_properties", "current_stream", "memory_stats", "mem_get_info"]
)
def test_functions_refuse_a_device_that_is_not_there(function: str) -> None:
    with pytest.raises(BackendError, match="index 7 is out of range"):
        getattr(flagos, function)(7)


def test_device_of_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a flagos device, got cpu"):
        flagos.set_device("cpu")
    with pytest.raises(TypeError, match="not list"):
        flagos.synchronize([0])  # type: ignore[arg-type]


def test_device_block_restores_also_after_an_error() -> None:
    with flagos.device(1):
        assert flagos.current_device() == 1
        assert torch.empty(1, device="flagos").device.index == 1
    assert flagos.current_device() == 0
    with pytest.raises(KeyError), flagos.device(1):
        {}["missing"]
    assert flagos.current_device() == 0
    with flagos.device(None), flagos.device(-1), flagos.device("flagos"):
        assert flagos.current_device() == 0


def test_device_of_follows_a_tensor() -> None:
    with flagos.device_of(torch.empty(1, device="flagos:1")):
        assert flagos.current_device() == 1
    with flagos.device_of(torch.empty(1)):
        assert flagos.current_device() == 0
    with flagos.device_of(torch.empty(1, device="flagos:1").untyped_storage()):
        assert flagos.current_device() == 1


def test_current_device_belongs_to_the_thread() -> None:
    seen = []
    flagos.set_device(1)
    thread = threading.Thread(target=lambda: seen.append(flagos.current_device()))
    thread.start()
    thread.join()
    assert seen == [0]
    assert flagos.current_device() == 1


def test_properties_are_told_or_none() -> None:
    properties = flagos.get_device_properties(1)
    assert properties.backend == "reference"
    assert properties.local_index == 1
    assert properties.name == flagos.get_device_name("flagos:1") != ""
    assert properties.total_memory == flagos.mem_get_info(1)[1]
    # What an emulated device has not is not made up.
    assert properties.pci_bus_id is None
    assert (properties.major, properties.minor) == (None, None)
    assert flagos.get_device_capability() is None
    with pytest.raises(AttributeError):
        properties.name = "other"  # type: ignore[misc]


def test_supported_dtypes_agree_with_torch_accelerator() -> None:
    told = flagos.get_device_properties().dtypes
    if told is not None:
        assert told <= torch.accelerator.get_device_capability()["supported_dtypes"]
    assert flagos.is_bf16_supported()
    assert flagos.is_bf16_supported(including_emulation=False) == (
        told is not None and torch.bfloat16 in told
    )


def test_peer_access_is_told_for_two_devices_only() -> None:
    assert flagos.can_device_access_peer(0, 1) in (True, False)
    with pytest.raises(ValueError, match="not its own peer"):
        flagos.can_device_access_peer(1, 1)


def test_streams_of_torch_accelerator_and_of_torch_flagos_are_the_same() -> None:
    assert torch.accelerator.current_stream() == flagos.current_stream() == flagos.default_stream()
    stream = flagos.Stream()
    torch.accelerator.set_stream(stream)
    assert flagos.current_stream() == stream
    assert hash(flagos.current_stream()) == hash(stream)
    assert flagos.current_stream(1) == flagos.default_stream(1)


def test_streams_are_of_the_classes_the_compiler_looks_for() -> None:
    assert issubclass(flagos.Stream, torch.Stream)
    assert issubclass(flagos.Event, torch.Event)
    assert isinstance(flagos.Stream(), flagos.Stream)
    assert isinstance(flagos.current_stream(), flagos.Stream)
    assert isinstance(flagos.Stream().record_event(), flagos.Event)


def test_two_streams_differ() -> None:
    one, two = flagos.Stream(), flagos.Stream(device=0)
    assert one != two
    assert one != flagos.default_stream()
    assert one.device == two.device == torch.device("flagos:0")
    assert flagos.Stream("flagos:1").device_index == 1


def test_priorities_lie_in_the_range() -> None:
    least, greatest = flagos.Stream.priority_range()
    assert least >= 0 >= greatest
    assert flagos.Stream(priority=greatest).priority == greatest
    assert flagos.Stream(priority=-1000).priority == greatest
    assert flagos.Stream(priority=1000).priority == least


def test_stream_by_its_numbers_is_the_same_stream() -> None:
    stream = flagos.Stream(1)
    again = flagos.Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )
    assert again == stream
    with pytest.raises(TypeError, match="colour"):
        flagos.Stream(colour="red")


def test_external_stream_is_the_one_that_was_given() -> None:
    stream = flagos.Stream()
    external = flagos.ExternalStream(stream.hal_handle)
    assert isinstance(external, flagos.ExternalStream)
    assert external.hal_handle == stream.hal_handle
    external.synchronize()


def test_stream_block_sets_and_restores_stream_and_device() -> None:
    stream = flagos.Stream(1)
    with flagos.stream(stream):
        assert flagos.current_stream() == stream
        assert flagos.current_device() == 1
    assert flagos.current_device() == 0
    assert flagos.current_stream(1) == flagos.default_stream(1)
    with flagos.stream(None):
        assert flagos.current_stream() == flagos.default_stream()
    with stream:
        assert flagos.current_stream(1) == stream
    assert flagos.current_stream(1) == flagos.default_stream(1)


def test_stream_of_another_device_type_is_refused() -> None:
    with pytest.raises(ValueError, match="is no flagos stream"):
        flagos._set_stream_by_id(0, 0, 1)


def test_events_order_streams_and_measure() -> None:
    one, two = flagos.Stream(), flagos.Stream()
    start, end = flagos.Event(enable_timing=True), flagos.Event(enable_timing=True)
    assert start.query()
    start.record(one)
    two.wait_event(start)
    end.record(two)
    end.synchronize()
    assert start.query()
    assert end.query()
    assert start.elapsed_time(end) >= 0
    one.wait_stream(two)
    one.synchronize()
    assert one.query()


def test_event_without_timing_says_so() -> None:
    start, end = flagos.Event(), flagos.Event()
    start.record()
    end.record()
    end.synchronize()
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(end)


def test_interprocess_event_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="cannot be shared between processes"):
        flagos.Event(interprocess=True)


def test_capturing_is_told() -> None:
    assert flagos.is_current_stream_capturing() is False


def test_report_tells_what_is_selected() -> None:
    flagos.init()
    report = torch_fl.report()
    assert report.activated
    record = next(record for record in report.backends if record.name == "reference")
    assert (record.state.value, record.device_count) == ("selected", 2)
    assert re.search(r"reference.*: selected, flagos:0 to flagos:1", str(report))
    assert report.as_dict()["backends"][-1]["state"] == "selected"


def test_two_instances_have_devices_side_by_side(evaluate: Any) -> None:
    answer = evaluate(
        """
        import torch, torch_fl
        names = [torch.flagos.get_device_properties(i).backend for i in range(torch.flagos.device_count())]
        tensor = torch.arange(4., device="flagos:0").to("flagos:3")
        answer = [names, tensor.tolist(), str(tensor.device)]
        """,
        FLAGOS_BACKENDS="reference,reference:second",
    )
    assert answer == [["reference"] * 2 + ["reference:second"] * 2, [0.0, 1.0, 2.0, 3.0], "flagos:3"]


def test_no_device_lists_every_candidate(evaluate: Any) -> None:
    answer = evaluate(
        """
        import torch, torch_fl
        answer = [torch.flagos.device_count(), torch.flagos.is_available()]
        try:
            torch.flagos.init()
        except RuntimeError as error:
            answer.append(str(error))
        """,
        FLAGOS_REFERENCE_DEVICES="0",
    )
    assert answer[:2] == [0, False]
    assert "no backend has a device" in answer[2]
    assert "reference: no device" in answer[2]


def test_forked_child_is_told_to_use_spawn(evaluate: Any) -> None:
    answer = evaluate(
        """
        import os, torch, torch_fl
        torch.ones(1, device="flagos")
        read, write = os.pipe()
        if os.fork() == 0:
            words = [str(torch.flagos._is_in_bad_fork())]
            try:
                torch.ones(1, device="flagos")
            except RuntimeError as error:
                words.append(str(error))
            torch.manual_seed(1)  # must not touch the device
            words.append(str(torch.ones(2).sum().item()))
            os.write(write, "|".join(words).encode())
            os._exit(0)
        os.wait()
        answer = os.read(read, 4096).decode().split("|")
        """
    )
    assert answer[0] == "True"
    assert "spawn" in answer[1]
    assert answer[2] == "2.0"
