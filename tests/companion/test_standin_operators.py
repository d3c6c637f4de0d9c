"""The stand-in's kernels compute what the CPU computes, and keep PyTorch's promises on aliases and lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Evaluate = Callable[..., Any]
pytestmark = pytest.mark.needs_compiler


def test_operators_compute_what_the_cpu_computes(evaluate: Evaluate) -> None:
    answer = evaluate("""
        from torch.nn.functional import conv2d, layer_norm, max_pool2d
        def compute(device):
            torch.manual_seed(0)
            a, b = torch.randn(5, 6).to(device), torch.randn(5, 6).to(device)
            rows, image = torch.tensor([3, 1]).to(device), a.view(1, 1, 5, 6)
            yield a + b, a.sum(0), a.sort().values, a @ b.t(), torch.cat([a, b]).softmax(1), a.std(1)
            yield a[rows], a[:, [0, 2]], a[a > 0], torch.where(a > b, a, b), a.index_select(0, rows)
            yield a.double(), a.half().float(), a.view(3, 10)[1], a.t().reshape(-1), a.unfold(1, 2, 2)
            yield a.unbind()[2], a.split(2)[1], a.expand(2, 5, 6).permute(2, 0, 1), a.mode().values
            yield torch.view_as_complex(a.view(5, 3, 2)).conj().resolve_conj() * 2,
            yield a.clone().addr_(b[:, 0], b[0]), torch.linalg.qr(a.double())[1].abs()
            yield a.unique(), a.nonzero(), layer_norm(a, [6])
            yield conv2d(image, b[:3, :3].reshape(1, 1, 3, 3), padding=1), max_pool2d(image, 2)
            yield torch.tril_indices(3, 3, device=device), torch.arange(6, device=device)
        answer = [[x.cpu().equal(y), x.device.type] for ours, theirs in zip(compute("hpu"), compute("cpu"))
                  for x, y in zip(ours, theirs)]
        standin.check(blocks=0)
    """)
    assert answer == [[True, "hpu"]] * 30


def test_in_place_and_out_arguments_come_back_themselves(evaluate: Evaluate) -> None:
    answer = evaluate("""
        x, grown = torch.ones(3, 4, device="hpu"), torch.empty(0, device="hpu")
        version, address = x._version, x.data_ptr()
        answer = [x.add_(1) is x, x._version - version, x.data_ptr() == address]
        answer += [torch.add(x, 1, out=grown) is grown, list(grown.shape), grown.untyped_storage().nbytes()]
        answer += [standin.owner(grown.data_ptr()), grown.cpu().tolist() == [[3.0] * 4] * 3]
        values, places = torch.empty(0, device="hpu"), torch.empty(0, dtype=torch.long, device="hpu")
        answer += [torch.max(x, 0, out=(values, places))[1] is places, places.cpu().tolist()]
        standin.check(blocks=4)
    """)
    assert answer == [True, 1, True, True, [3, 4], 48, 0, True, True, [0, 0, 0, 0]]


def test_views_share_memory_and_storages_can_be_replaced(evaluate: Evaluate) -> None:
    answer = evaluate("""
        x = torch.ones(3, 4, device="hpu")
        view = x[1]
        view.mul_(5)
        answer = [x.cpu()[:, 0].tolist(), x[0].data_ptr() == x.data_ptr(), view._base is x, x._version]
        other = torch.empty(2, device="hpu").resize_(5, 5)
        answer += [list(other.shape), other.untyped_storage().nbytes()]
        answer += [other.set_(x).data_ptr() == x.data_ptr()]
        answer += [other.set_().numel(), str(other.device)]
    """)
    assert answer == [[1.0, 5.0, 1.0], True, True, 1, [5, 5], 100, True, 0, "hpu:0"]


def test_lists_run_as_one_kernel_and_count_versions(evaluate: Evaluate) -> None:
    answer = evaluate("""
        def compute(device):
            tensors = [torch.full((n,), float(n), device=device) for n in (1, 2, 3)]
            standin.reset()
            torch._foreach_mul_(tensors, torch._foreach_add(tensors, 1))
            return tensors
        theirs, ours = compute("cpu"), compute("hpu")
        answer = [standin.called_ops(), all(x.cpu().equal(y) for x, y in zip(ours, theirs))]
        answer += [[t._version for t in ours] == [t._version for t in theirs]]
        weights = [torch.ones(3, device="hpu", requires_grad=True) for _ in range(2)]
        optimizer = torch.optim.AdamW(weights, foreach=True)
        sum(w.square().sum() for w in weights).backward()
        optimizer.step()
        answer += [bool((weights[0] < 1).all()), standin.calls("_foreach_addcdiv_.ScalarList")]
    """)
    calls = {"aten::_foreach_add.Scalar": 1, "aten::_foreach_mul_.List": 1}
    assert answer == [calls, True, True, True, 1]


def test_copies_join_host_and_both_devices(evaluate: Evaluate) -> None:
    answer = evaluate("""
        host = torch.arange(6.0).view(2, 3)
        near, far = host.to("hpu:0"), torch.empty(3, 2, dtype=torch.float64, device="hpu:1")
        far.t().copy_(near)
        back = torch.empty(3, 2)
        back.copy_(far)
        answer = [near.cpu().equal(host), back.equal(host.t()), near.data_ptr() != host.data_ptr()]
        pinned = host.pin_memory()
        answer += [pinned.is_pinned(), host.is_pinned(), torch.empty(2, pin_memory=True).is_pinned()]
        answer += [pinned.to("hpu", non_blocking=True).cpu().equal(host), standin.live_pinned_blocks()]
        near[1:].copy_(near[:1])
        answer += [near.cpu().tolist(), near[0, 2].item(), host.sum().to("hpu").item()]
        del pinned
        answer += [standin.live_pinned_blocks()]
        standin.check(blocks=2)
    """)
    rows = [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]
    assert answer == [True, True, True, True, False, True, True, 1, rows, 2.0, 15.0, 0]


def test_random_numbers_follow_the_generator(evaluate: Evaluate) -> None:
    answer = evaluate("""
        def draw(generator):
            return torch.randn(4, device="hpu", generator=generator).cpu()
        one, two = torch.Generator("hpu").manual_seed(7), torch.Generator("hpu").manual_seed(7)
        first = draw(one)
        answer = [first.equal(draw(two)), first.equal(draw(one)), one.get_offset(), one.get_state().numel()]
        two.set_state(one.get_state())
        answer += [draw(one).equal(draw(two))]
        standin.set_random_state(0, 7)
        answer += [first.equal(torch.randn(4, device="hpu").cpu()), standin.random_state(0)]
        standin.set_random_state(0, 7)
        dropped, mask = torch.native_dropout(torch.ones(1000, device="hpu"), 0.25, True)
        answer += [str(mask.dtype), 650 < mask.sum().item() < 850, dropped.ne(0).equal(mask).__bool__()]
        answer += [standin.random_state(0)]
        with torch.random.fork_rng(devices=[0], device_type="hpu"):
            torch.randn(2, device="hpu")
            answer += [standin.random_state(0)]
        answer += [standin.random_state(0)]
    """)
    assert answer[:7] == [True, False, 8, 16, True, True, [7, 4]]
    assert answer[7:] == ["torch.bool", True, True, [7, 4], [7, 8], [7, 4]]


def test_backward_equals_the_cpus(evaluate: Evaluate) -> None:
    answer = evaluate("""
        def train(device):
            torch.manual_seed(1)
            model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16),
                                        torch.nn.Linear(16, 4)).to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            inputs, labels = torch.randn(5, 8).to(device), torch.arange(5).remainder(4).to(device)
            for _ in range(3):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(inputs), labels)
                loss.backward()
                optimizer.step()
            return [loss.detach(), *(p.detach() for p in model.parameters()),
                    *(p.grad for p in model.parameters())]
        answer = [x.cpu().equal(y) for x, y in zip(train("hpu"), train("cpu"))]
        gc.collect()
        standin.check(blocks=0)
    """)
    assert answer == [True] * 13


def test_kernels_that_the_cpu_lacks_have_right_values_and_gradients(evaluate: Evaluate) -> None:
    answer = evaluate("""
        from torch.nn.functional import conv2d, scaled_dot_product_attention
        torch.manual_seed(2)
        def run(function, device, tensors):
            tensors = [t.detach().to(device).requires_grad_() for t in tensors]
            outs = function(*tensors)
            outs = [outs] if isinstance(outs, torch.Tensor) else outs[:2]
            sum((o * o).sum() for o in outs).backward()
            return [t.cpu() for t in (*outs, *(t.grad for t in tensors))]
        def same(ours, theirs, *tensors):
            pairs = zip(run(ours, "hpu", tensors), run(theirs, "cpu", tensors), strict=True)
            return all(torch.allclose(x, y, atol=1e-5) for x, y in pairs)

        def cell(gates, more, cx, bias, further):
            i, f, c, o = (gates + more + bias + further).chunk(4, 1)
            cy = f.sigmoid() * cx + i.sigmoid() * c.tanh()
            return o.sigmoid() * cy.tanh(), cy
        shapes = [(3, 8), (3, 8), (3, 2), (8,), (8,)]
        answer = [same(torch.ops.aten._thnn_fused_lstm_cell, cell, *map(torch.randn, shapes))]
        attention = lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True)
        standin.reset()
        answer += [same(attention, attention, *(torch.randn(2, 3, 5, 4) for _ in range(3)))]
        fused = "_scaled_dot_product_efficient_attention"
        answer += [standin.calls(fused), standin.calls(fused + "_backward")]
        answer += [max(work.depth for work in standin.stream_log())]
        answer += [same(conv2d, conv2d, torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3))]
        answer += [standin.calls(f"convolution{end}overrideable") for end in ("_", "_backward_")]
    """)
    assert answer == [True, True, 1, 1, 1, True, 1, 1]
