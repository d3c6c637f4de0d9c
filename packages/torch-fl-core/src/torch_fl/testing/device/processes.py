"""torch.multiprocessing: device tensors between processes are shared or refused in words; spawned processes
work."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from torch_fl.testing.device.support import exported, run_program


def _run_file(tmp_path: Path, text: str) -> str:
    """Return what a program in a file of its own prints: spawned processes import it again."""
    path = tmp_path / "program.py"
    path.write_text(text, encoding="utf-8")
    done = run_program(f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_device_tensor_through_a_queue_is_shared_or_refused(
    device: torch.device, tmp_path_factory: pytest.TempPathFactory
) -> None:
    printed = _run_file(
        tmp_path_factory.mktemp("queue"),
        """
import sys, subprocess, torch, torch_fl
import torch.multiprocessing as mp
from multiprocessing.reduction import ForkingPickler
try:
    data = bytes(ForkingPickler.dumps(torch.arange(4., device="flagos")))
except (RuntimeError, NotImplementedError, TypeError) as error:
    text = str(error)
    # PyTorch's own words ("_share_fd_: only available on CPU"), or a backend's.
    print("refused" if "share" in text or "process" in text else "refused without words: " + text)
else:
    print("shared" if ForkingPickler.loads(data).tolist() == [0., 1., 2., 3.] else "wrong values")
""",
    )
    assert printed.strip() in ("refused", "shared")


def test_share_memory_is_refused_or_does_nothing(device: torch.device) -> None:
    tensor = torch.ones(3, device=device)
    try:
        tensor.share_memory_()
    except (RuntimeError, NotImplementedError) as error:
        assert "flagos" in str(error)  # noqa: PT017  either is an answer
    assert tensor.tolist() == [1.0] * 3


def test_host_tensors_are_shared_as_ever(device: torch.device) -> None:
    shared = torch.zeros(3).share_memory_()
    assert shared.is_shared()
    assert shared.to(device).sum().item() == 0.0


def test_spawned_processes_use_the_device(
    device: torch.device, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("spawn") / "spawned_program.py"
    path.write_text(
        """
import torch, torch_fl
import torch.multiprocessing as mp

def work(rank, results):
    torch.flagos.set_device(rank % torch.flagos.device_count())
    mine = torch.full((4,), float(rank), device="flagos")
    results[rank] = mine.sum().item() + 1

if __name__ == "__main__":
    torch.ones(2, device="flagos")
    results = torch.zeros(2).share_memory_()
    mp.spawn(work, (results,), nprocs=2)
    print(results.tolist())
""",
        encoding="utf-8",
    )
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[1.0, 5.0]"


__all__ = exported(globals())
