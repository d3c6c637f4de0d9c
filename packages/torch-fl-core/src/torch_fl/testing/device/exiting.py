"""The end of a process: with work in flight, with tensors alive everywhere, after errors; always silent and
with status 0."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torch_fl.testing.device.support import exported, run_program, run_quietly

ENDINGS = {
    "tensors in globals": "keep = [torch.ones(1000, device='flagos') for _ in range(10)]",
    "work in flight": "keep = torch.ones(4_000_000).pin_memory().to('flagos', non_blocking=True)",
    "tensor in a module": "torch.kept = torch.ones(3, device='flagos')",
    "cycle": "a = []; a.append(a); a.append(torch.ones(3, device='flagos')); del a",
    "stream and event": "s = torch.flagos.Stream(); e = s.record_event(); torch.kept = (s, e)",
    "graph alive": "x = torch.ones(3, device='flagos', requires_grad=True); y = (x * x).sum(); y.backward()",
    "atexit": "import atexit; t = torch.ones(3, device='flagos'); atexit.register(lambda: t.sum().item())",
    "thread with tensor": (
        "import threading\\n"
        "t = threading.Thread(target=lambda: torch.ones(3, device='flagos').sum().item())\\n"
        "t.start(); t.join()"
    ),
    # No daemon thread that is still at work: Python ends such a thread in the middle of C++ (pthread_exit),
    # and a program that only uses the CPU aborts in the same way.
    "pinned alive": "torch.kept = torch.ones(1000).pin_memory()",
    "generator alive": "torch.kept = torch.Generator('flagos')",
    "dlpack capsule alive": "torch.kept = torch.ones(3, device='flagos').__dlpack__()",
    "sys.exit": "import sys; t = torch.ones(3, device='flagos'); sys.exit(0)",
    "never used": "pass",
}


@pytest.mark.parametrize("name", ENDINGS)
def test_process_ends_silently_with(device: torch.device, name: str) -> None:
    code = ENDINGS[name].replace("\\n", "\n")
    assert run_quietly(f"import torch, torch_fl\n{code}\n") == ""


def test_exception_ends_with_status_one_and_its_own_traceback(device: torch.device) -> None:
    done = run_program("import torch, torch_fl\nt = torch.ones(3, device='flagos')\nraise KeyError('mine')")
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("KeyError: 'mine'")
    assert "terminate" not in done.stderr


def test_slow_work_in_flight_does_not_hang_or_crash_the_end(delays: Callable[..., str]) -> None:
    delays(
        """
        import torch, torch_fl
        host = torch.ones(1000).pin_memory()
        for _ in range(3):
            keep = host.to("flagos", non_blocking=True)
        """,
        copy=100_000,
    )


def test_os_exit_is_immediate(device: torch.device) -> None:
    done = run_program("import os, torch, torch_fl\nt = torch.ones(3, device='flagos')\nos._exit(3)")
    assert (done.returncode, done.stderr.strip()) == (3, "")


__all__ = exported(globals())
