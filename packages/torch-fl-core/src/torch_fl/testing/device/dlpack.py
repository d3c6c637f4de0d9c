"""DLPack: both directions, without copies, with the right device, stream and refusals."""

from __future__ import annotations

import pytest
import torch
from torch.utils.dlpack import DLDeviceType, from_dlpack, to_dlpack

from torch_fl.testing.device.support import exported, module


def test_device_code_is_told_with_the_index(device: torch.device, second_device: torch.device) -> None:
    for place in (device, second_device):
        kind, index = torch.zeros(1, device=place).__dlpack_device__()
        assert (kind, index) == (DLDeviceType.kDLExtDev, place.index)
    assert torch.zeros(1).__dlpack_device__() == (DLDeviceType.kDLCPU, 0)


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.bool, torch.complex64],
    ids=str,
)
def test_round_trip_shares_memory(device: torch.device, dtype: torch.dtype) -> None:
    tensor = torch.ones(4, 3, dtype=dtype, device=device)
    twin = torch.from_dlpack(tensor)
    assert twin.data_ptr() == tensor.data_ptr()
    assert (twin.device, twin.dtype, twin.shape, twin.stride()) == (
        device,
        dtype,
        tensor.shape,
        tensor.stride(),
    )
    twin.zero_()
    assert not tensor.cpu().to(torch.complex64).any()


def test_strides_and_offset_survive(device: torch.device) -> None:
    base = torch.arange(24.0, device=device).view(4, 6)
    twin = torch.from_dlpack(base[1:, ::2].t())
    assert twin.stride() == (2, 6)
    assert torch.equal(twin.cpu(), base.cpu()[1:, ::2].t())
    assert twin.data_ptr() == base[1:].data_ptr()


def test_capsule_functions(device: torch.device, second_device: torch.device) -> None:
    tensor = torch.arange(5.0, device=second_device)
    twin = from_dlpack(to_dlpack(tensor))
    assert twin.device == second_device
    assert twin.tolist() == tensor.tolist()
    assert from_dlpack(tensor.__dlpack__()).data_ptr() == tensor.data_ptr()


def test_memory_lives_as_long_as_the_importer(device: torch.device) -> None:
    twin = torch.from_dlpack(torch.full((1000,), 3.0, device=device))
    fillers = [torch.full((1000,), -1.0, device=device) for _ in range(8)]
    assert twin.sum().item() == 3000.0
    assert len(fillers) == 8


def test_import_of_host_memory_stays_on_the_host(device: torch.device) -> None:
    host = torch.arange(3.0)
    assert torch.from_dlpack(host).device.type == "cpu"
    numpy = pytest.importorskip("numpy")
    assert torch.from_dlpack(numpy.arange(3.0)).to(device).tolist() == [0.0, 1.0, 2.0]


def test_tensor_that_requires_grad_is_refused(device: torch.device) -> None:
    with pytest.raises((RuntimeError, BufferError), match="require"):
        torch.ones(2, device=device, requires_grad=True).__dlpack__()


def test_conjugate_bit_is_refused(device: torch.device) -> None:
    with pytest.raises((RuntimeError, BufferError), match="conjugate"):
        torch.ones(2, dtype=torch.complex64, device=device).conj().__dlpack__()


def test_zero_sized_and_zero_dimensional_round_trip(device: torch.device) -> None:
    assert torch.from_dlpack(torch.empty(0, 3, device=device)).shape == (0, 3)
    assert torch.from_dlpack(torch.tensor(4.0, device=device)).item() == 4.0


def test_export_with_a_copy(device: torch.device) -> None:
    tensor = torch.ones(3, device=device)
    try:
        twin = torch.from_dlpack(tensor, copy=True)
    except TypeError:
        pytest.skip("torch.from_dlpack takes no copy= in this torch")
    assert twin.data_ptr() != tensor.data_ptr()
    assert twin.tolist() == [1.0] * 3


def test_export_is_ordered_after_queued_work(device: torch.device) -> None:
    source = torch.ones(200_000).pin_memory()
    stream = module().Stream()
    with module().stream(stream):
        tensor = torch.zeros(200_000, device=device)
        tensor.copy_(source, non_blocking=True)
        twin = torch.from_dlpack(tensor)
    stream.synchronize()
    assert twin.sum().item() == 200_000.0


__all__ = exported(globals())
