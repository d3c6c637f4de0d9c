"""The stand-in is a device that PyTorch's own code works on, and it refuses what a GPU could not do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Evaluate = Callable[..., Any]
pytestmark = pytest.mark.needs_compiler


def test_it_is_the_accelerator_and_its_fresh_memory_is_nan(evaluate: Evaluate) -> None:
    answer = evaluate("""
        answer = [standin.live_blocks(), torch.accelerator.current_accelerator().type]
        x, y = torch.empty(2, device="hpu"), torch.empty(2, device="hpu:1")
        answer += [str(x.device), str(y.device), torch.accelerator.device_count(), x.isnan().all().item()]
        answer += [standin.owner(x.data_ptr() + 7), standin.owner(y.data_ptr()), standin.owner(id(x))]
        answer += [standin.live_blocks(0), standin.live_blocks(1)]
    """)
    assert answer == [0, "hpu", "hpu:0", "hpu:1", 2, True, 0, 1, None, 1, 1]


def test_loading_too_late_is_an_error(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        import subprocess, sys
        program = "import torch, standin; torch.accelerator.is_available(); standin.load()"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        answer = [done.returncode, done.stderr.strip().splitlines()[-1]]
        """
    )
    assert answer == [
        1,
        "RuntimeError: the stand-in came too late: PyTorch had already looked for an accelerator",
    ]


def test_streams_are_distinct_and_log_their_work(evaluate: Evaluate) -> None:
    answer = evaluate("""
        stream, other, high = torch.Stream("hpu"), torch.Stream("hpu"), torch.Stream("hpu", priority=-1)
        x = torch.ones(2, device="hpu")
        standin.reset()
        with stream:
            y = x + 1
            event = stream.record_event()
            answer = [standin.current_stream() == stream.stream_id]
        other.wait_event(event)
        with other:
            y *= 2
        x.record_stream(other)
        stream.synchronize()
        answer += [standin.current_stream(), len({0, stream.stream_id, other.stream_id, high.stream_id})]
        answer += [[work.what for work in standin.stream_log(stream=stream.stream_id)]]
        answer += [[work.what for work in standin.stream_log(stream=other.stream_id)]]
        answer += [standin.submitted(0, stream.stream_id), standin.stream_log(stream=0)]
        answer += [standin.memory_log("allocate")[0].stream == stream.stream_id]
        answer += [standin.memory_log("record_stream")[0].stream == other.stream_id]
    """)
    first = ["aten::add.Tensor", "record event 1", "synchronize stream"]
    second = ["wait for event 1", "aten::mul_.Tensor"]
    assert answer == [True, 0, 4, first, second, 2, [], True, True]


def test_kernels_set_their_device_and_log_the_callers(evaluate: Evaluate) -> None:
    answer = evaluate("""
        x = torch.ones(2, device="hpu:1")
        standin.reset()
        x.mul(2)
        torch.accelerator.set_device_index(1)
        x.mul(2)
        answer = [standin.stream_log()]
        answer += [[[e.device, e.current_device, e.in_kernel] for e in standin.memory_log("allocate")]]
        answer += [standin.current_device(), str(torch.empty(1, device="hpu").device)]
    """)
    kernels = [["aten::mul.Tensor", 1, 0, current, 0] for current in (0, 1)]
    assert answer == [kernels, [[1, 1, True]] * 2, 1, "hpu:1"]


def test_events_wait_measure_and_are_destroyed(evaluate: Evaluate) -> None:
    answer = evaluate("""
        start, end = torch.Event("hpu", enable_timing=True), torch.Event("hpu", enable_timing=True)
        answer = [start.query(), standin.live_events()]
        start.record(), end.record(), end.synchronize()
        answer += [start.query(), standin.live_events(), start.elapsed_time(end) >= 0]
        elsewhere = torch.Event("hpu", enable_timing=True)
        elsewhere.record(torch.Stream("hpu:1"))
        answer += [caught(start.elapsed_time, elsewhere)[1]]
        del start, end, elsewhere
        answer += [standin.live_events()]
        standin.check()
    """)
    *counted, refusal, left = answer
    assert counted == [True, 0, True, 2, True]
    assert "hpu:0" in refusal
    assert "hpu:1" in refusal
    assert left == 0


def test_threads_have_devices_and_streams_of_their_own(evaluate: Evaluate) -> None:
    answer = evaluate("""
        import threading
        stream = torch.Stream("hpu")
        torch.accelerator.set_device_index(1)
        torch.accelerator.set_stream(stream)
        seen = []
        look = lambda: seen.extend([standin.current_device(), standin.current_stream(0)])
        thread = threading.Thread(target=look)
        thread.start(), thread.join()
        answer = [seen, standin.current_stream(0) == stream.stream_id]
    """)
    assert answer == [[0, 0], True]


