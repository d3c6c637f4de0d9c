"""How operators run on the host: what the caller's tensors look like during and after a call."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import torch_fl

DEVICE = "flagos"


def _allocated() -> int:
    """Return the bytes in use, without what tests before left in cycles."""
    gc.collect()
    return int(torch.flagos.memory_allocated())


def counts() -> dict[tuple[str, str], int]:
    """Calls by (operator, source)."""
    return {(op, source): calls for op, source, _, calls, *_ in torch_fl._C.ops.counters()}


def test_every_operator_with_a_cpu_kernel_has_one_of_ours() -> None:
    missing = [
        name
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
        and torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")
        and not torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1")
    ]
    # Results of other keys (nested, quantized), or asked for by device type (attention's choice).
    assert {name.removeprefix("aten::").partition(".")[0] for name in missing} <= {
        "_nested_view_from_buffer",
        "_nested_view_from_buffer_copy",
        "_empty_affine_quantized",
        "_empty_per_channel_affine_quantized",
        "_fused_sdp_choice",
    }


def test_the_hot_list_is_unboxed() -> None:
    registered = torch_fl._C.ops.registered()
    assert registered["hot"] > 250
    assert registered["boxed"] > 700


def test_calls_are_counted_by_operator_and_source() -> None:
    x = torch.ones(3, device=DEVICE)
    torch_fl._C.ops.reset_counters()
    for _ in range(5):
        x + x
    assert counts()["aten::add.Tensor", "cpu"] == 5
    torch_fl._C.ops.reset_counters()
    assert ("aten::add.Tensor", "cpu") not in counts()


def test_result_lies_in_device_memory() -> None:
    before = _allocated()
    x = torch.ones(1 << 18, device=DEVICE)
    y = x * 2
    assert torch.flagos.memory_allocated() - before == 2 * x.untyped_storage().nbytes()
    assert y.untyped_storage().device == y.device == torch.device(DEVICE, 0)
    del x, y
    assert torch.flagos.memory_allocated() == before


def test_temporaries_of_a_kernel_leave_nothing_behind() -> None:
    torch.flagos.synchronize()
    before = _allocated()
    conv = torch.nn.Conv2d(3, 8, 3).to(DEVICE)
    image = torch.randn(2, 3, 16, 16, device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        torch.nn.functional.gelu(conv(image)).float().sum().backward()
    conv.zero_grad(set_to_none=True)
    del conv, image
    assert torch.flagos.memory_allocated() == before


def test_out_with_resize_reaches_the_callers_tensor() -> None:
    x = torch.arange(12.0, device=DEVICE).view(3, 4)
    out = torch.empty(0, device=DEVICE)
    address = torch.add(x, x, out=out).data_ptr()
    assert out.shape == (3, 4)
    assert out.data_ptr() == address
    assert out.device == x.device
    assert out.untyped_storage().device == x.device
    assert out.cpu().equal(x.cpu() * 2)


def test_out_that_is_too_small_warns_and_grows() -> None:
    x = torch.arange(12.0, device=DEVICE)
    out = torch.empty(2, device=DEVICE)
    with pytest.warns(UserWarning, match="resized"):
        torch.mul(x, 3, out=out)
    assert out.cpu().equal(x.cpu() * 3)


def test_strided_out_is_written_in_place() -> None:
    buffer = torch.zeros(4, 6, device=DEVICE)
    torch.mm(torch.ones(4, 2, device=DEVICE), torch.ones(2, 3, device=DEVICE), out=buffer[:, ::2])
    expected = torch.zeros(4, 6)
    expected[:, ::2] = 2
    assert buffer.cpu().equal(expected)


def test_in_place_composite_refuses_to_broadcast_self() -> None:
    x = torch.ones(5, 1, device=DEVICE)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        x.logical_and_(torch.ones(5, 5, device=DEVICE))
    assert x.shape == (5, 1)


def test_in_place_operators_count_versions() -> None:
    tensors = [torch.ones(3, device=DEVICE) for _ in range(2)]
    versions = [t._version for t in tensors]
    torch._foreach_add_(tensors, 1.0)
    tensors[0].mul_(2)
    assert [t._version for t in tensors] == [versions[0] + 2, versions[1] + 1]


def test_change_of_a_saved_tensor_is_found_in_backward() -> None:
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_tensors_of_two_devices_are_refused_by_name() -> None:
    x = torch.ones(3, device=f"{DEVICE}:0")
    with pytest.raises(RuntimeError, match=r"flagos:0 and cpu! \(aten::add\.Tensor\)"):
        x + torch.ones(3)
    with pytest.raises(RuntimeError, match="flagos:0 and flagos:1"):
        torch.mm(x.view(1, 3), torch.ones(3, 1, device=f"{DEVICE}:1"))


def test_host_tensor_cannot_hold_a_devices_result() -> None:
    number = torch.tensor(1.0)
    with pytest.raises(RuntimeError, match="same device"):
        number.add_(torch.tensor(2.0, device=DEVICE))
    assert number.item() == 1.0


@pytest.mark.parametrize("number", [2, 2.5, True, torch.tensor(3.0), torch.tensor(3, dtype=torch.int16)])
def test_numbers_mix_with_device_tensors_as_on_the_cpu(number: float | Tensor) -> None:
    x = torch.arange(4, dtype=torch.int32)
    on_device = 1 - number * x.to(DEVICE)
    assert on_device.device.type == DEVICE
    torch.testing.assert_close(on_device.cpu(), 1 - number * x)


def test_indices_of_the_host_are_taken() -> None:
    table = torch.arange(12.0, device=DEVICE).view(4, 3)
    rows = torch.tensor([2, 0])
    assert table[rows].cpu().equal(table.cpu()[rows])
    table[rows] = -1.0
    assert table.cpu()[rows].eq(-1).all()


def test_operator_without_any_kernel_is_named() -> None:
    x = torch.ones(2, device=DEVICE)
    with pytest.raises(NotImplementedError, match=r"aten::_values.*Asked: cpu"):
        torch.ops.aten._values(x)


def test_operators_that_others_register_later_work() -> None:
    library = torch.library.Library("flagos_test_late", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    x = torch.ones(3, device=DEVICE)
    assert torch.ops.flagos_test_late.twice(x).cpu().equal(torch.full((3,), 2.0))
    assert counts()["flagos_test_late::twice", "cpu"] >= 1


def test_eight_threads_share_tensors_with_backward_running() -> None:
    a = torch.randn(32, 32, device=DEVICE, requires_grad=True)
    b = torch.randn(32, 32, device=DEVICE, requires_grad=True)
    expected = torch.autograd.grad(((a.cpu() @ b.cpu()).relu() + a.cpu()).sum(), [a])[0]
    failures: list[str] = []

    def work() -> None:
        try:
            for _ in range(100):
                (grad,) = torch.autograd.grad(((a @ b).relu() + a).sum(), [a])
                if a.device.type != DEVICE or grad.device.type != DEVICE:
                    failures.append(f"devices {a.device}, {grad.device}")
                torch.testing.assert_close(grad.cpu(), expected.cpu())
        except Exception as error:  # noqa: BLE001  (any failure of a thread is a finding)
            failures.append(repr(error))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_allocations_of_the_host_stay_the_hosts() -> None:
    torch.ones(3, device=DEVICE) + 1  # the region's allocator is in place from here on
    before = _allocated()
    host = torch.ones(1 << 16)
    assert torch.flagos.memory_allocated() == before
    host.resize_(1 << 18)
    assert host.device.type == "cpu"
    assert torch.flagos.memory_allocated() == before


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script.*:DeprecationWarning"
)  # torch's own, in forward-mode AD
def test_tangents_that_stand_for_zeros_are_copied_as_zeros() -> None:
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        matrix = torch.ones(3, 0, 0, dtype=torch.float64, device=DEVICE)
        dual = forward_ad.make_dual(matrix, torch.ones_like(matrix))
        assert (
            forward_ad.unpack_dual(torch.logdet(dual))
            .tangent.cpu()
            .equal(torch.zeros(3, dtype=torch.float64))
        )
    zeros = torch._efficientzerotensor((3,), device=DEVICE)
    assert torch.ones(3, device=DEVICE).copy_(zeros).cpu().equal(torch.zeros(3))
    assert (torch.ones(3, device=DEVICE) + zeros).cpu().equal(torch.ones(3))


def test_foreach_lists_may_span_devices() -> None:
    tensors = [torch.ones(2, device=f"{DEVICE}:{i % 2}") for i in range(4)]
    torch._foreach_add_(tensors, 1.0)
    sums = torch._foreach_add(tensors, tensors)
    assert [t.device.index for t in sums] == [0, 1, 0, 1]
    assert all(t.cpu().equal(torch.full((2,), 4.0)) for t in sums)
    norms = torch._foreach_norm(tensors, 1.0)
    assert [n.item() for n in norms] == [4.0] * 4


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda x: x.to_sparse(), "sparse"),
        (
            lambda x: torch.sparse_coo_tensor(
                torch.zeros(1, 1, dtype=torch.long, device=DEVICE), x[:1], (3,)
            ),
            "sparse",
        ),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8), "quantized"),
    ],
)
def test_layouts_that_the_device_does_not_hold_are_refused_in_words(
    make: Callable[[Tensor], Tensor], kind: str
) -> None:
    with pytest.raises(NotImplementedError, match=f"flagos: .*{kind}.*CPU"):
        make(torch.ones(3, device=DEVICE))


@pytest.mark.parametrize(
    "dtype", [torch.int32, torch.int64, torch.uint8, torch.bool, torch.float32, torch.complex64]
)
def test_deterministic_mode_fills_new_memory_as_on_the_cpu(dtype: torch.dtype) -> None:
    def fill(device: str) -> list[torch.Tensor]:
        return [
            torch.empty(3, dtype=dtype, device=device),
            torch.empty_strided((2, 2), (1, 2), dtype=dtype, device=device),
            torch.ones(2, dtype=dtype, device=device).resize_(5),
        ]

    torch.use_deterministic_algorithms(True)
    try:
        for ours, theirs in zip(fill(DEVICE), fill("cpu"), strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=0, equal_nan=True)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("to", "source"), [(DEVICE, "cpu"), ("cpu", DEVICE), (DEVICE, f"{DEVICE}:1"), (DEVICE, DEVICE)]
)
def test_foreach_copy_crosses_devices_as_copy_does(to: str, source: str) -> None:
    targets = [torch.zeros(3, device=to), torch.zeros(2, 2, device=to)]
    sources = [torch.arange(3.0, device=source), torch.ones(2, 2, device=source)]
    torch._foreach_copy_(targets, sources)
    for target, wanted in zip(targets, sources, strict=True):
        assert target.device.type == torch.device(to).type
        assert torch.equal(target.cpu(), wanted.cpu())


@pytest.mark.parametrize(
    "name", ["_foreach_addcdiv", "_foreach_addcmul", "_foreach_addcdiv_", "_foreach_addcmul_"]
)
def test_foreach_takes_its_scalars_from_the_host(name: str) -> None:
    def run(device: str) -> list[torch.Tensor]:
        lists = [
            [torch.full((3,), value, device=device), torch.ones(2, device=device)]
            for value in (1.0, 2.0, 4.0)
        ]
        result = getattr(torch, name)(*lists, torch.tensor([0.5, 3.0]))
        return lists[0] if result is None else list(result)

    for ours, theirs in zip(run(DEVICE), run("cpu"), strict=True):
        assert torch.equal(ours.cpu(), theirs)
