"""The nvidia backend on its HAL alone: devices, memory, streams, copies; operators run on the host."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., CompletedProcess[str]]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch_fl_nvidia") is None, reason="torch-fl-nvidia is not installed"
)


_ALONE = {"FLAGOS_COMPANION": "off", "FLAGOS_FALLBACK": "allow"}


def evaluate(run: Run, program: str, backends: str = "nvidia") -> Any:
    """Run a program with these backends; return its variable `answer`."""
    text = (
        f"import json, os\nos.environ |= {_ALONE | {'FLAGOS_BACKENDS': backends}!r}\nimport torch, torch_fl\n"
    )
    done = run(text + program + "\nprint(json.dumps(answer))")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return json.loads(done.stdout)


def test_the_device_is_described_as_cuda_describes_it(run: Run) -> None:
    ours = evaluate(
        run,
        """
told = torch.flagos.get_device_properties(0)
free, total = torch.flagos.mem_get_info(0)
answer = [torch.flagos.device_count(), told.backend, told.name, told.total_memory, total, free <= total,
          list(torch.flagos.get_device_capability(0)), told.multi_processor_count]
""",
    )
    theirs = run(
        """
import json, torch
told = torch.cuda.get_device_properties(0)
print(json.dumps([torch.cuda.device_count(), told.name, told.total_memory, torch.cuda.mem_get_info(0)[1],
                  list(torch.cuda.get_device_capability(0)), told.multi_processor_count]))
"""
    )
    count, name, total_memory, total, capability, processors = json.loads(theirs.stdout)
    assert ours == [count, "nvidia", name, total_memory, total, True, capability, processors]


def test_training_equals_the_cpus(run: Run) -> None:
    ours, cpu, host_bytes = evaluate(
        run,
        """
def train(device):
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(144, 1)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    images = torch.linspace(-1, 1, 8 * 64).reshape(8, 1, 8, 8).to(device)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(images).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
answer = [train("flagos"), train("cpu"), sum(row[4] for row in torch_fl._C.ops.counters())]
""",
    )
    assert ours == pytest.approx(cpu, rel=1e-4)
    assert host_bytes > 0, "the operators' arguments did not cross to the host"


def test_pinned_copies_on_a_side_stream_are_ordered_and_timed(run: Run) -> None:
    equal, waited, elapsed = evaluate(
        run,
        """
size = 256 << 20
source = torch.arange(size // 8).pin_memory()
target = torch.empty(size // 8, dtype=torch.int64, device="flagos")
stream = torch.Stream(device="flagos")
start, end = (torch.Event(device="flagos", enable_timing=True) for _ in range(2))
with stream:
    start.record(stream)
    target.copy_(source, non_blocking=True)
    end.record(stream)
queued = not stream.query()
torch.flagos.current_stream().wait_event(end)
back = target[-4:].cpu()
end.synchronize()
answer = [torch.equal(back, source[-4:]), queued, start.elapsed_time(end)]
""",
    )
    assert equal
    assert waited, "a copy from pinned memory held the caller up"
    assert 1 < elapsed < 1000  # milliseconds for 256 MiB


def test_both_vendors_in_one_process(run: Run) -> None:
    names, round_trip, sums, devices = evaluate(
        run,
        """
count = torch.flagos.device_count()
names = [torch.flagos.get_device_properties(i).backend for i in range(count)]
reference = names.index("reference")
x = torch.randn(1 << 20, device="flagos:0")
y = x.to(f"flagos:{reference}")
z = (y + 1).to("flagos:0")
mixed = None
try:
    x + y
except RuntimeError as error:
    mixed = str(error)
answer = [names, torch.equal(z.cpu(), x.cpu() + 1), [x.sum().item(), y.sum().item()], mixed]
""",
        backends="nvidia,reference",
    )
    assert names[0] == "nvidia"
    assert names[-2:] == ["reference", "reference"]
    assert round_trip
    assert sums[0] == sums[1]
    assert "flagos:0" in devices


def test_running_out_of_memory_frees_and_explains(run: Run) -> None:
    message, usable = evaluate(
        run,
        """
free, total = torch.flagos.mem_get_info(0)
held = torch.empty(free // 2, dtype=torch.uint8, device="flagos")
del held
try:
    torch.empty(total * 2, dtype=torch.uint8, device="flagos")
    message = None
except torch.OutOfMemoryError as error:
    message = str(error)
usable = torch.empty(free // 2, dtype=torch.uint8, device="flagos").numel() == free // 2
answer = [message, usable]
""",
    )
    assert "largest free block" in message
    assert usable
