"""Interop with PyTorch's own machinery: deepcopy, modules that move, subclasses, printing, compile-free
tracing, functional modules."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from torch_fl.testing.device.support import assert_same, exported


class Tied(nn.Module):
    """An embedding whose weight is the output layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.norm = nn.BatchNorm1d(6)
        self.output = nn.Linear(6, 11, bias=False)
        self.output.weight = self.embedding.weight
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.embedding(tokens)) * self.scale
        result: torch.Tensor = self.output(hidden)
        return result


def test_module_to_keeps_tied_weights(device: torch.device) -> None:
    model = Tied()
    identity = id(model.embedding.weight)
    model.to(device)
    assert model.output.weight is model.embedding.weight
    assert id(model.embedding.weight) == identity, (
        "the parameter became another object; optimizers would lose it"
    )
    assert model.embedding.weight.device == device
    assert model.scale.device == device
    with torch.no_grad():
        model.embedding.weight.fill_(3)
    assert model.output.weight.unique().tolist() == [3.0]
    model.cpu()
    assert model.output.weight is model.embedding.weight
    assert model.output.weight.device.type == "cpu"
    model.flagos()  # type: ignore[operator]
    assert model.output.weight.device.type == "flagos"


def test_module_to_moves_gradients_and_type(device: torch.device) -> None:
    model = nn.Linear(3, 3)
    model(torch.ones(2, 3)).sum().backward()
    model.to(device, torch.float64)
    assert model.weight.grad is not None
    assert (model.weight.grad.device, model.weight.grad.dtype) == (device, torch.float64)


def test_optimizer_follows_a_module_that_moved(device: torch.device) -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model.to(device)
    before = model.weight.detach().clone()
    model(torch.ones(4, 3, device=device)).sum().backward()
    optimizer.step()
    assert not torch.equal(model.weight.detach(), before)
    assert optimizer.state[model.weight]["exp_avg"].device == device


def test_optimizer_state_loads_onto_the_device(device: torch.device) -> None:
    host = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(host.parameters())
    host(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    mine = copy.deepcopy(host).to(device)
    again = torch.optim.Adam(mine.parameters())
    again.load_state_dict(optimizer.state_dict())
    for ours, theirs in zip(mine.parameters(), host.parameters(), strict=True):
        assert again.state[ours]["exp_avg"].device == device
        assert_same(again.state[ours]["exp_avg"], optimizer.state[theirs]["exp_avg"])


def test_deepcopy_of_tensors_and_modules(device: torch.device) -> None:
    base = torch.arange(6.0, device=device)
    pair = copy.deepcopy([base[2:4], base])
    assert pair[0].data_ptr() == pair[1].data_ptr() + 8, "the copies do not share memory as the originals do"
    pair[1].zero_()
    assert base.sum().item() == 15.0
    model = Tied().to(device)
    twin = copy.deepcopy(model)
    assert twin.output.weight is twin.embedding.weight
    assert twin.embedding.weight.device == device
    assert twin.embedding.weight.data_ptr() != model.embedding.weight.data_ptr()
    assert copy.copy(base) is not base


def test_parameter_and_buffer_subclasses_survive(device: torch.device) -> None:
    class Mine(torch.Tensor):
        pass

    tensor = torch.ones(3).as_subclass(Mine).to(device)
    assert type(tensor) is Mine
    assert type(tensor + 1) is Mine
    assert tensor.device == device
    assert isinstance(nn.Parameter(torch.ones(2, device=device)), nn.Parameter)


def test_state_dict_is_on_the_device_and_loads_across(device: torch.device) -> None:
    model = Tied().to(device)
    state = model.state_dict()
    assert {value.device for value in state.values()} == {device}
    host = Tied()
    host.load_state_dict(state)
    assert_same(model.embedding.weight, host.embedding.weight)
    model.load_state_dict({key: value * 0 for key, value in host.state_dict().items()})
    assert model.output.weight.abs().sum().item() == 0.0
    model.load_state_dict(state, assign=True)
    assert model.embedding.weight.device == device


def test_functional_call_and_vmap_over_models(device: torch.device) -> None:
    models = [nn.Linear(3, 2).to(device) for _ in range(3)]
    parameters, _ = torch.func.stack_module_state(models)  # type: ignore[arg-type]
    x = torch.ones(3, device=device)
    outputs = torch.func.vmap(lambda p: torch.func.functional_call(models[0], p, (x,)))(parameters)
    assert_same(outputs, torch.stack([model(x) for model in models]).cpu(), rtol=1e-6, atol=1e-6)


def test_jit_trace_runs_on_the_device(device: torch.device) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(lambda x: (x * 2).relu(), torch.ones(3, device=device))
    assert traced(torch.tensor([-1.0, 2.0, 3.0], device=device)).tolist() == [0.0, 4.0, 6.0]


def test_fx_trace_and_make_fx(device: torch.device) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda x: (x @ x).relu())(torch.ones(2, 2, device=device))
    assert graph(torch.ones(2, 2, device=device)).tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_dispatch_and_function_modes_see_device_operators(device: torch.device) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Record():
        torch.ones(3, device=device).add(1).mm  # noqa: B018
    assert any("aten.add" in name for name in seen)


