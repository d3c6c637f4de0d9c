"""Devices: current device per thread, contexts, properties, torch.accelerator, guards around errors."""

from __future__ import annotations

import threading

import pytest
import torch

from torch_fl.testing.device.support import exported, module


def test_module_and_accelerator_agree(device: torch.device) -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("flagos")
    assert torch.accelerator.device_count() == module().device_count()
    assert torch.accelerator.current_device_index() == module().current_device()
    assert module().is_available()
    assert module().is_initialized()


def test_set_device_changes_what_new_tensors_get(second_device: torch.device) -> None:
    module().set_device(second_device)
    assert module().current_device() == second_device.index
    assert torch.zeros(1, device="flagos").device == second_device
    torch.accelerator.set_device_index(0)
    assert module().current_device() == 0


def test_device_context_puts_the_old_device_back(second_device: torch.device) -> None:
    with module().device(second_device):
        assert module().current_device() == second_device.index
        with module().device(0):
            assert module().current_device() == 0
        assert module().current_device() == second_device.index
    assert module().current_device() == 0
    with pytest.raises(ValueError, match="on purpose"), module().device(second_device):
        raise ValueError("on purpose")
    assert module().current_device() == 0
    with torch.accelerator.device_index(second_device.index):
        assert module().current_device() == second_device.index
    assert module().current_device() == 0


def test_device_of_follows_a_tensor(second_device: torch.device) -> None:
    with module().device_of(torch.zeros(1, device=second_device)):
        assert module().current_device() == second_device.index
    with module().device_of(torch.zeros(1)):
        assert module().current_device() == 0


def test_current_device_is_per_thread(second_device: torch.device) -> None:
    module().set_device(second_device)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(module().current_device()))
    thread.start()
    thread.join()
    assert seen == [0]
    assert module().current_device() == second_device.index


def test_operators_follow_their_tensors_not_the_current_device(second_device: torch.device) -> None:
    a = torch.ones(3, device=second_device)
    assert module().current_device() == 0
    result = (a + a).matmul(a)
    assert result.device == second_device
    assert result.item() == 6.0
    assert torch.zeros_like(a).device == second_device
    assert module().current_device() == 0


def test_backward_leaves_the_current_device(second_device: torch.device) -> None:
    leaf = torch.ones(3, device=second_device, requires_grad=True)
    (leaf * 2).sum().backward()
    assert module().current_device() == 0
    assert leaf.grad is not None
    assert leaf.grad.device == second_device


@pytest.mark.parametrize("index", [64, 1000])
def test_bad_index_is_refused_and_changes_nothing(device: torch.device, index: int) -> None:
    with pytest.raises((RuntimeError, ValueError), match=rf"{index}"):
        module().set_device(index)
    assert module().current_device() == 0
    with pytest.raises((RuntimeError, ValueError)):
        module().get_device_properties(index)
    with pytest.raises((RuntimeError, ValueError)):
        module().synchronize(index)


def test_other_kinds_of_device_are_refused(device: torch.device) -> None:
    with pytest.raises((RuntimeError, ValueError), match="cpu"):
        module().set_device(torch.device("cpu"))
    with pytest.raises((RuntimeError, ValueError), match="cuda"):
        module().get_device_name("cuda:0")


def test_properties_are_of_the_device(device: torch.device) -> None:
    for index in range(module().device_count()):
        properties = module().get_device_properties(index)
        assert properties.name == module().get_device_name(index)
        assert properties.name
        assert properties.backend
        assert properties.total_memory > 0
        free, total = module().mem_get_info(index)
        assert 0 < free <= total == properties.total_memory


def test_synchronize_waits_for_every_stream(device: torch.device) -> None:
    streams = [module().Stream() for _ in range(3)]
    host = torch.ones(100_000).pin_memory()
    targets = []
    for stream in streams:
        with module().stream(stream):
            targets.append(host.to(device, non_blocking=True))
    module().synchronize()
    assert all(stream.query() for stream in streams)
    assert all(target.sum().item() == 100_000 for target in targets)


def test_peer_access_is_told(device: torch.device, second_device: torch.device) -> None:
    assert isinstance(module().can_device_access_peer(device, second_device), bool)


def test_device_comparison_and_repr(device: torch.device) -> None:
    assert repr(torch.zeros(1, device=device)) == "tensor([0.], device='flagos:0')"
    assert str(device) == "flagos:0"
    assert torch.zeros(1, device=device).get_device() == 0
    assert torch.device("flagos") != device
    assert hash(torch.device("flagos:0")) == hash(device)
    assert torch.zeros(1, device=device).is_flagos  # type: ignore[attr-defined]
    assert not torch.zeros(1).is_flagos  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "values",
    [[1.5, -2.0], [], [[1, 2], [3, 4]], [True, False], [1 + 2j]],
)
def test_repr_is_cpus_with_the_device(device: torch.device, values: list[object]) -> None:
    host = torch.tensor(values)
    text = repr(host.to(device))
    assert "device='flagos:0'" in text
    assert repr(host)[:-1].split(", dtype")[0].split(", size")[0] in text


__all__ = exported(globals())
