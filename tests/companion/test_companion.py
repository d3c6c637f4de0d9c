"""Core over a companion device: its memory, streams, events, random numbers and kernels, on the stand-in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Evaluate = Callable[..., Any]
pytestmark = pytest.mark.needs_compiler

WITH_COMPANION = """
import warnings
import torch_fl
from torch_fl_base import reference
torch_fl._C.devices.set_backend_requests(
    [{"name": "reference", "path": str(reference.backend().library), "companion": "hpu", "accelerator": True}]
)
routes = torch_fl._C.routes

def sources(op):
    name = op if "::" in op else f"aten::{op}"
    return sorted({row[1] for row in torch_fl._C.ops.counters() if row[0] == name})
"""
"""The reference library as a backend whose chips the stand-in serves as well."""


def test_operators_run_by_the_companions_kernels_on_its_memory(evaluate: Evaluate) -> None:
    answer = evaluate(
        WITH_COMPANION,
        """
        x = torch.arange(6.0, device="flagos").reshape(2, 3)
        y = (x @ x.T + 1).sum(0)
        answer = [y.tolist(), y.device.type, y.untyped_storage().device.type, standin.owner(y.data_ptr())]
        answer += [sources("mm"), sources("add.Tensor"), standin.calls("mm") > 0, standin.faults()]
        """,
    )
    assert answer == [[21.0, 66.0], "flagos", "flagos", 0, ["boxed"], ["boxed"], True, []]


def test_memory_comes_back_and_statistics_are_the_companions(evaluate: Evaluate) -> None:
    answer = evaluate(
        WITH_COMPANION,
        """
        x = torch.ones(1000, device="flagos")
        answer = [torch.flagos.memory_allocated() == standin.allocated_bytes(0), torch.flagos.memory_allocated() >= 4000]
        y = [x + i for i in range(5)]
        del x, y
        gc.collect()
        answer += [standin.live_blocks(), torch.flagos.memory_allocated()]
        """,
    )
    assert answer == [True, True, 0, 0]


def test_out_arguments_are_resized_and_views_stay_views(evaluate: Evaluate) -> None:
    answer = evaluate(
        WITH_COMPANION,
        """
        x = torch.arange(6.0, device="flagos")
        out = torch.empty(0, device="flagos")
        torch.add(x, 1, out=out)
        answer = [out.tolist(), out.untyped_storage().device.type]
        values, indices = torch.empty(0, device="flagos"), torch.empty(0, dtype=torch.int64, device="flagos")
        torch.sort(x, descending=True, out=(values, indices))
        answer += [values.tolist(), indices.tolist()]
        view = x[2:4]
        view.mul_(10)
        answer += [x.tolist(), x.view(2, 3).T.contiguous().tolist()]
        x.resize_(8).zero_()
        answer += [x.sum().item()]
        """,
    )
    assert answer == [
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        "flagos",
        [5.0, 4.0, 3.0, 2.0, 1.0, 0.0],
        [5, 4, 3, 2, 1, 0],
        [0.0, 1.0, 20.0, 30.0, 4.0, 5.0],
        [[0.0, 30.0], [1.0, 4.0], [20.0, 5.0]],
        0.0,
    ]


def test_streams_and_events_are_the_companions(evaluate: Evaluate) -> None:
    answer = evaluate(
        WITH_COMPANION,
        """
        stream = torch.flagos.Stream()
        standin.reset()
        with torch.flagos.stream(stream):
            x = torch.ones(4, device="flagos") + 1
            inside = standin.current_stream() == stream.stream_id
            event = stream.record_event()
        torch.flagos.current_stream().wait_event(event)
        x.record_stream(torch.flagos.current_stream())
        event.synchronize()
        log = [work.what for work in standin.stream_log(stream=stream.stream_id)]
        answer = [inside, "aten::add.Tensor" in log, any("record event" in what for what in log)]
        answer += [any("wait for event" in work.what for work in standin.stream_log(stream=0))]
        answer += [len(standin.memory_log("record_stream")), standin.memory_log("allocate")[0].stream == stream.stream_id]
        start, end = torch.flagos.Event(enable_timing=True), torch.flagos.Event(enable_timing=True)
        start.record(); end.record(); end.synchronize()
        answer += [start.elapsed_time(end) >= 0, event.query(), stream.query()]
        del event, start, end
        answer += [standin.live_events()]
        """,
    )
    assert answer == [True, True, True, True, 1, True, True, True, True, 0]


def test_random_numbers_are_the_companions(evaluate: Evaluate) -> None:
    answer = evaluate(
        WITH_COMPANION,
        """
        torch.manual_seed(7)
        a = torch.randn(5, device="flagos").tolist()
        state = torch.flagos.get_rng_state()
        b = torch.rand(3, device="flagos").tolist()
        torch.flagos.set_rng_state(state)
        answer = [torch.rand(3, device="flagos").tolist() == b]
        standin.set_random_state(0, 7, 0)
        answer += [torch.randn(5, device="hpu").cpu().tolist() == a, sources("normal_")]
        generator = torch.Generator("flagos").manual_seed(3)
        c = torch.randn(2, device="flagos", generator=generator).tolist()
        generator.manual_seed(3)
        answer += [torch.randn(2, device="flagos", generator=generator).tolist() == c]
        answer += [caught(torch.randn, 2, device="flagos", generator=torch.Generator())[0]]
        """,
    )
    assert answer == [True, True, ["boxed"], True, "RuntimeError"]


def test_a_network_trains_as_on_the_host(evaluate: Evaluate) -> None:
    answer = evaluate(
        WITH_COMPANION,
        """
        def losses(device):
            torch.manual_seed(0)
            model = torch.nn.Sequential(
                torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
                torch.nn.Flatten(), torch.nn.Linear(8 * 64, 32), torch.nn.LayerNorm(32), torch.nn.GELU(),
                torch.nn.Linear(32, 5),
            ).to(device)
            data, target = torch.randn(6, 3, 8, 8).to(device), torch.arange(6).remainder(5).to(device)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            found = []
            for _ in range(4):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(data), target)
                loss.backward()
                optimizer.step()
                found.append(loss.item())
            return found
        host, device = losses("cpu"), losses("flagos")
        answer = [max(abs(a - b) for a, b in zip(host, device)) < 1e-4, host[-1] < host[0]]
        answer += [sources("convolution"), sources("native_layer_norm_backward"), standin.faults()]
        """,
    )
    assert answer == [True, True, ["boxed"], ["boxed"], []]


def test_copies_go_between_flagos_the_companion_and_the_host(evaluate: Evaluate) -> None:
    answer = evaluate(
        WITH_COMPANION,
        """
        x = torch.arange(4.0)
        y = x.to("flagos")
        z = torch.empty(4, device="hpu").copy_(y)
        w = torch.empty(2, 2, device="flagos", dtype=torch.float64).copy_(z.view(2, 2).T)
        answer = [y.tolist(), z.cpu().tolist(), w.tolist(), y.to("flagos:1").device.index, y[1].item()]
        pinned = torch.arange(3.0).pin_memory()
        answer += [pinned.is_pinned(), pinned.to("flagos", non_blocking=True).tolist()]
        answer += [caught(torch.add, y, z)[1].splitlines()[0][:75]]
        """,
    )
    assert answer == [
        [0.0, 1.0, 2.0, 3.0],
        [0.0, 1.0, 2.0, 3.0],
        [[0.0, 2.0], [1.0, 3.0]],
        1,
        1.0,
        True,
        [0.0, 1.0, 2.0],
        "Expected all tensors to be on the same device, but found at least two devic",
    ]


def test_copies_pack_and_convert_on_the_way_to_and_from_the_host(evaluate: Evaluate) -> None:
    answer = evaluate(
        WITH_COMPANION,
        """
        host = torch.arange(24.0).reshape(4, 6)
        answer = []
        for there, back in [(host[:, ::2], torch.zeros(4, 3)), (host.T, torch.zeros(6, 4)), (host, torch.zeros(6, 4).T)]:
            x = torch.zeros(there.shape, device="flagos", dtype=torch.float64)
            x.copy_(there)
            back.copy_(x)
            y = torch.zeros(there.shape[::-1], device="flagos").T
            y.copy_(there)
            answer += [torch.equal(back, there), torch.equal(y.cpu(), there), torch.equal(y.half().cpu(), there.half())]
        answer += [standin.faults()]
        """,
    )
    assert answer == [True] * 9 + [[]]


def test_copies_reach_devices_that_are_no_companions(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        import torch_fl
        x = torch.arange(6.0).reshape(2, 3).to("flagos")
        y = torch.zeros(3, 2, device="hpu")
        y.copy_(x.T)
        z = torch.zeros(2, 3, device="flagos", dtype=torch.int32)
        z.copy_(y.T)
        answer = [y.cpu().tolist(), z.tolist(), x.to("hpu").device.type, y.to("flagos").device.type]
        """,
    )
    assert answer == [[[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]], [[0, 1, 2], [3, 4, 5]], "hpu", "flagos"]


