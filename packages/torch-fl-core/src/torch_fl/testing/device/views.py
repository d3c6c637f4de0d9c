"""Views: every view operator shares memory as on CPU, writes go through, errors are CPU's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torch_fl.testing.device.support import companion_of, exported

View = Callable[[torch.Tensor], torch.Tensor]

# Of a contiguous float tensor [4, 6, 8].
VIEWS: dict[str, View] = {
    "alias": lambda t: torch.ops.aten.alias(t),
    "as_strided": lambda t: t.as_strided((3, 5), (7, 2), 4),
    "chunk": lambda t: t.chunk(3, 1)[2],
    "detach": lambda t: t.detach(),
    "diagonal": lambda t: t.diagonal(1, 1, 2),
    "expand": lambda t: t[:, :1].expand(4, 6, 8),
    "flatten": lambda t: t.flatten(1),
    "hsplit": lambda t: t.hsplit(2)[1],
    "index by int": lambda t: t[2],
    "index by slice": lambda t: t[1:, ::2, -3:],
    "index by none": lambda t: t[None, ..., 0],
    "movedim": lambda t: t.movedim(0, 2),
    "narrow": lambda t: t.narrow(2, 3, 4),
    "permute": lambda t: t.permute(2, 0, 1),
    "reshape": lambda t: t.reshape(8, 24),
    "select": lambda t: t.select(1, 5),
    "split": lambda t: t.split([1, 5], 1)[1],
    "squeeze": lambda t: t[:, :1].squeeze(1),
    "swapaxes": lambda t: t.swapaxes(0, 1),
    "t": lambda t: t[0].t(),
    "tensor_split": lambda t: t.tensor_split(3, 2)[1],
    "transpose": lambda t: t.transpose(1, 2),
    "unbind": lambda t: t.unbind(1)[3],
    "unflatten": lambda t: t.unflatten(2, (2, 4)),
    "unfold": lambda t: t.unfold(2, 3, 2),
    "unsqueeze": lambda t: t.unsqueeze(1),
    "view": lambda t: t.view(24, 8),
    "view of dtype": lambda t: t.view(torch.int32),
    "view of smaller dtype": lambda t: t.view(torch.int16),
    "view of larger dtype": lambda t: t.view(torch.float64),
    "view_as": lambda t: t.view_as(torch.empty(2, 12, 8, device=t.device)),
    "vsplit": lambda t: t.vsplit(2)[1],
    "view_as_complex": lambda t: torch.view_as_complex(t.view(4, 6, 4, 2)),
    "real of complex": lambda t: torch.view_as_complex(t.view(4, 6, 4, 2)).real,
    "imag of complex": lambda t: torch.view_as_complex(t.view(4, 6, 4, 2)).imag,
    "mT": lambda t: t.mT,
    "lift_fresh": lambda t: torch.ops.aten.lift_fresh(t),
}


def _base() -> torch.Tensor:
    return torch.arange(192.0).view(4, 6, 8).clone()


@pytest.mark.parametrize("name", VIEWS)
def test_view_has_cpus_form_and_memory(device: torch.device, name: str) -> None:
    host, mine = _base(), _base().to(device)
    wanted, view = VIEWS[name](host), VIEWS[name](mine)
    assert view.device == mine.device
    assert (view.shape, view.stride(), view.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)
    assert view.storage_offset() == wanted.storage_offset()
    assert view.untyped_storage().data_ptr() == mine.untyped_storage().data_ptr()
    assert view.data_ptr() - mine.data_ptr() == wanted.data_ptr() - host.data_ptr()
    assert view._is_view() == wanted._is_view()
    assert torch.equal(view.cpu(), wanted)


@pytest.mark.parametrize("name", [name for name in VIEWS if name != "expand"])
def test_write_through_view_changes_the_base_as_on_cpu(device: torch.device, name: str) -> None:
    if name == "unfold" and companion_of(0) is not None:
        pytest.skip("what a parallel kernel leaves where its writes overlap is undefined")
    host, mine = _base(), _base().to(device)
    for base in (host, mine):
        VIEWS[name](base).fill_(3)
    assert torch.equal(mine.cpu().view(torch.int32), host.view(torch.int32))
    for base in (host, mine):
        VIEWS[name](base).mul_(2).add_(1)
    assert torch.equal(mine.cpu().view(torch.int32), host.view(torch.int32))


@pytest.mark.parametrize(
    "name", [name for name in VIEWS if name not in ("expand", "detach", "alias", "lift_fresh")]
)
def test_view_sees_a_write_to_the_base(device: torch.device, name: str) -> None:
    host, mine = _base(), _base().to(device)
    wanted, view = VIEWS[name](host), VIEWS[name](mine)
    host.neg_()
    mine.neg_()
    assert torch.equal(view.cpu(), wanted)
    assert view._version == wanted._version


@pytest.mark.parametrize(
    "name",
    [
        "as_strided",
        "diagonal",
        "expand",
        "index by slice",
        "narrow",
        "permute",
        "select",
        "unfold",
        "view",
        "unbind",
    ],
)
def test_gradient_through_view_is_cpus(device: torch.device, name: str) -> None:
    grads = []
    for place in ("cpu", device):
        leaf = _base().to(place).requires_grad_()
        (VIEWS[name](leaf) ** 2).sum().backward()
        assert leaf.grad is not None
        grads.append(leaf.grad.cpu())
    assert torch.equal(grads[0], grads[1])


def test_chain_of_views_shares_one_storage(device: torch.device) -> None:
    base = torch.arange(240.0, device=device)
    view = base.view(4, 60)[1:].transpose(0, 1)[::3].unsqueeze(0).squeeze(0).narrow(1, 1, 2)
    wanted = torch.arange(240.0).view(4, 60)[1:].transpose(0, 1)[::3].unsqueeze(0).squeeze(0).narrow(1, 1, 2)
    assert view.untyped_storage()._cdata == base.untyped_storage()._cdata
    assert torch.equal(view.cpu(), wanted)
    view.zero_()
    assert base.sum().item() == 240 * 239 / 2 - wanted.sum().item()


def test_reshape_copies_only_where_it_must(device: torch.device) -> None:
    base = torch.arange(24.0, device=device).view(4, 6)
    assert base.reshape(6, 4).data_ptr() == base.data_ptr()
    assert base.t().reshape(24).data_ptr() != base.data_ptr()
    assert torch.equal(base.t().reshape(24).cpu(), torch.arange(24.0).view(4, 6).t().reshape(24))


def test_view_of_shape_that_does_not_fit_is_refused_as_on_cpu(device: torch.device) -> None:
    for place in ("cpu", device):
        tensor = torch.zeros(4, 6, device=place)
        with pytest.raises(RuntimeError, match=r"shape '\[5, 5\]' is invalid for input of size 24"):
            tensor.view(5, 5)
        with pytest.raises(RuntimeError, match=r"view size is not compatible.*Use \.reshape"):
            tensor.t().view(24)
        with pytest.raises(RuntimeError, match=r"self.size\(-1\) must be divisible by|must be divisible"):
            torch.zeros(3, device=place).view(torch.float64)


def test_as_strided_out_of_bounds_is_refused(device: torch.device) -> None:
    for place in ("cpu", device):
        with pytest.raises(RuntimeError, match="out of bounds for storage"):
            torch.zeros(4, device=place).as_strided((4, 4), (4, 1))


def test_conj_view_is_lazy_and_writes_through(device: torch.device) -> None:
    base = torch.tensor([1 + 1j, 2 + 2j], device=device)
    view = base.conj()
    assert view.is_conj()
    assert view.data_ptr() == base.data_ptr()
    view.mul_(1j)
    wanted = torch.tensor([1 + 1j, 2 + 2j])
    wanted.conj().mul_(1j)
    assert torch.equal(base.cpu(), wanted)
    assert torch.equal(view.cpu().resolve_conj(), wanted.conj().resolve_conj())


def test_negative_view_is_resolved_by_operators(device: torch.device) -> None:
    base = torch.tensor([1 + 2j, 3 + 4j], device=device)
    negative = base.conj().imag
    assert negative.is_neg()
    assert (negative + 0).tolist() == [-2.0, -4.0]
    assert torch.mm(negative.view(1, 2), negative.view(2, 1)).item() == 20.0


def test_in_place_on_view_of_leaf_is_refused_with_autograds_words(device: torch.device) -> None:
    leaf = torch.zeros(3, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        leaf[1:].add_(1)


def test_in_place_on_overlapping_view_is_refused(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.zeros(1, device=device).expand(3).add_(1)


def test_resize_of_view_grows_the_storage_it_shares(device: torch.device) -> None:
    base = torch.arange(4.0, device=device)
    before = base.untyped_storage().nbytes()
    base.resize_(100)
    assert base.untyped_storage().nbytes() >= 400 > before
    assert base[:4].tolist() == [0.0, 1.0, 2.0, 3.0]
    base.resize_(2, 2)
    assert base.tolist() == [[0.0, 1.0], [2.0, 3.0]]


def test_set_shares_the_source_storage(device: torch.device) -> None:
    source, target = torch.arange(6.0, device=device), torch.zeros(2, device=device)
    target.set_(source.untyped_storage(), 1, (2, 2), (2, 1))
    assert target.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    target.fill_(9)
    assert source.tolist() == [0.0, 9.0, 9.0, 9.0, 9.0, 5.0]
    target.set_(source)
    assert target.data_ptr() == source.data_ptr()
    target.set_()
    assert target.numel() == 0
    assert target.device == source.device


def test_data_assignment_swaps_memory(device: torch.device) -> None:
    parameter = torch.nn.Parameter(torch.zeros(3, device=device))
    parameter.data = torch.ones(5, device=device)
    assert parameter.tolist() == [1.0] * 5
    assert parameter.requires_grad


__all__ = exported(globals())
