"""Errors: mixed devices, host scalars, numbers, what numpy() says, out of memory, failures of the backend in
the middle."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torch_fl.testing.device.support import assert_same, companion_of, exported, module

MIXED: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "add": lambda a, b: a + b,
    "mul in place": lambda a, b: a.mul_(b),
    "mm": lambda a, b: torch.mm(a, b),
    "cat": lambda a, b: torch.cat([a, b]),
    "where": lambda a, b: torch.where(a > 0, a, b),
    "addmm": lambda a, b: torch.addmm(a, a, b),
    "linear": lambda a, b: torch.nn.functional.linear(a, b),
    "conv": lambda a, b: torch.conv2d(a[None, None], b[None, None]),
    "index_select": lambda a, b: torch.index_select(a, 0, b[0].long()),
    "gather": lambda a, b: torch.gather(a, 0, b.long()),
    "out": lambda a, b: torch.add(a, a, out=b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.5),
    "embedding": lambda a, b: torch.nn.functional.embedding(b.long() * 0, a),
    "layer_norm": lambda a, b: torch.nn.functional.layer_norm(a, (3,), b[0], b[0]),
    "foreach": lambda a, b: torch._foreach_add_([a], [b], alpha=2) or torch.add(a, b),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("order", ["device first", "host first"])
def test_host_and_device_do_not_mix(device: torch.device, name: str, order: str) -> None:
    pair = [torch.ones(3, 3, device=device), torch.ones(3, 3)]
    if order == "host first":
        pair.reverse()
    with pytest.raises(RuntimeError, match=r"(?i)device|should be the same|flagos.*cpu|cpu.*flagos"):
        MIXED[name](*pair)
    assert torch.ones(3, device=device).sum().item() == 3.0


@pytest.mark.parametrize("name", ["add", "mm", "cat", "addmm"])
def test_two_devices_do_not_mix(device: torch.device, second_device: torch.device, name: str) -> None:
    with pytest.raises(
        RuntimeError, match=r"(?s)Expected all tensors to be on the same device.*flagos:0.*flagos:1|device"
    ):
        MIXED[name](torch.ones(3, 3, device=device), torch.ones(3, 3, device=second_device))


def test_mixing_is_refused_in_pytorchs_words(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(3, device=device) + torch.ones(3)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.mm(torch.ones(3, 3, device=device), torch.ones(3, 3))


@pytest.mark.parametrize("operator", ["add", "sub", "mul", "div", "pow", "maximum", "eq", "lt"])
def test_host_scalars_of_no_dimension_mix(device: torch.device, operator: str) -> None:
    mine, host = torch.arange(1.0, 4.0, device=device), torch.arange(1.0, 4.0)
    scalar = torch.tensor(2.0)
    function = getattr(torch, operator)
    for ours, theirs in (
        (function(mine, scalar), function(host, scalar)),
        (function(scalar, mine), function(scalar, host)),
    ):
        assert ours.device == device
        assert torch.equal(ours.cpu(), theirs)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_host_scalar_keeps_type_promotion(device: torch.device) -> None:
    for scalar in (torch.tensor(2), torch.tensor(2.5, dtype=torch.float64), torch.tensor(1j)):
        for dtype in (torch.int32, torch.float16, torch.float32):
            host = torch.ones(2, dtype=dtype)
            assert (host.to(device) * scalar).dtype == (host * scalar).dtype
            assert (scalar + host.to(device)).dtype == (scalar + host).dtype


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.float32, torch.float16, torch.bool], ids=str
)
def test_numbers_on_both_sides_give_cpus_types_and_values(device: torch.device, dtype: torch.dtype) -> None:
    host = torch.tensor([1, 2, 4]).to(dtype)
    mine = host.to(device)
    for number in (1, 5, 2.5):
        cases = [
            (lambda t, n=number: t + n),
            (lambda t, n=number: n + t),
            (lambda t, n=number: n * t),
            (lambda t, n=number: n / t),
            (lambda t, n=number: n // t),
            (lambda t, n=number: n % t if t.dtype != torch.bool else t),
            (lambda t, n=number: n**t if t.dtype != torch.bool else t),
            (lambda t, n=number: t > n),
            (lambda t, n=number: torch.where(t > 1, n, t)),
        ]
        if dtype != torch.bool:
            cases.append(lambda t, n=number: n - t)
        for case in cases:
            ours, theirs = case(mine), case(host)
            assert ours.device == device
            assert ours.dtype == theirs.dtype
            assert_same(ours, theirs)


def test_numpy_is_refused_as_on_cuda(device: torch.device) -> None:
    pytest.importorskip("numpy")
    with pytest.raises(
        TypeError, match=r"can't convert flagos:0 device type tensor to numpy.*Tensor\.cpu\(\)"
    ):
        torch.ones(2, device=device).numpy()
    with pytest.raises(TypeError, match="to numpy"):
        __import__("numpy").asarray(torch.ones(2, device=device))
    assert torch.ones(2, device=device).numpy(force=True).tolist() == [1.0, 1.0]
    assert torch.ones(2, device=device).cpu().numpy().tolist() == [1.0, 1.0]


def test_python_conversions(device: torch.device) -> None:
    assert float(torch.tensor(2.5, device=device)) == 2.5
    assert int(torch.tensor(3, device=device)) == 3
    assert bool(torch.tensor(True, device=device))
    assert complex(torch.tensor(1 + 2j, device=device)) == 1 + 2j
    assert [10, 20, 30][torch.tensor(1, device=device)] == 20
    assert list(range(torch.tensor(3, device=device))) == [0, 1, 2]
    assert f"{torch.tensor(2.0, device=device):.1f}" == "2.0"
    assert torch.tensor([[1, 2]], device=device).tolist() == [[1, 2]]
    assert len(torch.zeros(4, 2, device=device)) == 4
    assert 2 in torch.tensor([1, 2], device=device)
    with pytest.raises(RuntimeError, match=r"[Bb]oolean value of Tensor with more than one value"):
        bool(torch.ones(2, device=device))
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        torch.ones(2, device=device).item()


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.uint8,
        torch.int16,
        torch.uint16,
        torch.uint32,
        torch.int64,
        torch.uint64,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.complex64,
        torch.float8_e4m3fn,
    ],
    ids=str,
)
def test_item_of_every_type(device: torch.device, dtype: torch.dtype) -> None:
    host = torch.ones((), dtype=torch.float32).to(dtype)
    assert host.to(device).item() == host.item()
    assert type(host.to(device).item()) is type(host.item())


def test_out_of_memory_explains_itself_and_leaves_the_device_usable(device: torch.device) -> None:
    _, total = module().mem_get_info()
    before = module().memory_allocated()
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(2 * total, dtype=torch.uint8, device=device)
    text = str(caught.value)
    assert "flagos" in text or companion_of(0) is not None  # whose memory it is, and whose words
    assert "free" in text
    assert "reserved" in text
    assert module().memory_allocated() == before
    assert torch.ones(1000, device=device).sum().item() == 1000.0


def test_out_of_memory_is_tried_again_after_freeing_the_cache(device: torch.device) -> None:
    free, _ = module().mem_get_info()
    size = free // 2
    blocks = [torch.empty(size // 8, dtype=torch.uint8, device=device) for _ in range(6)]
    del blocks
    big = torch.empty(size, dtype=torch.uint8, device=device)
    assert big.numel() == size


def test_size_that_overflows_is_refused(device: torch.device) -> None:
    with pytest.raises(RuntimeError):
        torch.empty(2**62, device=device)
    with pytest.raises(RuntimeError):
        torch.empty(2**40, 2**40, device=device)
    assert torch.ones(2, device=device).sum().item() == 2.0


def test_index_out_of_range_is_an_error_and_not_a_crash(device: torch.device) -> None:
    if companion_of(0) is not None:
        pytest.skip(
            "the companion's kernel may assert, and its device then takes no more work in this process"
        )
    with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
        torch.arange(3, device=device)[torch.tensor([5], device=device)].cpu()
    assert torch.ones(2, device=device).sum().item() == 2.0


@pytest.mark.parametrize("function", ["memory.allocate:2+", "stream.synchronize:2", "memory.copy_async:1"])
def test_failure_of_the_backend_is_an_error_with_the_call(faults: Callable[..., str], function: str) -> None:
    printed = faults(
        """
        import torch, torch_fl
        host = torch.ones(300_000).pin_memory()
        failed = []
        for step in range(6):
            try:
                big = torch.empty(3_000_000 * (step + 1), device="flagos")
                mine = host.to("flagos", non_blocking=True)
                torch.flagos.synchronize()
                assert mine.sum().item() == 300_000
            except RuntimeError as error:
                failed.append(str(error))
                big = mine = None
        assert all("flagos" in text for text in failed), failed
        print("failed" if failed else "never called")
        """,
        function,
    )
    assert printed.strip() in ("failed", "never called")


__all__ = exported(globals())