def test_results_are_labelled_as_the_devices_own(evaluate: Evaluate) -> None:
    answer = evaluate(
        WITH_COMPANION,
        """
        wanted = torch._C._dispatch_keys(torch.empty(2, device="flagos")).raw_repr()
        x = torch.ones(2, 2, device="flagos")
        made = [x + x, x @ x, x.sum(), torch.softmax(x, 0), torch.cat([x, x]), torch.cumsum(x, 0), torch.sort(x)[1]]
        made += list(torch._foreach_add([x, x], 1.0)) + list(torch.native_layer_norm(x, [2], None, None, 1e-5))
        answer = [all(torch._C._dispatch_keys(tensor).raw_repr() == wanted for tensor in made)]
        answer += [sorted({(str(t.device), t.untyped_storage().device.type) for t in made})]
        """,
    )
    assert answer == [True, [["flagos:0", "flagos"]]]


def test_kernels_that_write_see_what_shares_memory(evaluate: Evaluate) -> None:
    answer = evaluate(
        WITH_COMPANION,
        """
        x = torch.arange(6.0, device="flagos")
        index = torch.tensor([0, 1], device="flagos")
        answer = [caught(x.index_put_, (index,), x[1:3])[0], caught(x.index_add_, 0, index, x[:2])[0]]
        y = torch.arange(6.0, device="flagos")
        y.index_put_((index,), torch.tensor([8.0, 9.0], device="flagos"))
        for _ in range(100):
            y[2:].scatter_(0, index, 7.0)
        answer += [y.tolist(), y._version, standin.faults()]
        host = torch.arange(6.0)
        answer += [caught(host.index_put_, (index.cpu(),), host[1:3])[0], caught(host.index_add_, 0, index.cpu(), host[:2])[0]]
        """,
    )
    assert answer[:2] == answer[5:]
    assert answer[2:5] == [[8.0, 9.0, 7.0, 7.0, 4.0, 5.0], 101, []]


