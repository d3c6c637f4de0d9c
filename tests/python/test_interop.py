"""Tensors that leave the device and come back: files, copies, pickles, DLPack, modules, other classes of
torch."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_fl  # noqa: F401

flagos = torch.flagos


def values(device: str = "flagos:0") -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4).to(device)


def same(one: torch.Tensor, two: torch.Tensor) -> bool:
    return torch.equal(one.cpu(), two.cpu())


def test_methods_are_named_after_the_device() -> None:
    tensor = torch.ones(2).flagos()
    assert tensor.is_flagos
    assert tensor.device == torch.device("flagos:0")
    assert torch.ones(2).flagos(1).device.index == 1
    assert not torch.ones(2).is_flagos
    assert torch.nn.Linear(2, 2).flagos().weight.is_flagos
    assert torch.ones(2).untyped_storage().flagos().is_flagos


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize(
    ("map_location", "device"),
    [
        (None, "flagos:1"),
        ("cpu", "cpu"),
        ("flagos", "flagos:0"),
        ("flagos:1", "flagos:1"),
        (torch.device("flagos", 0), "flagos:0"),
        ({"flagos:1": "flagos:0"}, "flagos:0"),
        (lambda storage, location: storage, "cpu"),
    ],
    ids=["as saved", "cpu", "flagos", "flagos:1", "device", "dict", "function"],
)
def test_saved_tensor_loads_where_it_is_asked_to(map_location: Any, device: str, weights_only: bool) -> None:
    file = io.BytesIO()
    torch.save({"w": values("flagos:1"), "n": 3}, file)
    file.seek(0)
    loaded = torch.load(file, map_location=map_location, weights_only=weights_only)
    assert str(loaded["w"].device) == device
    assert same(loaded["w"], values())


def test_checkpoint_from_the_host_loads_onto_the_device() -> None:
    file = io.BytesIO()
    torch.save(torch.nn.Linear(3, 2).state_dict(), file)
    file.seek(0)
    loaded = torch.load(file, map_location="flagos", weights_only=True)
    assert {str(tensor.device) for tensor in loaded.values()} == {"flagos:0"}


def test_views_that_share_storage_share_it_after_loading() -> None:
    base = values()
    file = io.BytesIO()
    torch.save([base, base[1]], file)
    file.seek(0)
    loaded, row = torch.load(file, weights_only=True)
    row.zero_()
    assert loaded[1].sum().item() == 0


def test_device_that_is_not_there_is_told_when_loading() -> None:
    file = io.BytesIO()
    torch.save(values(), file)
    file.seek(0)
    with pytest.raises(RuntimeError, match=r"flagos|device"):
        torch.load(file, map_location="flagos:7", weights_only=True)


def test_safetensors_go_both_ways(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    file = tmp_path / "model.safetensors"
    safetensors.save_file({"w": values()}, file)
    assert same(safetensors.load_file(file)["w"], values())
    model = torch.nn.Module()
    model.w = torch.nn.Parameter(torch.zeros(3, 4, device="flagos:1"))
    safetensors.load_model(model, file)
    assert str(model.w.device) == "flagos:1"
    assert same(model.w.detach(), values())


def test_deepcopy_is_a_copy_on_the_same_device() -> None:
    tensor = values("flagos:1").requires_grad_()
    copied = copy.deepcopy(tensor)
    assert copied.device == tensor.device
    assert copied.requires_grad
    assert copied.data_ptr() != tensor.data_ptr()
    assert same(copied.detach(), values())
    base = values()
    both = copy.deepcopy([base, base[0]])
    both[1].zero_()
    assert both[0][0].sum().item() == 0


def test_pickle_keeps_device_and_values() -> None:
    loaded = pickle.loads(pickle.dumps(values("flagos:1")))
    assert str(loaded.device) == "flagos:1"
    assert same(loaded, values())


def test_numpy_is_refused_as_on_other_accelerators() -> None:
    with pytest.raises(TypeError, match=r"convert flagos:0 device type tensor to numpy"):
        values().numpy()
    assert values().cpu().numpy().shape == (3, 4)


def test_dlpack_device_is_told_for_both_kinds() -> None:
    assert [int(part) for part in values("flagos:1").__dlpack_device__()] == [12, 1]
    assert [int(part) for part in torch.ones(1).__dlpack_device__()] == [1, 0]


def test_dlpack_shares_the_memory() -> None:
    tensor = values("flagos:1")
    shared = torch.from_dlpack(tensor)
    assert shared.device == tensor.device
    assert shared.data_ptr() == tensor.data_ptr()
    shared.zero_()
    assert tensor.sum().item() == 0
    from_capsule = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(tensor))
    assert from_capsule.data_ptr() == tensor.data_ptr()


def test_dlpack_keeps_strides_and_offset() -> None:
    tensor = values()[1:].t()
    shared = torch.from_dlpack(tensor)
    assert shared.stride() == tensor.stride()
    assert same(shared, tensor)


@pytest.mark.parametrize("which", ["default", "own", "other", None])
def test_dlpack_orders_the_consumers_stream(which: str | None) -> None:
    producer, other = flagos.Stream(), flagos.Stream()
    stream = {"default": flagos.default_stream(), "own": producer, "other": other, None: None}[which]
    with flagos.stream(producer):
        tensor = values()
        tensor.__dlpack__(stream=None if stream is None else stream.native_handle)
    (stream or flagos.default_stream()).synchronize()
    assert producer.query()


def test_dlpack_refuses_what_torch_refuses() -> None:
    with pytest.raises(BufferError, match="gradient"):
        values().requires_grad_().__dlpack__()
    with pytest.raises(TypeError, match="stream must be an int or None, not str"):
        values().__dlpack__(stream="1")
    with pytest.raises(TypeError, match="stream must be"):
        torch.ones(1).__dlpack__(stream="1")


def test_module_keeps_tied_weights_and_the_optimizer_its_parameters() -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(5, 4), torch.nn.Linear(4, 5, bias=False))
    model[1].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.to("flagos")
    assert model[1].weight is model[0].weight
    assert optimizer.param_groups[0]["params"][0] is model[0].weight
    assert model[0].weight.is_flagos
    before = model[0].weight.detach().cpu()
    model(torch.tensor([1, 2], device="flagos")).sum().backward()
    optimizer.step()
    assert not torch.equal(before, model[0].weight.detach().cpu())


def test_legacy_types_name_device_and_dtype() -> None:
    tensor = values()
    assert tensor.type() == "torch.flagos.FloatTensor"
    assert isinstance(tensor, flagos.FloatTensor)
    assert not isinstance(tensor, flagos.HalfTensor)
    assert not isinstance(torch.ones(1), flagos.FloatTensor)
    assert tensor.type(flagos.LongTensor).dtype == torch.int64
    assert torch.ones(2).type(flagos.HalfTensor).type() == "torch.flagos.HalfTensor"
    made = flagos.IntTensor([1, 2])
    assert (made.dtype, made.device.type, made.tolist()) == (torch.int32, "flagos", [1, 2])
    assert flagos.FloatTensor(2, 3).shape == (2, 3)
    assert repr(flagos.FloatTensor) == "<class 'torch.flagos.FloatTensor'>"


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_legacy_storages_name_device_and_dtype() -> None:
    storage = values().storage()
    assert isinstance(storage, flagos.FloatStorage)
    assert not isinstance(storage, flagos.LongStorage)
    assert storage.type() == "torch.flagos.FloatStorage"
    assert flagos.IntStorage(3).device.type == "flagos"


def test_autocast_and_scaler_by_the_names_of_torch_cuda() -> None:
    one = torch.ones(2, 2, device="flagos")
    for dtype in flagos.get_amp_supported_dtype():
        with flagos.amp.autocast(dtype=dtype):
            assert (one @ one).dtype == dtype
        with torch.autocast("flagos", dtype=dtype):
            assert (one @ one).dtype == dtype
    with torch.autocast("flagos"):
        assert (one @ one).dtype == torch.float16
    assert (one @ one).dtype == torch.float32
    scaler = flagos.amp.GradScaler()
    assert scaler.is_enabled()
    weight = torch.ones(2, device="flagos", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0.0, 0.0]


def test_default_device_and_meta_and_fake_tensors() -> None:
    with torch.device("flagos:1"):
        assert torch.ones(1).device.index == 1
    assert torch.empty_like(values(), device="meta").shape == (3, 4)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(3, device="flagos")
        assert (fake + 1).device == torch.device("flagos:0")


def test_data_loader_pins_for_the_device() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    for workers in (0, 1):
        loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers)
        batches = [batch[0] for batch in loader]
        assert all(batch.is_pinned() for batch in batches)
        assert torch.cat([batch.to("flagos", non_blocking=True) for batch in batches]).tolist() == list(
            range(8)
        )
