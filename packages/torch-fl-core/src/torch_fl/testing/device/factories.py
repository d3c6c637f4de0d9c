"""Factories: device arguments in every spelling, options, sizes, defaults, errors."""

from __future__ import annotations

import pytest
import torch

from torch_fl.testing.device.support import exported, module, reference_device

FACTORIES = {
    "empty": lambda **k: torch.empty(3, 2, **k).zero_(),
    "zeros": lambda **k: torch.zeros(3, 2, **k),
    "ones": lambda **k: torch.ones(3, 2, **k),
    "full": lambda **k: torch.full((3, 2), 7, **k),
    "arange": lambda **k: torch.arange(1, 9, 2, **k),
    "linspace": lambda **k: torch.linspace(0, 1, 5, **k),
    "logspace": lambda **k: torch.logspace(0, 1, 5, **k),
    "eye": lambda **k: torch.eye(3, 4, **k),
    "tensor": lambda **k: torch.tensor([[1, 2], [3, 4]], **k),
    "scalar_tensor": lambda **k: torch.scalar_tensor(4, **k),
    "empty_strided": lambda **k: torch.empty_strided((2, 3), (1, 2), **k).zero_(),
    "tril_indices": lambda **k: torch.tril_indices(3, 3, **{**k, "dtype": torch.int64}),
    "hann_window": lambda **k: torch.hann_window(7, **{**k, "dtype": torch.float32}),
    "vander": lambda **k: torch.vander(torch.arange(3, **k)),
    "asarray": lambda **k: torch.asarray([1, 2, 3], **k),
    "complex": lambda **k: torch.complex(
        torch.ones(2, device=k["device"]), torch.ones(2, device=k["device"])
    ),
}


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.complex64], ids=str)
def test_factory_gives_the_references_values_on_the_device(
    device: torch.device, name: str, dtype: torch.dtype
) -> None:
    if dtype.is_complex and name in ("arange", "vander"):
        pytest.skip("PyTorch has no complex arange")
    reference = reference_device()
    wanted = FACTORIES[name](device=reference, dtype=dtype).cpu()
    made = FACTORIES[name](device=device, dtype=dtype)
    assert made.device == device
    assert (made.dtype, made.stride()) == (wanted.dtype, wanted.stride())
    assert torch.equal(made.cpu(), wanted)


@pytest.mark.parametrize("spelling", ["flagos", "flagos:0", 0])
def test_device_in_every_spelling(device: torch.device, spelling: str | int) -> None:
    assert torch.zeros(2, device=spelling).device == device


def test_device_without_index_is_the_current_one(second_device: torch.device) -> None:
    with module().device(second_device):
        assert torch.zeros(2, device="flagos").device == second_device
        assert torch.zeros(2).to("flagos").device == second_device
    assert torch.zeros(2, device="flagos").device.index == 0


@pytest.mark.parametrize("index", [63, 127])
def test_index_out_of_range_is_refused_in_words(device: torch.device, index: int) -> None:
    with pytest.raises(RuntimeError, match=rf"(?s)flagos.*{index}"):
        torch.zeros(2, device=f"flagos:{index}")
    assert torch.zeros(2, device=device).sum().item() == 0


def test_default_device_applies(device: torch.device) -> None:
    with torch.device(device):
        assert torch.zeros(2).device == device
        assert torch.nn.Linear(2, 2).weight.device == device
    torch.set_default_device(device)
    try:
        assert torch.arange(3).device == device
        assert torch.tensor([1.0]).device == device
    finally:
        torch.set_default_device(None)
    assert torch.zeros(2).device.type == "cpu"


def test_like_factories_follow_their_argument(device: torch.device) -> None:
    base = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    mine = base.to(device)
    for like in (torch.zeros_like, torch.ones_like, torch.empty_like, torch.rand_like, torch.randn_like):
        made = like(mine)
        assert made.device == mine.device
        assert made.stride() == base.stride()
        assert like(mine, dtype=torch.float64).dtype == torch.float64
        assert like(mine, device="cpu").device.type == "cpu"
    assert torch.full_like(mine, 3).unique().tolist() == [3.0]


def test_new_factories_follow_their_tensor(device: torch.device) -> None:
    base = torch.zeros(2, dtype=torch.float64, device=device)
    for made in (
        base.new_zeros(3),
        base.new_ones(3),
        base.new_full((3,), 2),
        base.new_empty(3),
        base.new_tensor([1, 2]),
    ):
        assert (made.device, made.dtype) == (device, torch.float64)
    assert base.new_empty_strided((2, 3), (1, 2)).stride() == (1, 2)


def test_legacy_constructors(device: torch.device) -> None:
    assert torch.flagos.FloatTensor(2, 3).device.type == "flagos"  # type: ignore[attr-defined]
    assert torch.zeros(2, device=device).type() == "torch.flagos.FloatTensor"
    assert torch.zeros(2).type("torch.flagos.DoubleTensor").dtype == torch.float64
    assert torch.zeros(1, device=device).is_flagos  # type: ignore[attr-defined]


def test_requires_grad_and_pin_memory_options(device: torch.device) -> None:
    assert torch.zeros(2, device=device, requires_grad=True).requires_grad
    with pytest.raises(RuntimeError, match=r"[Pp]in|dense CPU"):
        torch.zeros(2, device=device, pin_memory=True)


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
def test_empty_takes_a_memory_format(device: torch.device, memory_format: torch.memory_format) -> None:
    made = torch.empty(2, 3, 4, 5, device=device, memory_format=memory_format)
    assert made.is_contiguous(memory_format=memory_format)


def test_zero_sized_and_zero_dimensional(device: torch.device) -> None:
    assert torch.empty(0, 3, device=device).shape == (0, 3)
    assert torch.zeros((), device=device).item() == 0
    assert torch.ones(3, 0, device=device).sum().item() == 0
    with pytest.raises(RuntimeError, match="negative"):
        torch.empty(-1, device=device)


def test_meta_and_fake_tensors_know_the_device(device: torch.device) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = torch.zeros(3, 4, device=device)
        assert fake.device == device
        assert (fake @ fake.t()).shape == (3, 3)
        assert (fake @ fake.t()).device == device
        real = mode.from_tensor(torch.ones(2, device=device))
        assert real.device == device
    meta = torch.nn.Linear(3, 3, device="meta")
    assert meta.to_empty(device=device).weight.device == device


__all__ = exported(globals())
