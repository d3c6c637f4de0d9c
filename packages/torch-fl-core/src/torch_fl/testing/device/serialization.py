"""torch.save and torch.load: device tags, map_location, weights_only, shared storages, pickling."""

from __future__ import annotations

import io
import pickle
from typing import Any

import pytest
import torch

from torch_fl.testing.device.support import exported, module


def _round_trip(value: Any, **options: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, **options)


@pytest.mark.parametrize("weights_only", [True, False])
def test_tensors_come_back_where_they_were(
    device: torch.device, second_device: torch.device, weights_only: bool
) -> None:
    saved = {
        "a": torch.arange(3.0, device=device),
        "b": torch.ones(2, device=second_device),
        "c": torch.zeros(1),
    }
    loaded = _round_trip(saved, weights_only=weights_only)
    assert [loaded[key].device for key in "abc"] == [device, second_device, torch.device("cpu")]
    assert loaded["a"].tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("weights_only", [True, False])
def test_map_location_in_every_form(
    device: torch.device, second_device: torch.device, weights_only: bool
) -> None:
    tensor = torch.arange(3.0, device=device)
    forms: list[tuple[Any, torch.device]] = [
        ("cpu", torch.device("cpu")),
        (torch.device("cpu"), torch.device("cpu")),
        (str(second_device), second_device),
        (second_device, second_device),
        ({"flagos:0": str(second_device)}, second_device),
        (lambda storage, location: storage, torch.device("cpu")),
        ("flagos", device),
    ]
    for form, wanted in forms:
        loaded = _round_trip(tensor, map_location=form, weights_only=weights_only)
        assert loaded.device == wanted, form
        assert loaded.tolist() == [0.0, 1.0, 2.0]


def test_host_checkpoint_loads_onto_the_device(device: torch.device) -> None:
    loaded = _round_trip({"w": torch.ones(4)}, map_location=device)
    assert loaded["w"].device == device


def test_tag_names_device_and_index(second_device: torch.device) -> None:
    buffer = io.BytesIO()
    torch.save(torch.ones(1, device=second_device), buffer)
    assert f"flagos:{second_device.index}".encode() in buffer.getvalue()


def test_device_that_is_not_there_is_explained(device: torch.device) -> None:
    buffer = io.BytesIO()
    torch.save(torch.ones(1, device=device), buffer)
    data = buffer.getvalue().replace(b"flagos:0", b"flagos:9")
    try:
        torch.load(io.BytesIO(data))
    except RuntimeError as error:
        text = str(error)
    else:
        pytest.fail("loaded onto a device that does not exist")
    assert "9" in text or "map_location" in text or "crc" in text.lower()


def test_shared_storages_stay_shared(device: torch.device) -> None:
    base = torch.arange(10.0, device=device)
    loaded = _round_trip({"base": base, "view": base[2:6], "column": base.view(5, 2)[:, 1]})
    loaded["view"].zero_()
    assert loaded["base"].tolist() == [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 6.0, 7.0, 8.0, 9.0]
    assert loaded["column"].stride() == (2,)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.uint8,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.complex64,
        torch.uint16,
        torch.float8_e4m3fn,
    ],
    ids=str,
)
def test_every_type_survives(device: torch.device, dtype: torch.dtype) -> None:
    tensor = torch.ones(5).to(dtype).to(device)
    loaded = _round_trip(tensor)
    assert (loaded.dtype, loaded.device) == (dtype, device)
    assert torch.equal(loaded.cpu().view(torch.uint8), tensor.cpu().view(torch.uint8))


def test_requires_grad_parameters_and_conj_survive(device: torch.device) -> None:
    leaf = torch.ones(2, device=device, requires_grad=True)
    assert _round_trip(leaf).requires_grad
    parameter = torch.nn.Parameter(torch.ones(2, device=device))
    assert isinstance(_round_trip(parameter), torch.nn.Parameter)
    conjugate = torch.tensor([1 + 2j], device=device).conj()
    assert _round_trip(conjugate).resolve_conj().tolist() == [1 - 2j]


def test_empty_and_zero_dimensional_survive(device: torch.device) -> None:
    assert _round_trip(torch.empty(0, 3, device=device)).shape == (0, 3)
    assert _round_trip(torch.tensor(5, device=device)).item() == 5


def test_module_and_optimizer_checkpoint(device: torch.device) -> None:
    model = torch.nn.Linear(3, 2).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3, device=device)).sum().backward()
    optimizer.step()
    state = _round_trip({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    twin = torch.nn.Linear(3, 2).to(device)
    twin.load_state_dict(state["model"])
    again = torch.optim.AdamW(twin.parameters())
    again.load_state_dict(state["optimizer"])
    assert torch.equal(twin.weight.cpu(), model.weight.cpu())
    assert again.state[twin.weight]["exp_avg_sq"].device == device


def test_memory_mapped_load(device: torch.device, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("mmap") / "t.pt"
    torch.save(torch.arange(100.0), path)
    loaded = torch.load(path, mmap=True, map_location="cpu")
    assert loaded.to(device).sum().item() == 4950.0


def test_old_format_round_trip(device: torch.device) -> None:
    buffer = io.BytesIO()
    torch.save(torch.arange(3.0, device=device), buffer, _use_new_zipfile_serialization=False)
    buffer.seek(0)
    assert torch.load(buffer).device == device


def test_pickle_round_trip(device: torch.device) -> None:
    tensor = torch.arange(3.0, device=device)
    loaded = pickle.loads(pickle.dumps(tensor))
    assert loaded.device == device
    assert loaded.tolist() == [0.0, 1.0, 2.0]
    assert pickle.loads(pickle.dumps(device)) == device


def test_skip_data_makes_tensors_on_the_device(device: torch.device) -> None:
    from torch.serialization import skip_data

    buffer = io.BytesIO()
    with skip_data():
        torch.save(torch.ones(5, device=device), buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, map_location="cpu")
    assert loaded.shape == (5,)


def test_load_under_fake_mode_opens_nothing(device: torch.device) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    buffer = io.BytesIO()
    torch.save(torch.ones(5, device=device), buffer)
    buffer.seek(0)
    with FakeTensorMode():
        fake = torch.load(buffer)
    assert fake.shape == (5,)
    assert fake.device.type == module().__name__.rpartition(".")[2]


__all__ = exported(globals())
