"""Being installed changes nothing for a program that trains on `cuda`; claiming beside it is told of."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess

Run = Callable[[str], CompletedProcess[str]]

_TRAINS_ON_CUDA = """
def train(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    inputs = torch.randn(128, 32, generator=torch.Generator().manual_seed(1)).to(device)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
"""


def test_training_on_cuda_with_core_installed_and_not_imported(run: Run) -> None:
    done = run(
        f"""
import sys, torch
{_TRAINS_ON_CUDA}
losses = train("cuda")
assert losses[-1] < losses[0], losses
assert torch._C._get_privateuse1_backend_name() == "privateuseone"
assert not any(name.split(".")[0] == "torch_fl" for name in sys.modules), "core was loaded"
assert str(torch.accelerator.current_accelerator()) == "cuda"
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_reference_backend_works_beside_a_cuda_build(run: Run) -> None:
    done = run(
        f"""
import os
os.environ["FLAGOS_BACKENDS"] = "reference"
import torch, torch_fl
{_TRAINS_ON_CUDA}
losses, expected = train("flagos"), train("cpu")
torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-6)
assert torch.flagos.get_device_properties(0).backend == "reference"
assert not torch.cuda.is_initialized(), "the CUDA driver was opened"
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
