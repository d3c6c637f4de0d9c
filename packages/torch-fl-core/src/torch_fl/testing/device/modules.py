"""Layers: forward and backward of convolutions, norms, recurrent cells, pooling, losses, embeddings equal
CPU's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from torch_fl.testing.device.support import assert_same, companion_of, exported

TOLERANCE = {"rtol": 1e-5, "atol": 2e-6}


def _tolerance() -> dict[str, float]:
    """Return that; more where a companion may multiply in a shorter type, as CUDA does (TF32)."""
    return TOLERANCE if companion_of(0) is None else {"rtol": 2e-2, "atol": 2e-2}


LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "Linear": (nn.Linear(6, 5), (4, 6)),
    "Bilinear-free MLP": (nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 2), nn.Softmax(-1)), (4, 6)),
    "Conv1d": (nn.Conv1d(3, 4, 3, padding=1), (2, 3, 9)),
    "Conv2d": (nn.Conv2d(4, 6, 3, stride=2, padding=1), (2, 4, 9, 8)),
    "Conv2d grouped": (nn.Conv2d(4, 8, 3, groups=4, bias=False), (2, 4, 7, 7)),
    "Conv2d dilated": (nn.Conv2d(2, 3, 3, dilation=2, padding="same"), (1, 2, 9, 9)),
    "Conv2d 1x1": (nn.Conv2d(4, 6, 1), (2, 4, 5, 5)),
    "Conv3d": (nn.Conv3d(2, 3, (2, 3, 3)), (1, 2, 4, 5, 5)),
    "ConvTranspose1d": (nn.ConvTranspose1d(3, 2, 3, stride=2), (2, 3, 5)),
    "ConvTranspose2d": (nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), (2, 3, 5, 5)),
    "ConvTranspose3d": (nn.ConvTranspose3d(2, 2, 2), (1, 2, 3, 3, 3)),
    "BatchNorm1d": (nn.BatchNorm1d(5), (7, 5)),
    "BatchNorm2d": (nn.BatchNorm2d(3), (4, 3, 5, 5)),
    "BatchNorm3d": (nn.BatchNorm3d(2), (2, 2, 3, 3, 3)),
    "InstanceNorm2d": (nn.InstanceNorm2d(3, affine=True, track_running_stats=True), (2, 3, 5, 5)),
    "GroupNorm": (nn.GroupNorm(2, 6), (3, 6, 4)),
    "LayerNorm": (nn.LayerNorm([4, 6]), (3, 4, 6)),
    "RMSNorm": (nn.RMSNorm(6), (3, 6)),
    "LocalResponseNorm": (nn.LocalResponseNorm(2), (2, 4, 5)),
    "MaxPool2d": (nn.MaxPool2d(2, padding=1), (2, 3, 6, 6)),
    "AvgPool2d": (nn.AvgPool2d(3, stride=2), (2, 3, 7, 7)),
    "AvgPool3d": (nn.AvgPool3d(2), (1, 2, 4, 4, 4)),
    "AdaptiveAvgPool2d": (nn.AdaptiveAvgPool2d(3), (2, 3, 7, 5)),
    "AdaptiveMaxPool1d": (nn.AdaptiveMaxPool1d(3), (2, 3, 7)),
    "LPPool2d": (nn.LPPool2d(2, 2), (1, 2, 6, 6)),
    "Upsample nearest": (nn.Upsample(scale_factor=2), (1, 2, 3, 3)),
    "Upsample bilinear": (nn.Upsample(size=7, mode="bilinear"), (1, 2, 3, 3)),
    "PixelShuffle": (nn.PixelShuffle(2), (1, 8, 3, 3)),
    "Fold": (nn.Fold((4, 5), (2, 2)), (1, 12, 12)),
    "Unfold": (nn.Unfold(2), (1, 3, 4, 4)),
    "ReflectionPad2d": (nn.ReflectionPad2d(1), (1, 2, 4, 4)),
    "ReplicationPad1d": (nn.ReplicationPad1d(2), (1, 2, 4)),
    "CircularPad2d": (nn.CircularPad2d(1), (1, 2, 4, 4)),
    "PReLU": (nn.PReLU(3), (2, 3, 4)),
    "LogSoftmax": (nn.LogSoftmax(1), (3, 6)),
    "GLU": (nn.GLU(), (3, 6)),
    "Hardswish": (nn.Hardswish(), (30,)),
    "Mish": (nn.Mish(), (30,)),
    "SELU": (nn.SELU(), (30,)),
    "Weight norm": (nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), (2, 4)),
    "Spectral norm": (nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), (2, 4)),
}


def _values(shape: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(9)
    return torch.randn(shape, generator=generator)


def _run(layer: nn.Module, x: torch.Tensor, place: torch.device | str) -> list[Any]:
    layer = copy.deepcopy(layer).to(place)
    leaf = x.to(place, copy=True).requires_grad_()
    output = layer(leaf)
    output.backward(torch.linspace(-1, 1, output.numel()).view(output.shape).to(place))
    found = [output, leaf.grad, *(parameter.grad for parameter in layer.parameters())]
    found += list(layer.buffers())
    assert all(tensor.device.type == torch.device(place).type for tensor in found if tensor is not None)
    return found


@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")  # CUDA's, in a thread that is new to it
@pytest.mark.parametrize("name", LAYERS)
def test_layer_equals_cpu_forward_backward_and_buffers(device: torch.device, name: str) -> None:
    layer, shape = LAYERS[name]
    x = _values(shape)
    assert_same(_run(layer, x, device), _run(layer, x, "cpu"), **_tolerance())


@pytest.mark.parametrize("name", ["Conv2d", "BatchNorm2d", "MaxPool2d", "AvgPool2d", "Upsample bilinear"])
def test_channels_last_is_kept(device: torch.device, name: str) -> None:
    layer, shape = LAYERS[name]
    x = _values(shape).to(memory_format=torch.channels_last)
    wanted, mine = _run(layer, x, "cpu"), _run(layer, x, device)
    assert mine[0].stride() == wanted[0].stride()
    assert_same(mine, wanted, **TOLERANCE)


@pytest.mark.parametrize("name", ["Conv1d", "Conv2d", "Linear", "LayerNorm"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_layer_in_other_types(device: torch.device, name: str, dtype: torch.dtype) -> None:
    layer, shape = LAYERS[name]
    layer, x = copy.deepcopy(layer).to(dtype), _values(shape).to(dtype)
    tolerance = 1e-10 if dtype == torch.float64 else 2e-2
    assert_same(_run(layer, x, device), _run(layer, x, "cpu"), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_running_statistics_follow_and_are_used(
    device: torch.device, momentum: float | None
) -> None:
    layers = [nn.BatchNorm2d(3, momentum=momentum).to(place) for place in ("cpu", device)]
    for step in range(3):
        for layer in layers:
            layer(_values((4, 3, 5, 5)).to(layer.weight.device) * (step + 1) + step)
    host, mine = layers
    assert mine.num_batches_tracked is not None
    assert mine.num_batches_tracked.item() == 3
    assert_same([mine.running_mean, mine.running_var], [host.running_mean, host.running_var], **TOLERANCE)
    assert mine.running_mean is not None
    assert mine.running_mean.abs().sum().item() > 0.5, "the statistics were updated on a copy"
    host.eval()
    mine.eval()
    x = _values((2, 3, 4, 4))
    assert_same(mine(x.to(device)), host(x), **TOLERANCE)


@pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk")
@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_recurrent_layers_equal_cpu(
    device: torch.device, kind: Any, bidirectional: bool, packed: bool
) -> None:
    torch.manual_seed(3)
    layer = kind(4, 5, num_layers=2, bidirectional=bidirectional, batch_first=True)
    results = []
    for place in ("cpu", device):
        twin = copy.deepcopy(layer).to(place)
        x = _values((3, 6, 4)).to(place).requires_grad_()
        given: Any = (
            nn.utils.rnn.pack_padded_sequence(x, torch.tensor([6, 4, 2]), batch_first=True) if packed else x
        )
        output, state = twin(given)
        flat = output.data if packed else output
        states = list(state) if isinstance(state, tuple) else [state]
        (flat.sum() + sum((s * s).sum() for s in states)).backward()
        results.append([flat, *states, x.grad, *(parameter.grad for parameter in twin.parameters())])
    assert_same(results[1], results[0], **_tolerance())


@pytest.mark.parametrize("kind", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
def test_recurrent_cells_equal_cpu(device: torch.device, kind: Any) -> None:
    torch.manual_seed(3)
    cell = kind(4, 5)
    results = []
    for place in ("cpu", device):
        twin = copy.deepcopy(cell).to(place)
        x = _values((3, 4)).to(place).requires_grad_()
        state = twin(x)
        first = state[0] if isinstance(state, tuple) else state
        first.square().sum().backward()
        results.append([first, x.grad, *(parameter.grad for parameter in twin.parameters())])
    assert_same(results[1], results[0], **TOLERANCE)


def _losses() -> dict[str, tuple[Any, torch.Tensor, torch.Tensor]]:
    logits, classes = _values((6, 5)), torch.arange(6) % 5
    positive = torch.rand(6, 5, generator=torch.Generator().manual_seed(1))
    return {
        "cross entropy": (nn.CrossEntropyLoss(label_smoothing=0.1), logits, classes),
        "cross entropy weighted": (
            nn.CrossEntropyLoss(weight=torch.arange(1.0, 6.0), ignore_index=2),
            logits,
            classes,
        ),
        "nll": (nn.NLLLoss(), logits.log_softmax(-1), classes),
        "mse": (nn.MSELoss(), logits, positive),
        "l1": (nn.L1Loss(reduction="sum"), logits, positive),
        "huber": (nn.HuberLoss(), logits, positive),
        "smooth l1": (nn.SmoothL1Loss(), logits, positive),
        "bce with logits": (nn.BCEWithLogitsLoss(pos_weight=torch.ones(5) * 2), logits, positive),
        "bce": (nn.BCELoss(), positive, (positive > 0.5).float()),
        "kl": (nn.KLDivLoss(reduction="batchmean"), logits.log_softmax(-1), positive.softmax(-1)),
        "poisson": (nn.PoissonNLLLoss(), logits, positive),
        "multi margin": (nn.MultiMarginLoss(), logits, classes),
        "soft margin": (nn.SoftMarginLoss(), logits, positive.sign()),
    }


@pytest.mark.parametrize("name", _losses())
def test_losses_equal_cpu(device: torch.device, name: str) -> None:
    loss, x, target = _losses()[name]
    results = []
    for place in ("cpu", device):
        leaf = x.detach().to(place, copy=True).requires_grad_()
        value = copy.deepcopy(loss).to(place)(leaf, target.to(place))
        value.backward()
        results.append([value, leaf.grad])
    assert_same(results[1], results[0], **TOLERANCE)


def test_ctc_loss_equals_cpu(device: torch.device) -> None:
    results = []
    for place in ("cpu", device):
        leaf = _values((12, 2, 5)).to(place).requires_grad_()
        value = nn.functional.ctc_loss(
            leaf.log_softmax(-1),
            torch.tensor([[1, 2, 3], [2, 2, 4]], device=place),
            torch.tensor([12, 10], device=place),
            torch.tensor([3, 2], device=place),
        )
        value.backward()  # type: ignore[no-untyped-call]
        results.append([value, leaf.grad])
    assert_same(results[1], results[0], **TOLERANCE)


def test_embedding_layers_equal_cpu(device: torch.device) -> None:
    torch.manual_seed(1)
    layers: list[nn.Module] = [
        nn.Embedding(9, 4, padding_idx=0),
        nn.Embedding(9, 4, max_norm=0.5),
        nn.EmbeddingBag(9, 4, mode="mean"),
    ]
    for layer in layers:
        results = []
        for place in ("cpu", device):
            twin = copy.deepcopy(layer).to(place)
            output = twin(torch.tensor([[1, 0, 3], [3, 8, 1]], device=place))
            output.square().sum().backward()
            results.append([output, *(p.grad for p in twin.parameters()), *twin.parameters()])
        assert_same(results[1], results[0], **TOLERANCE)


def test_grid_sampling_equals_cpu(device: torch.device) -> None:
    results = []
    for place in ("cpu", device):
        x = _values((1, 2, 5, 5)).to(place).requires_grad_()
        grid = nn.functional.affine_grid(
            torch.tensor([[[0.8, 0.1, 0.0], [-0.1, 0.9, 0.1]]], device=place),
            [1, 2, 4, 4],
            align_corners=False,
        )
        output = nn.functional.grid_sample(x, grid, align_corners=False)
        output.sum().backward()
        results.append([output, x.grad])
    assert_same(results[1], results[0], **TOLERANCE)


def test_layers_without_elements_or_batch(device: torch.device) -> None:
    assert nn.Linear(3, 2).to(device)(torch.empty(0, 3, device=device)).shape == (0, 2)
    assert nn.Conv2d(3, 4, 3).to(device)(torch.empty(0, 3, 8, 8, device=device)).shape == (0, 4, 6, 6)
    assert nn.Conv2d(3, 4, 3).to(device)(torch.ones(3, 8, 8, device=device)).shape == (4, 6, 6)
    assert nn.LayerNorm(3).to(device)(torch.empty(0, 3, device=device)).shape == (0, 3)
    with pytest.raises(RuntimeError, match="Given groups=1"):
        nn.Conv2d(3, 4, 3).to(device)(torch.ones(1, 2, 8, 8, device=device))


def test_small_model_trains_as_on_cpu(device: torch.device) -> None:
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    )
    x, y = _values((8, 1, 8, 8)), torch.arange(8) % 3
    curves = []
    for place in ("cpu", device):
        twin = copy.deepcopy(model).to(place)
        optimizer = torch.optim.AdamW(twin.parameters(), lr=0.02)
        losses = []
        for _ in range(15):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(twin(x.to(place)), y.to(place))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        curves.append(losses)
    assert curves[1] == pytest.approx(curves[0], rel=1e-3)
    assert curves[1][-1] < curves[1][0] * 0.8


__all__ = exported(globals())
