"""Tensors for other processes: refused, unless copies are asked for; workers of a DataLoader."""

from __future__ import annotations

import pickle
import sys
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch

import torch_fl  # noqa: F401
from torch_fl.compat.multiprocessing import send_copies


def sent(value: Any) -> Any:
    """Return what arrives when `value` is sent (here: in the same process)."""
    return pickle.loads(bytes(ForkingPickler.dumps(value)))


def test_tensor_is_refused_by_default() -> None:
    with pytest.raises(RuntimeError, match="is not shared between processes yet"):
        sent(torch.ones(2, device="flagos"))


def test_copy_arrives_on_the_same_device_and_shares_nothing() -> None:
    tensor = torch.arange(6.0, device="flagos:1").view(2, 3).t()
    with send_copies():
        arrived = sent({"t": tensor})["t"]
    assert arrived.device == tensor.device
    assert torch.equal(arrived, tensor)
    arrived.zero_()
    assert tensor.sum().item() == 15
    with pytest.raises(RuntimeError, match="is not shared between processes yet"):
        sent(tensor)


def test_parameters_stay_parameters_and_others_go_torchs_way() -> None:
    copies = send_copies()
    try:
        weight = sent(torch.nn.Parameter(torch.ones(2, device="flagos"), requires_grad=False))
        assert isinstance(weight, torch.nn.Parameter)
        assert not weight.requires_grad
        host = torch.ones(3)
        sent(host).zero_()
        assert host.tolist() == [0.0, 0.0, 0.0]  # shared, as torch does it
        with pytest.raises(RuntimeError, match=r"send tensor.detach\(\)"):
            sent(torch.ones(2, device="flagos", requires_grad=True) * 2)
    finally:
        copies.undo()


def test_copy_reaches_a_spawned_process(tmp_path: Any, run_module: Any) -> None:
    (tmp_path / "sender.py").write_text(
        """
import torch, torch_fl
import torch.multiprocessing as mp
from torch_fl.compat.multiprocessing import send_copies


def receive(queue, answers):
    tensor = queue.get()
    answers.put([str(tensor.device), tensor.tolist()])


if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    process = context.Process(target=receive, args=(queue, answers))
    process.start()
    with send_copies():
        queue.put(torch.arange(3.0, device="flagos:1"))
        print(answers.get(timeout=120))
    process.join()
    raise SystemExit(process.exitcode)
"""
    )
    done = run_module("sender", PYTHONPATH=f"{tmp_path}:{':'.join(sys.path)}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['flagos:1', [0.0, 1.0, 2.0]]"


def test_storages_of_other_devices_go_torchs_way() -> None:
    tensor = torch.arange(3.0)
    assert torch.equal(sent(tensor), tensor)
    with pytest.raises(RuntimeError, match="meta"):
        sent(torch.empty(2, device="meta").untyped_storage())
