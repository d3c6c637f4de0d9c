"""Copies: all pairs of host, pinned host, device, other device, other backend; layouts, types, overlap,
order, asynchrony."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_fl.testing.device.support import exported, module, reference_device

PLACES = ("host", "pinned", "device", "second", "foreign")
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.complex128,
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
)


def place(tensor: torch.Tensor, where: str, request: pytest.FixtureRequest) -> torch.Tensor:
    """Return a CPU tensor's double at a place, with the same strides; skips if there is no such place."""
    if where == "host":
        return tensor.clone()
    if where == "pinned":
        return tensor.pin_memory()
    fixture = {"device": "device", "second": "second_device", "foreign": "foreign_device"}[where]
    return tensor.to(request.getfixturevalue(fixture), copy=True)


def host_values(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return [count] distinct small numbers, or truths."""
    if dtype == torch.bool:
        return torch.arange(count) % 3 == 0
    return (torch.arange(count) % 117 - (0 if not dtype.is_signed else 40)).to(dtype)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(PLACES, PLACES)))
@pytest.mark.parametrize("non_blocking", [False, True])
def test_copy_between_places_keeps_every_byte(
    device: torch.device, source: str, target: str, non_blocking: bool, request: pytest.FixtureRequest
) -> None:
    values = host_values(10_007)
    from_, to = place(values, source, request), place(torch.zeros(10_007), target, request)
    assert to.copy_(from_, non_blocking=non_blocking) is to
    for index in range(module().device_count()):
        module().synchronize(index)
    assert torch.equal(to.cpu(), values)
    assert torch.equal(from_.cpu(), values), "the source changed"


def _layouts() -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """Functions from a [12, 14] tensor to a [6, 6] view of it."""
    return {
        "contiguous": lambda t: t.view(-1)[:36].view(6, 6),
        "rows": lambda t: t[::2, :6],
        "columns": lambda t: t[:6, 1:12:2],
        "transposed": lambda t: t.t()[2:8, 3:9],
        "offset": lambda t: t[5:11, 7:13],
    }


@pytest.mark.parametrize(("source", "target"), list(itertools.product(PLACES, PLACES)))
@pytest.mark.parametrize("source_layout", list(_layouts()))
@pytest.mark.parametrize("target_layout", ["contiguous", "columns", "transposed"])
def test_copy_between_layouts_writes_only_the_view(
    device: torch.device,
    source: str,
    target: str,
    source_layout: str,
    target_layout: str,
    request: pytest.FixtureRequest,
) -> None:
    layouts = _layouts()
    from_host, to_host = host_values(168).view(12, 14), -host_values(168).view(12, 14) - 500
    from_, to = place(from_host, source, request), place(to_host, target, request)
    layouts[target_layout](to).copy_(layouts[source_layout](from_))
    layouts[target_layout](to_host).copy_(layouts[source_layout](from_host))
    assert torch.equal(to.cpu(), to_host)


@pytest.mark.parametrize(
    "places", [("host", "device"), ("device", "host"), ("device", "device"), ("device", "second")]
)
@pytest.mark.parametrize("from_dtype", DTYPES, ids=str)
def test_copy_converts_every_pair_of_types_as_the_reference(
    device: torch.device, places: tuple[str, str], from_dtype: torch.dtype, request: pytest.FixtureRequest
) -> None:
    values = host_values(200, from_dtype)
    from_ = place(values, places[0], request)
    twins = [reference_device() if place != "host" else torch.device("cpu") for place in places]
    for to_dtype in DTYPES:
        if from_dtype.is_complex and not to_dtype.is_complex:
            continue  # drops the imaginary part with a warning; see the test of it below
        to = place(torch.zeros(200).to(to_dtype), places[1], request)
        to.copy_(from_)
        wanted = torch.zeros(200).to(to_dtype).to(twins[1]).copy_(values.to(twins[0])).cpu()
        mine = to.cpu()
        assert torch.equal(mine.view(torch.uint8), wanted.view(torch.uint8)), (from_dtype, to_dtype)


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.uint8],
    ids=str,
)
def test_conversion_of_extreme_numbers_is_the_references(device: torch.device, dtype: torch.dtype) -> None:
    edges = [0.0, -0.0, 1e-45, 6e-8, 0.1, 1.0, 127.0, 448.0, 449.0, 57344.0, 65504.0, 65520.0, 3.4e38]
    if dtype.is_floating_point:
        edges += [float("inf"), float("nan")]
    else:
        edges = [edge for edge in edges if edge < 127.5]  # beyond, C++ leaves the conversion undefined
    values = torch.tensor([*edges, *(-edge for edge in edges if dtype.is_signed)])
    mine = values.to(device).to(dtype).cpu()
    wanted = values.to(reference_device()).to(dtype).cpu()
    assert torch.equal(mine.view(torch.uint8), wanted.view(torch.uint8))


def test_copy_of_complex_to_real_warns_and_drops_the_imaginary_part(device: torch.device) -> None:
    values = torch.tensor([1 + 2j, 3 - 4j], device=device)
    target = torch.zeros(2, device=device)
    with pytest.warns(UserWarning, match="discards the imaginary part"):
        target.copy_(values)
    assert target.tolist() == [1.0, 3.0]


def test_copy_broadcasts_source(device: torch.device) -> None:
    target = torch.zeros(3, 4, device=device)
    target.copy_(torch.arange(4.0, device=device))
    assert torch.equal(target.cpu(), torch.arange(4.0).expand(3, 4))
    target.copy_(torch.arange(3.0).view(3, 1))
    assert torch.equal(target.cpu(), torch.arange(3.0).view(3, 1).expand(3, 4))


def test_copy_of_expanded_tensor_to_host_and_back(device: torch.device) -> None:
    expanded = torch.arange(3.0, device=device).view(3, 1).expand(3, 5)
    assert torch.equal(expanded.cpu(), torch.arange(3.0).view(3, 1).expand(3, 5))
    assert torch.equal(torch.arange(5.0).expand(2, 5).to(device).cpu(), torch.arange(5.0).expand(2, 5))


def test_copy_into_expanded_tensor_is_refused(device: torch.device) -> None:
    expanded = torch.zeros(3, 1, device=device).expand(3, 5)
    with pytest.raises(RuntimeError, match="single memory location"):
        expanded.copy_(torch.ones(3, 5, device=device))


def test_copy_of_shapes_that_do_not_broadcast_is_refused(device: torch.device) -> None:
    for source in (torch.ones(2), torch.ones(2, device=device)):
        with pytest.raises(RuntimeError, match=r"size of tensor|must match|expanded size"):
            torch.zeros(3, device=device).copy_(source)
    with pytest.raises(RuntimeError, match=r"size of tensor|must match|expanded size"):
        torch.zeros(3).copy_(torch.ones(2, device=device))


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), ()])
def test_copy_of_nothing_and_of_one(
    device: torch.device, shape: tuple[int, ...], request: pytest.FixtureRequest
) -> None:
    values = torch.full(shape, 3.5)
    moved = values.to(device)
    assert moved.shape == values.shape
    assert torch.equal(moved.cpu(), values)
    assert torch.equal(moved.clone().cpu(), values)


def test_copy_to_itself_changes_nothing(device: torch.device) -> None:
    tensor = torch.arange(10.0, device=device)
    assert tensor.copy_(tensor) is tensor
    assert torch.equal(tensor.cpu(), torch.arange(10.0))


@pytest.mark.parametrize("shift", [1, 7, 64])
def test_copy_between_overlapping_views_is_cpus(device: torch.device, shift: int) -> None:
    host = torch.arange(512.0)
    mine = host.to(device)

    def shifted(tensor: torch.Tensor) -> torch.Tensor | str:
        try:
            tensor[shift:].copy_(tensor[:-shift].clone())
            tensor[:-shift].copy_(tensor[shift:])
        except RuntimeError as error:
            return str(error)
        return tensor

    wanted, found = shifted(host), shifted(mine)
    if isinstance(wanted, str):
        assert found == wanted
    else:
        assert isinstance(found, torch.Tensor)
        assert torch.equal(found.cpu(), wanted)


def test_copy_of_transposed_self_is_right(device: torch.device) -> None:
    host = torch.arange(36.0).view(6, 6)
    mine = host.to(device)
    mine.copy_(mine.t().clone())
    assert torch.equal(mine.cpu(), host.t())


def test_conjugate_and_negative_bits_are_resolved_by_copies(device: torch.device) -> None:
    host = torch.randn(40, dtype=torch.complex64)
    mine = host.to(device)
    assert mine.conj().is_conj()
    assert torch.equal(mine.conj().cpu().resolve_conj(), host.conj().resolve_conj())
    assert torch.equal(mine.conj().imag.cpu().resolve_neg(), host.conj().imag.resolve_neg())
    target = torch.zeros(40, dtype=torch.complex64, device=device)
    target.copy_(host.conj())
    assert torch.equal(target.cpu(), host.conj().resolve_conj())
    back = torch.zeros(40, dtype=torch.complex64)
    back.copy_(mine.conj())
    assert torch.equal(back, host.conj().resolve_conj())
    target.conj().copy_(mine)
    assert torch.equal(target.cpu(), host.conj().resolve_conj())


@pytest.mark.parametrize(
    "memory_format", [torch.channels_last, torch.contiguous_format, torch.preserve_format]
)
def test_to_and_clone_keep_or_set_the_memory_format(device: torch.device, memory_format: Any) -> None:
    host = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    for make in (
        lambda t: t.clone(memory_format=memory_format),
        lambda t: t.to(t.dtype, copy=True, memory_format=memory_format),
    ):
        mine, wanted = make(host.to(device)), make(host)
        assert mine.stride() == wanted.stride()
        assert torch.equal(mine.cpu(), wanted)


def test_to_of_the_same_device_is_no_copy(device: torch.device) -> None:
    tensor = torch.ones(3, device=device)
    assert tensor.to(device) is tensor
    assert tensor.to("flagos") is tensor
    assert tensor.to(device, copy=True).data_ptr() != tensor.data_ptr()
    assert tensor.flagos() is tensor


def test_moves_are_differentiable(device: torch.device, second_device: torch.device) -> None:
    leaf = torch.arange(4.0, requires_grad=True)
    (leaf.to(device) * 2).to(second_device).double().cpu().sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.device.type == "cpu"
    assert leaf.grad.tolist() == [2.0] * 4


def test_large_copies_are_whole(device: torch.device) -> None:
    host = torch.arange(3_000_001, dtype=torch.int32)
    assert torch.equal(host.to(device).cpu(), host)
    assert torch.equal(host[1:].to(device).cpu(), host[1:])


def test_copy_from_pinned_does_not_wait_and_arrives(delays: Callable[..., str]) -> None:
    printed = delays(
        """
        import time, torch, torch_fl
        source = torch.arange(1000.).pin_memory()
        target = torch.zeros(1000, device="flagos")
        torch.flagos.synchronize()
        start = time.perf_counter()
        target.copy_(source, non_blocking=True)
        queued = time.perf_counter() - start
        torch.flagos.synchronize()
        done = time.perf_counter() - start
        assert queued < 0.1, f"the call took {queued:.3f} s: it waited for the copy"
        assert done > 0.25, f"synchronize came back after {done:.3f} s, before the copy's 0.3 s"
        assert torch.equal(target.cpu(), torch.arange(1000.))
        print("right")
        """,
        copy=300_000,
    )
    assert printed.strip() == "right"


def test_copy_to_pinned_does_not_wait_and_arrives(delays: Callable[..., str]) -> None:
    printed = delays(
        """
        import time, torch, torch_fl
        source = torch.arange(1000., device="flagos")
        target = torch.zeros(1000).pin_memory()
        torch.flagos.synchronize()
        start = time.perf_counter()
        target.copy_(source, non_blocking=True)
        event = torch.flagos.Event()
        event.record()
        queued = time.perf_counter() - start
        assert not event.query(), "the copy is over already; no delay was injected"
        event.synchronize()
        assert queued < 0.1, f"the call took {queued:.3f} s: it waited for the copy"
        assert torch.equal(target, torch.arange(1000.))
        print("right")
        """,
        copy=300_000,
    )
    assert printed.strip() == "right"


def test_blocking_copies_wait(delays: Callable[..., str]) -> None:
    printed = delays(
        """
        import torch, torch_fl
        pinned = torch.arange(1000.).pin_memory()
        mine = torch.zeros(1000, device="flagos")
        mine.copy_(pinned)
        back = torch.zeros(1000).pin_memory()
        back.copy_(mine)
        assert torch.equal(back, torch.arange(1000.)), "read before the copy was over"
        assert mine.sum().item() == 499500.0
        print("right")
        """,
        copy=100_000,
    )
    assert printed.strip() == "right"


def test_pageable_source_may_change_after_a_non_blocking_copy(delays: Callable[..., str]) -> None:
    printed = delays(
        """
        import torch, torch_fl
        source = torch.ones(1000)
        target = torch.zeros(1000, device="flagos")
        target.copy_(source, non_blocking=True)
        source.zero_()
        assert target.sum().item() == 1000.0, "the copy read the source after the call had returned"
        print("right")
        """,
        copy=100_000,
    )
    assert printed.strip() == "right"


def test_operator_after_a_queued_copy_sees_its_result(delays: Callable[..., str]) -> None:
    printed = delays(
        """
        import torch, torch_fl
        source = torch.ones(1000).pin_memory()
        target = torch.zeros(1000, device="flagos")
        target.copy_(source, non_blocking=True)
        doubled = target + target
        assert doubled.sum().item() == 2000.0
        target.copy_(source, non_blocking=True)
        target.mul_(3)
        assert target.sum().item() == 3000.0
        print("right")
        """,
        copy=100_000,
    )
    assert printed.strip() == "right"


def test_copies_on_two_streams_are_ordered_by_an_event(delays: Callable[..., str]) -> None:
    printed = delays(
        """
        import torch, torch_fl
        source = torch.ones(1000).pin_memory()
        middle, last = torch.zeros(1000, device="flagos"), torch.zeros(1000).pin_memory()
        first, second = torch.flagos.Stream(), torch.flagos.Stream()
        torch.flagos.synchronize()
        with torch.flagos.stream(first):
            middle.copy_(source, non_blocking=True)
            event = first.record_event()
        with torch.flagos.stream(second):
            second.wait_event(event)
            last.copy_(middle, non_blocking=True)
        second.synchronize()
        assert last.sum().item() == 1000.0, "the second copy did not wait for the first"
        print("right")
        """,
        copy=100_000,
    )
    assert printed.strip() == "right"


def test_copy_between_devices_waits_for_both_streams(delays: Callable[..., str]) -> None:
    printed = delays(
        """
        import torch, torch_fl
        source = torch.ones(1000).pin_memory()
        a, b = torch.zeros(1000, device="flagos:0"), torch.zeros(1000, device="flagos:1")
        torch.flagos.synchronize(0); torch.flagos.synchronize(1)
        a.copy_(source, non_blocking=True)      # queued on device 0
        b.copy_(a, non_blocking=True)           # must wait for it
        a.zero_()                               # must wait for the copy out of it
        assert b.sum().item() == 1000.0
        assert a.sum().item() == 0.0
        print("right")
        """,
        copy=100_000,
    )
    assert printed.strip() == "right"


def test_pinned_block_is_not_reused_while_a_copy_reads_it(delays: Callable[..., str]) -> None:
    printed = delays(
        """
        import torch, torch_fl
        target = torch.zeros(1000, device="flagos")
        torch.flagos.synchronize()
        source = torch.ones(1000).pin_memory()
        target.copy_(source, non_blocking=True)
        del source
        others = [torch.full((1000,), 7.).pin_memory() for _ in range(4)]
        assert target.sum().item() == 1000.0, "the pinned block was given away under a copy"
        print("right")
        """,
        copy=100_000,
    )
    assert printed.strip() == "right"


def test_pinned_memory_is_pinned(device: torch.device) -> None:
    pinned = torch.arange(10.0).pin_memory()
    assert pinned.is_pinned()
    assert pinned.device.type == "cpu"
    assert torch.equal(pinned, torch.arange(10.0))
    assert not torch.arange(10.0).is_pinned()
    assert torch.empty(4, pin_memory=True).is_pinned()
    assert pinned[2:5].is_pinned()
    assert pinned.pin_memory() is pinned


def test_pinning_a_device_tensor_is_refused(device: torch.device) -> None:
    assert not torch.ones(2, device=device).is_pinned()
    with pytest.raises(RuntimeError, match=r"[Cc]annot pin|only dense CPU"):
        torch.ones(2, device=device).pin_memory()


__all__ = exported(globals())
