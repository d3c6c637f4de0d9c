"""Corner cases of operators: indexing, index_put_, out=, in-place, sizes, types, sparse layouts, what depends
on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_fl.testing.device.support import assert_same, exported

Case = Callable[[Any], Any]

# Each takes a function that moves a tensor to the device under test, and gives a result to compare.
CASES: dict[str, Case] = {
    "index by tensor": lambda to: to(torch.arange(12.0).view(4, 3))[to(torch.tensor([3, 0, 0]))],
    "index by two tensors": lambda to: to(torch.arange(12.0).view(4, 3))[
        to(torch.tensor([3, 0])), to(torch.tensor([1, 2]))
    ],
    "index by mask": lambda to: to(torch.arange(12.0).view(4, 3))[to(torch.arange(12).view(4, 3) % 2 == 0)],
    "index by mixed": lambda to: to(torch.arange(24.0).view(2, 3, 4))[:, to(torch.tensor([2, 0])), None, 1:],
    "index by host tensor": lambda to: to(torch.arange(5.0))[torch.tensor([4, 1])],
    "index by list": lambda to: to(torch.arange(5.0))[[4, 1]],
    "negative indices": lambda to: to(torch.arange(5.0))[to(torch.tensor([-1, -5]))],
    "index by nothing": lambda to: to(torch.arange(5.0))[to(torch.tensor([], dtype=torch.int64))],
    "nonzero": lambda to: to(torch.tensor([[0, 1], [2, 0]])).nonzero(),
    "nonzero as tuple": lambda to: list(to(torch.tensor([[0, 1], [2, 0]])).nonzero(as_tuple=True)),
    "masked_select": lambda to: to(torch.arange(6.0)).masked_select(to(torch.arange(6) > 3)),
    "unique with counts": lambda to: list(
        torch.unique(to(torch.tensor([3, 1, 3])), return_counts=True, return_inverse=True)
    ),
    "sort stable": lambda to: list(torch.sort(to(torch.tensor([2, 1, 2, 1])), stable=True)),
    "topk": lambda to: list(to(torch.tensor([3.0, 1.0, 2.0])).topk(2)),
    "mode": lambda to: list(torch.mode(to(torch.tensor([[1, 2, 2], [3, 3, 1]])))),
    "median": lambda to: list(to(torch.tensor([[3.0, 1.0, 2.0]])).median(1)),
    "histc of integers": lambda to: torch.histc(to(torch.tensor([1, 2, 2, 3]).float()), bins=3),
    "bincount": lambda to: torch.bincount(to(torch.tensor([1, 2, 2, 5])), minlength=8),
    "searchsorted": lambda to: torch.searchsorted(
        to(torch.tensor([1.0, 3.0, 5.0])), to(torch.tensor([2.0, 5.0]))
    ),
    "cumsum": lambda to: to(torch.arange(6).view(2, 3)).cumsum(1),
    "logcumsumexp": lambda to: to(torch.arange(6.0)).logcumsumexp(0),
    "scatter_reduce": lambda to: to(torch.zeros(4)).scatter_reduce(
        0, to(torch.tensor([0, 1, 0])), to(torch.ones(3)), "sum"
    ),
    "index_add": lambda to: to(torch.zeros(3, 2)).index_add(
        0, to(torch.tensor([0, 0, 2])), to(torch.ones(3, 2)), alpha=2
    ),
    "take_along_dim": lambda to: torch.take_along_dim(
        to(torch.arange(6.0).view(2, 3)), to(torch.tensor([[2], [0]])), 1
    ),
    "einsum": lambda to: torch.einsum(
        "bij,bjk->bik", to(torch.arange(12.0).view(2, 2, 3)), to(torch.ones(2, 3, 2))
    ),
    "cdist": lambda to: torch.cdist(to(torch.eye(3)), to(torch.ones(2, 3))),
    "complex mm": lambda to: (
        to(torch.tensor([[1 + 1j, 2], [0, 1j]])).conj() @ to(torch.tensor([[1j, 1], [1, 0]])).mH
    ),
    "fft of strided": lambda to: torch.fft.fft(to(torch.arange(16.0).view(4, 4)).t()),
    "irfft": lambda to: torch.fft.irfft(torch.fft.rfft(to(torch.arange(9.0))), n=9),
    "svd of conjugate": lambda to: torch.linalg.svdvals(to(torch.tensor([[1 + 1j, 2], [0, 1j]])).conj()),
    "solve": lambda to: torch.linalg.solve(
        to(torch.tensor([[2.0, 1.0], [1.0, 3.0]])), to(torch.tensor([1.0, 2.0]))
    ),
    "cholesky": lambda to: torch.linalg.cholesky(to(torch.tensor([[2.0, 1.0], [1.0, 3.0]]))),
    "det of batch": lambda to: torch.linalg.det(to(torch.arange(18.0).view(2, 3, 3) % 7)),
    "matrix_exp": lambda to: torch.matrix_exp(to(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))),
    "repeat_interleave": lambda to: torch.repeat_interleave(
        to(torch.tensor([1, 2, 3])), to(torch.tensor([2, 0, 1]))
    ),
    "tensor_split by host": lambda to: list(torch.tensor_split(to(torch.arange(7.0)), torch.tensor([2, 5]))),
    "bucketize": lambda to: torch.bucketize(
        to(torch.tensor([0.5, 2.5])), to(torch.tensor([1.0, 2.0, 3.0])), right=True
    ),
    "where scalar": lambda to: torch.where(to(torch.tensor([True, False])), 1.5, to(torch.tensor([2, 3]))),
    "clamp by tensors": lambda to: to(torch.arange(5.0)).clamp(to(torch.tensor(1.0)), to(torch.tensor(3.0))),
    "lerp by number": lambda to: torch.lerp(to(torch.zeros(3)), to(torch.ones(3)), 0.25),
    "float8 and back": lambda to: (
        to(torch.tensor([0.3, 500.0, -7.0])).to(torch.float8_e4m3fn).to(torch.float32)
    ),
    "uint16 arithmetic": lambda to: to(torch.tensor([65535, 1], dtype=torch.uint16)).to(torch.int32) + 1,
    "bitwise of uint8": lambda to: to(torch.tensor([255, 3], dtype=torch.uint8)) & 0x0F,
    "shift": lambda to: to(torch.tensor([1, 2])) << 3,
    "integer division": lambda to: torch.div(to(torch.tensor([7, -7])), 2, rounding_mode="floor"),
    "mean of half": lambda to: to(torch.full((5000,), 0.1, dtype=torch.float16)).mean(),
    "sum of bool": lambda to: to(torch.tensor([True, True, False])).sum(),
    "all and any of nothing": lambda to: [to(torch.empty(0)).all(), to(torch.empty(0)).any()],
    "cat of nothing": lambda to: torch.cat([to(torch.empty(0)), to(torch.ones(2, 3))], 0),
    "stack with conj": lambda to: torch.stack([to(torch.tensor([1j])).conj(), to(torch.tensor([1j]))]),
    "norm of complex": lambda to: torch.linalg.vector_norm(to(torch.tensor([3 + 4j, 0]))),
    "nan reductions": lambda to: [
        to(torch.tensor([1.0, float("nan")])).nansum(),
        to(torch.tensor([1.0, float("nan")])).max(),
    ],
    "flip and roll": lambda to: [to(torch.arange(6).view(2, 3)).flip(1), to(torch.arange(6)).roll(2)],
    "combinations": lambda to: torch.combinations(to(torch.arange(4)), 2),
    "meshgrid": lambda to: list(torch.meshgrid(to(torch.arange(2)), to(torch.arange(3)), indexing="ij")),
    "pad constant": lambda to: torch.nn.functional.pad(to(torch.ones(2, 2)), (1, 0, 0, 2), value=5),
    "one hot": lambda to: torch.nn.functional.one_hot(to(torch.tensor([0, 2])), 3),
    "interpolate": lambda to: torch.nn.functional.interpolate(
        to(torch.arange(4.0).view(1, 1, 4)), scale_factor=2, mode="linear"
    ),
    "addmv with beta zero": lambda to: torch.addmv(
        to(torch.full((2,), float("nan"))), to(torch.eye(2)), to(torch.ones(2)), beta=0
    ),
    "linalg of zero size": lambda to: torch.linalg.inv(to(torch.empty(0, 3, 3))),
    "triu of batch": lambda to: to(torch.ones(2, 3, 3)).triu(1),
}


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_cpu(device: torch.device, name: str) -> None:
    wanted = CASES[name](lambda tensor: tensor)
    mine = CASES[name](lambda tensor: tensor.to(device))
    for tensor in mine if isinstance(mine, list) else [mine]:
        assert tensor.device == device
    assert_same(mine, wanted)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("value", ["tensor", "scalar tensor", "host scalar"])
def test_index_put(device: torch.device, accumulate: bool, value: str) -> None:
    results = []
    for place in ("cpu", device):
        base = torch.zeros(4, 3, device=place)
        values = {
            "tensor": torch.arange(1.0, 4.0, device=place),
            "scalar tensor": torch.tensor(5.0, device=place),
            "host scalar": torch.tensor(5.0),
        }[value]
        indices = torch.tensor([0, 2, 0], device=place), torch.tensor([1, 1, 1], device=place)
        if accumulate or value != "tensor":
            assert base.index_put_(indices, values, accumulate=accumulate) is base
        else:
            base.index_put_((indices[0][:2], indices[1][:2]), values[:2])
        results.append(base)
    assert_same(results[1], results[0])


def test_assignment_by_index_in_every_form(device: torch.device) -> None:
    results = []
    for place in ("cpu", device):
        base = torch.arange(24.0, device=place).view(2, 3, 4)
        base[0, 1] = 7
        base[:, torch.tensor([0, 2], device=place), 1] = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=place)
        base[base > 20] = -1
        base[..., 3] = torch.tensor(9.0)
        base[1, None, 2] = torch.ones(4)
        base[0][0][0] += 100
        results.append(base)
    assert_same(results[1], results[0])


@pytest.mark.parametrize("size", [(3,), (5,), (0,)])
def test_out_is_resized_with_pytorchs_warning(device: torch.device, size: tuple[int, ...]) -> None:
    a = torch.arange(3.0, device=device)
    out = torch.full(size, -1.0, device=device)
    if size == (5,):
        with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
            torch.add(a, 1, out=out)
    else:
        torch.add(a, 1, out=out)
    assert out.tolist() == [1.0, 2.0, 3.0]


def test_out_of_strided_view_fills_only_the_view(device: torch.device) -> None:
    base = torch.full((3, 6), -1.0, device=device)
    result = torch.mm(
        torch.eye(3, device=device), torch.arange(9.0, device=device).view(3, 3), out=base[:, ::2]
    )
    assert base[:, 1::2].unique().tolist() == [-1.0]
    assert torch.equal(base[:, ::2].cpu(), torch.arange(9.0).view(3, 3))
    assert result.data_ptr() == base.data_ptr()


def test_out_of_several_tensors(device: torch.device) -> None:
    values, indices = torch.empty(0, device=device), torch.empty(0, dtype=torch.int64, device=device)
    result = torch.sort(torch.tensor([3.0, 1.0], device=device), out=(values, indices))
    assert result[0] is values or result[0].data_ptr() == values.data_ptr()
    assert (values.tolist(), indices.tolist()) == ([1.0, 3.0], [1, 0])


def test_out_of_wrong_type_or_device_is_refused(device: torch.device) -> None:
    a = torch.ones(3, device=device)
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(a, 0.5, out=torch.empty(3, dtype=torch.int64, device=device))
    with pytest.raises(RuntimeError, match="device"):
        torch.add(a, a, out=torch.empty(3))
    with pytest.raises(RuntimeError, match="device"):
        torch.mm(torch.eye(2), torch.eye(2), out=torch.empty(2, 2, device=device))


def test_overlap_of_out_and_input_is_refused(device: torch.device) -> None:
    base = torch.arange(6.0, device=device)
    with pytest.raises(RuntimeError, match=r"overlap|memory location"):
        torch.add(base[:-1], 1, out=base[1:])


def test_in_place_on_every_kind_of_view(device: torch.device) -> None:
    results = []
    for place in ("cpu", device):
        base = torch.arange(1.0, 25.0, device=place).view(4, 6)
        base.t()[1:3].mul_(2)
        base[::2, ::3].sqrt_()
        base.diagonal().zero_()
        base[1].clamp_(max=5)
        base[:, 0].copy_(base[:, 1])
        base[2:].sort(1)
        base.view(-1)[5:9].cumsum_(0)
        results.append(base)
    assert_same(results[1], results[0])


def test_in_place_that_would_change_type_is_refused(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.ones(2, dtype=torch.int64, device=device).mul_(0.5)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 3)])
def test_operators_on_nothing(device: torch.device, shape: tuple[int, ...]) -> None:
    host = torch.empty(shape)
    mine = host.to(device)
    functions: list[Case] = [
        lambda t: t + 1,
        lambda t: t.sum(),
        lambda t: t.sum(0),
        lambda t: t.relu(),
        lambda t: t.softmax(0),
    ]
    functions += [
        lambda t: t.t() if t.dim() == 2 else t,
        lambda t: torch.cat([t, t]),
        lambda t: t.sort().values,
        lambda t: t.clone(),
    ]
    for function in functions:
        assert_same(function(mine), function(host))
    for place in (mine, host):
        with pytest.raises((RuntimeError, IndexError)):
            place.max()


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")  # torch 2.11
@pytest.mark.xfail(
    raises=NotImplementedError, reason="core has no sparse layouts on the device yet (issue 5)", strict=True
)
def test_sparse_tensors_work_or_are_refused_in_words(device: torch.device) -> None:
    host = torch.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 2), check_invariants=False)
    mine = host.to(device)
    assert mine.device == device
    assert torch.equal(mine.to_dense().cpu(), host.to_dense())
    assert_same(torch.sparse.mm(mine, torch.eye(2, device=device)), torch.sparse.mm(host, torch.eye(2)))
    assert_same(mine.coalesce().values(), host.coalesce().values())
    assert torch.equal(torch.eye(2, device=device).to_sparse().to_dense().cpu(), torch.eye(2))


def test_nested_tensors_of_jagged_layout(device: torch.device) -> None:
    parts = [torch.ones(2, 3, device=device), torch.ones(4, 3, device=device)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
    assert nested.device == device
    assert (nested * 2).values().sum().item() == 36.0


def test_custom_operator_of_another_library(device: torch.device) -> None:
    @torch.library.custom_op("torch_fl_kit::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    result = torch.ops.torch_fl_kit.twice(torch.ones(3, device=device))
    assert result.device == device
    assert result.tolist() == [2.0] * 3


@pytest.mark.filterwarnings("ignore::torch_fl_base.routes.fallback.FallbackWarning")
def test_operator_with_cpu_kernel_only_is_served(device: torch.device) -> None:
    library = torch.library.Library("torch_fl_kit_host", "FRAGMENT")
    library.define("plus_one(Tensor x) -> Tensor")
    library.impl("plus_one", lambda x: x + 1, "CPU")
    result = torch.ops.torch_fl_kit_host.plus_one(torch.ones(3, device=device))
    assert result.device == device
    assert result.tolist() == [2.0] * 3


__all__ = exported(globals())