def test_the_current_device_is_one_and_the_same(evaluate: Evaluate) -> None:
    answer = evaluate(
        WITH_COMPANION,
        """
        x = torch.ones(2, device="flagos:1")
        torch.flagos.set_device(1)
        answer = [standin.current_device(), torch.empty(1, device="flagos").device.index]
        with torch.hpu.device(0):
            answer += [torch.flagos.current_device(), torch.empty(1, device="flagos").device.index]
        torch.flagos.set_device(0)
        with torch.flagos.device(1):
            answer += [standin.current_device()]
        answer += [standin.current_device(), (x + 1).device.index]
        """,
    )
    assert answer == [1, 1, 0, 0, 1, 0, 1]


def test_a_kernel_that_raises_leaves_nothing_behind(evaluate: Evaluate) -> None:
    answer = evaluate(
        WITH_COMPANION,
        """
        x = torch.ones(3, device="flagos")
        standin.fail("exp", 1)
        answer = [caught(torch.exp, x)[0], str(x.device), str(x.untyped_storage().device), (x + 1).tolist()]
        answer += [torch.exp(x).shape[0]]
        standin.fail_next_allocation()
        answer += [caught(torch.empty, 3, device="flagos")[0], torch.empty(3, device="flagos").numel()]
        del x
        answer += [standin.live_blocks()]
        """,
    )
    assert answer == ["RuntimeError", "flagos:0", "flagos:0", [2.0, 2.0, 2.0], 3, "OutOfMemoryError", 3, 0]


