"""Storages: their device, size, sharing, copies, and what typed and untyped ones answer."""

from __future__ import annotations

import copy

import pytest
import torch

from torch_fl.testing.device.support import exported


def test_storage_is_on_the_tensors_device(device: torch.device, second_device: torch.device) -> None:
    for place in (device, second_device):
        storage = torch.zeros(3, device=place).untyped_storage()
        assert storage.device == place
        assert storage.nbytes() == 12
        assert storage.is_flagos  # type: ignore[attr-defined]
        assert not storage.is_cuda
    assert not torch.zeros(3).untyped_storage().is_flagos  # type: ignore[attr-defined]


def test_results_of_operators_have_storages_on_the_device(device: torch.device) -> None:
    a = torch.ones(3, device=device)
    made = [
        a + a,
        torch.mm(a.view(3, 1), a.view(1, 3)),
        a.double(),
        a.sum(),
        torch.nonzero(a),
        a.sort().values,
    ]
    for tensor in [*made, *torch._foreach_add([a, a], 1)]:
        assert tensor.device == a.device
        assert tensor.untyped_storage().device == a.device


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storage_moves_to_the_device_and_back(device: torch.device) -> None:
    host = torch.arange(5.0).untyped_storage()
    moved = host.flagos()  # type: ignore[attr-defined]
    assert moved.device.type == device.type
    assert moved.cpu().tolist() == host.tolist()
    typed = torch.arange(5.0)._typed_storage()
    assert typed.flagos().device.type == device.type  # type: ignore[attr-defined]


def test_untyped_storage_can_be_made_and_resized_on_the_device(device: torch.device) -> None:
    storage = torch.UntypedStorage(16, device=device)
    assert (storage.nbytes(), storage.device) == (16, device)
    tensor = torch.empty(0, device=device).set_(storage, 0, (4,), (1,))
    tensor.fill_(2)
    storage.resize_(64)
    assert storage.nbytes() == 64
    assert torch.empty(0, device=device).set_(storage, 0, (4,), (1,)).tolist() == [2.0] * 4
    storage.resize_(0)
    assert storage.nbytes() == 0


def test_storage_copy_between_devices(device: torch.device) -> None:
    source, target = torch.arange(4.0).untyped_storage(), torch.zeros(4, device=device).untyped_storage()
    target.copy_(source)
    assert torch.empty(0, device=device).set_(target, 0, (4,), (1,)).tolist() == [0.0, 1.0, 2.0, 3.0]
    back = torch.UntypedStorage(16)
    back.copy_(target)
    assert back.tolist() == source.tolist()


def test_storage_clone_and_deepcopy_are_independent(device: torch.device) -> None:
    tensor = torch.ones(4, device=device)
    for twin in (tensor.untyped_storage().clone(), copy.deepcopy(tensor.untyped_storage())):
        assert twin.device == device
        tensor.zero_()
        assert torch.empty(0, device=device).set_(twin, 0, (4,), (1,)).tolist() == [1.0] * 4
        tensor.fill_(1)


def test_tensors_of_one_storage_know_it(device: torch.device) -> None:
    base = torch.zeros(10, device=device)
    assert base[2:].untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    assert base.clone().untyped_storage().data_ptr() != base.untyped_storage().data_ptr()
    assert base[5:].untyped_storage().nbytes() == 40


def test_freed_storage_keeps_views_alive(device: torch.device) -> None:
    view = torch.arange(1000.0, device=device)[990:]
    filler = [torch.full((1000,), -1.0, device=device) for _ in range(8)]
    assert view.tolist() == [float(i) for i in range(990, 1000)]
    assert len(filler) == 8


def test_storage_of_zero_bytes_is_usable(device: torch.device) -> None:
    empty = torch.empty(0, device=device)
    assert empty.untyped_storage().nbytes() == 0
    assert (empty + 1).shape == (0,)
    assert torch.cat([empty, torch.ones(2, device=device)]).tolist() == [1.0, 1.0]


def test_item_access_of_device_storage_is_refused_or_right(device: torch.device) -> None:
    storage = torch.full((2,), 3, dtype=torch.uint8, device=device).untyped_storage()
    try:
        assert storage[0] == 3
    except (RuntimeError, NotImplementedError) as error:
        assert "device" in str(error)  # noqa: PT017  (either answer is CUDA-like)


def test_set_of_storage_on_another_device_is_refused(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match="device"):
        torch.empty(0, device=device).set_(torch.zeros(3).untyped_storage())


__all__ = exported(globals())