def test_devices_and_memory_come_from_the_environment(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        x = torch.empty(1 << 18, device="hpu:2")
        answer = [torch.accelerator.device_count(), torch.accelerator.get_memory_info(2)]
        answer += [standin.allocated_bytes(2), torch.accelerator.memory_allocated(2)]
        answer += [caught(torch.empty, 1 << 19, device="hpu:2")[0]]
        del x
        answer += [torch.accelerator.max_memory_allocated(2), standin.allocated_bytes(2)]
        """,
        STANDIN_DEVICES="3",
        STANDIN_MEMORY_MB="2",
    )
    mib = 1 << 20
    assert answer == [3, [mib, 2 * mib], mib, mib, "OutOfMemoryError", mib, 0]


def test_tensors_of_two_devices_are_refused(evaluate: Evaluate) -> None:
    answer = evaluate("""
        x, far, host = torch.ones(3, device="hpu"), torch.ones(3, device="hpu:1"), torch.ones(3)
        refused = [caught(torch.add, x, host), caught(torch.add, host, x), caught(x.mul_, far),
                   caught(torch.add, host, 1, out=x), caught(torch.add, x, 1, out=host),
                   caught(torch._foreach_add, [x, x], [x, far])]
        # A number, and indices of the host, are what CUDA takes, too.
        answer = [refused, x.add(torch.tensor(2.0)).cpu().tolist(), x[torch.tensor([0])].cpu().tolist()]
    """)
    refused, with_number, with_index = answer
    assert all(refused), refused
    assert all("same device" in text for _, text in refused), refused
    assert (with_number, with_index) == ([3.0, 3.0, 3.0], [1.0])


def test_foreign_generators_streams_and_devices_are_refused(evaluate: Evaluate) -> None:
    answer = evaluate("""
        x, host = torch.ones(3, device="hpu"), torch.ones(3)
        unknown = torch.Stream(stream_id=99, device_index=0, device_type=torch.Stream("hpu").device_type)
        answer = [caught(x.normal_, generator=torch.Generator()),
                  caught(x.normal_, generator=torch.Generator("hpu:1")),
                  caught(host.normal_, generator=torch.Generator("hpu")),
                  caught(torch.empty, 1, device="hpu:7"),
                  caught(x.record_stream, unknown),
                  caught(torch.empty, 1, device="hpu", pin_memory=True)]
        standin.check()
    """)
    words = ["Expected a 'hpu' device type for generator but found 'cpu'", "generator of hpu:1", ""]
    words += ["device index 7", "never handed out", "pinned"]
    for complaint, word in zip(answer, words, strict=True):
        assert complaint, word
        assert word in complaint[1]


def test_rules_on_arguments_can_be_changed(evaluate: Evaluate) -> None:
    answer = evaluate("""
        x, host = torch.ones(3, device="hpu"), torch.arange(3.0)
        lent, own = torch.ops.standin.lend(host, 0), torch.ops.standin.lend(x, 0)
        elsewhere = torch.ops.standin.lend(x, 1)
        answer = {"watched": caught(x.add, 1), "foreign": caught(lent.add, 1)}
        answer |= {"index": caught(elsewhere.add, 1)}
        standin.rules(bare_tensors=True)
        answer |= {"watched, bare": caught(x.add, 1), "lent, bare": caught(lambda: own.add(1))}
        standin.rules(own_memory=False)
        answer |= {"foreign, any": caught(lent.add, 1), "view": caught(lambda: lent.view(3, 1).sum())}
        for labels in ("privateuse1", "own"):
            standin.rules(own_memory=False, storage_labels=labels)
            answer |= {labels: caught(lent.add, 1), labels + ", x": caught(x.add, 1)}
        standin.rules(own_memory=False, foreign_label_ops=["mul.Tensor"])
        answer |= {"not named": caught(lent.add, 1), "named": caught(lent.mul, 1), "x": caught(x.add, 1)}
    """)
    expected = {
        "foreign": "lie in no live block",
        "index": "has a storage of hpu:0",
        "watched, bare": "autograd's keys",
        "view": "",
        "privateuse1": "labelled cpu",
        "own": "labelled cpu",
        "not named": "may not be given",
    }
    for name, complaint in answer.items():
        assert (complaint is not None) == (name in expected), (name, complaint)
        assert complaint is None or expected[name] in complaint[1]


def test_writes_beyond_a_block_and_double_frees_are_faults(evaluate: Evaluate) -> None:
    answer = evaluate(
        """
        import ctypes
        x = torch.ones(3, device="hpu")
        standin.check(blocks=1)
        address = x.data_ptr()
        ctypes.memset(address + 12, 0, 1)
        answer = [caught(standin.check)]
        del x
        answer += [standin.faults()[-1], standin.owner(address), standin.live_blocks()]
        standin.reset()
        standin.check(blocks=0)
        """,
        prints=True,
    )
    check, fault, owner, blocks = answer
    assert check[0] == "AssertionError"
    assert "beyond a live block of 12 bytes" in check[1]
    assert "beyond the block" in fault
    assert (owner, blocks) == (None, 0)


def test_failures_can_be_asked_for_and_leave_nothing(evaluate: Evaluate) -> None:
    answer = evaluate("""
        x = torch.ones(3, device="hpu")
        standin.fail_next_allocation(skip=1)
        x + 1
        answer = [caught(x.add, 1), caught(x.add, 1)]
        standin.fail("add_.Tensor")
        answer += [caught(x.add_, 1), x.cpu().tolist(), caught(x.add_, 1), x.cpu().tolist()]
        standin.fail("sort.stable")
        answer += [caught(x.sort), caught(standin.fail, "no_such_op"), caught(standin.calls, "reshape")]
        standin.check(blocks=1)
    """)
    memory, none, middle, written, again, after, sort, unknown, composite = answer
    assert memory[0] == "OutOfMemoryError"
    assert "HPU out of memory" in memory[1]
    assert none is None
    assert "aten::add_.Tensor fails in the middle" in middle[1]
    assert (written, again, after) == ([2.0] * 3, None, [3.0] * 3)
    assert sort
    assert unknown[0] == composite[0] == "KeyError"