def test_default_collation_and_tensor_containers(device: torch.device) -> None:
    dataset = torch.utils.data.TensorDataset(torch.arange(6.0, device=device), torch.arange(6, device=device))
    assert dataset[2][0].device == device
    batch = torch.utils.data.default_collate([dataset[i] for i in range(3)])
    assert batch[0].tolist() == [0.0, 1.0, 2.0]
    assert batch[0].device == device


def test_packed_sequences(device: torch.device) -> None:
    sequences = [torch.arange(n, dtype=torch.float32, device=device).view(n, 1) for n in (4, 2, 3)]
    packed = nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False)
    assert packed.data.device == device
    padded, lengths = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    assert lengths.tolist() == [4, 2, 3]
    assert padded[1].flatten().tolist() == [0.0, 1.0, 0.0, 0.0]
    assert packed.to("cpu").data.device.type == "cpu"


def test_safetensors_round_trip(device: torch.device, tmp_path_factory: pytest.TempPathFactory) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    path = str(tmp_path_factory.mktemp("safe") / "m.safetensors")
    state = {
        "a": torch.arange(6.0, device=device).view(2, 3),
        "b": torch.ones(4, dtype=torch.bfloat16, device=device),
    }
    safetensors.save_file(state, path)
    host = safetensors.load_file(path)
    assert torch.equal(host["a"], state["a"].cpu())
    assert torch.equal(host["b"], state["b"].cpu())
    moved = {key: value.to(device) for key, value in host.items()}
    assert moved["b"].dtype == torch.bfloat16
    assert safetensors.save(state)
    try:
        direct = safetensors.load_file(path, device="flagos:0")
    except Exception as error:  # noqa: BLE001  a device that safetensors does not know is its own refusal
        assert "device" in str(error).lower() or "flagos" in str(error)  # noqa: PT017
    else:
        assert direct["a"].device == device


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events:UserWarning")  # torch 2.11
def test_profiler_sees_operators(device: torch.device) -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as run:
        torch.ones(8, 8, device=device).mm(torch.ones(8, 8, device=device))
    assert any(event.key == "aten::mm" for event in run.key_averages())


def test_profiler_tells_the_time_of_operators_on_the_device(device: torch.device) -> None:
    left, right = torch.ones(256, 256, device=device), torch.ones(256, 256, device=device)
    with torch.autograd.profiler.profile(use_device=device.type) as run:
        left.mm(right)
    (mm,) = (event for event in run.key_averages() if event.key == "aten::mm")
    assert mm.count == 1
    assert 0 < mm.device_time_total < 10e6  # microseconds


__all__ = exported(globals())