def test_threads_share_tensors_while_backward_runs(evaluate: Evaluate) -> None:
    answer = evaluate(
        WITH_COMPANION,
        """
        import threading
        a, b = torch.ones(64, device="flagos"), torch.full((64,), 2.0, device="flagos", requires_grad=True)
        problems = []
        def work():
            for _ in range(150):
                try:
                    c = (a + b) * a
                    if str(a.device) != "flagos:0" or str(c.device) != "flagos:0":
                        problems.append(str(c.device))
                    gradient, = torch.autograd.grad(c.sum(), b)
                    if gradient[0].item() != 1.0:
                        problems.append(gradient[0].item())
                except Exception as error:
                    problems.append(str(error))
        threads = [threading.Thread(target=work) for _ in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        answer = [len(problems), problems[:1], standin.faults()]
        """,
    )
    assert answer == [0, [], []]


def test_routes_move_an_operator_between_the_companion_and_the_host(evaluate: Evaluate) -> None:
    answer = evaluate(
        WITH_COMPANION,
        """
        x = torch.full((3,), 4.0, device="flagos")
        answer = [routes.capability("aten::sqrt", "reference")]
        torch_fl.routes.fallback("allow").__enter__()
        with torch_fl.routes.use({"sqrt": "cpu"}):
            answer += [x.sqrt().tolist(), sources("sqrt")]
        answer += [x.sqrt().tolist(), sources("sqrt")]
        torch_fl.routes.set({"sqrt": "cpu"})
        answer += [torch_fl.routes.explain("sqrt", x).source]
        y = torch.empty(0, device="flagos")
        torch.sqrt(x, out=y)
        answer += [y.tolist(), sources("sqrt.out")]
        """,
    )
    two = [2.0, 2.0, 2.0]
    assert answer == [["boxed", "cpu"], two, ["cpu"], two, ["boxed", "cpu"], "cpu", two, ["boxed"]]


def test_the_fallback_to_the_host_warns_once_at_the_users_line_or_is_an_error(evaluate: Evaluate) -> None:
    answer = evaluate(
        WITH_COMPANION,
        """
        x = torch.ones(3, device="flagos")
        torch_fl.routes.set({"sin": "cpu"})
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            x.sin(); x.sin()
        answer = [len(seen), seen[0].category.__name__, "aten::sin" in str(seen[0].message), seen[0].filename]
        with torch_fl.routes.fallback("error"):
            answer += [caught(x.sin)[0]]
        """,
    )
    assert answer == [1, "FallbackWarning", True, "<string>", "NotImplementedError"]


def test_without_the_companion_core_runs_on_the_hal(evaluate: Evaluate) -> None:
    answer = evaluate(
        WITH_COMPANION,
        """
        x = torch.ones(3, device="flagos") + 1
        record, = torch_fl._C.devices.backend_records()
        answer = [sources("add.Tensor"), standin.live_blocks(), record["companion"], record["companion_reason"]]
        """,
        FLAGOS_COMPANION="off",
        FLAGOS_FALLBACK="allow",
    )
    assert answer == [["cpu"], 0, None, "switched off by FLAGOS_COMPANION"]


def test_a_companion_that_torch_lacks_or_that_differs_is_told(evaluate: Evaluate) -> None:
    program = """
        record, = (torch_fl._C.devices.activate(), torch_fl._C.devices.backend_records())[1]
        answer = [record["companion"], record["companion_reason"]]
    """
    lacking = evaluate(WITH_COMPANION.replace('"hpu"', '"xpu"'), program)
    assert lacking == [None, "this build of torch has no device type 'xpu'"]
    differing = evaluate(WITH_COMPANION, program, STANDIN_DEVICES="3")
    assert differing == [None, "torch sees 3 devices of type 'hpu', the backend 2"]
