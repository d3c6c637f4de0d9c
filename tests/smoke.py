"""Does core work with the torch of this environment? One script without pytest: run by `nox -s minors` for
every minor.
"""

from __future__ import annotations

import copy
import io
import sys

import torch


def main() -> int:
    """Exercise each part of the device once; any surprise raises."""
    import torch_fl._C as native

    device = torch.device("flagos", 0)
    torch.manual_seed(3)

    x = torch.randn(8, 16, device=device)
    host = x.cpu()
    assert x.device == device
    torch.testing.assert_close((x @ x.T).cpu(), host @ host.T)
    torch.testing.assert_close(torch.softmax(x[:, ::2], 1).cpu(), torch.softmax(host[:, ::2], 1))
    assert x.view(16, 8).t().storage_offset() == 0
    assert torch.equal(x.to("flagos:1").cpu(), host)
    out = torch.empty(0, device=device)
    torch.add(x, 1, out=out)
    torch.testing.assert_close(out.cpu(), host + 1)

    torch.manual_seed(5)
    first = torch.rand(4, device=device)
    torch.manual_seed(5)
    assert torch.equal(first, torch.rand(4, device=device))

    start = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(144, 1)
    )
    images = torch.randn(8, 1, 8, 8)
    losses: dict[str, list[float]] = {}
    for where in ("flagos", "cpu"):
        model = copy.deepcopy(start).to(where)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)
        losses[where] = []
        for _ in range(5):
            loss = model(images.to(where)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[where].append(loss.item())
    torch.testing.assert_close(losses["flagos"], losses["cpu"], rtol=1e-4, atol=1e-6)
    assert losses["cpu"][-1] < losses["cpu"][0]

    with torch.autocast("flagos", dtype=torch.bfloat16):
        assert (x @ x.T).dtype is torch.bfloat16

    stream, event = torch.Stream(device=device), torch.Event(device=device)
    with stream:
        y = x * 2
        event.record(stream)
    event.synchronize()
    torch.testing.assert_close(y.cpu(), host * 2)

    pinned = torch.ones(1024, pin_memory=True)
    assert pinned.is_pinned()
    assert pinned.to(device, non_blocking=True).sum().item() == 1024

    buffer = io.BytesIO()
    torch.save({"x": x}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=True)["x"]
    assert loaded.device == device
    assert torch.equal(loaded.cpu(), host)

    assert torch.accelerator.current_accelerator() == torch.device("flagos")
    assert torch.flagos.memory_allocated() > 0
    assert torch.flagos.get_device_properties(0).backend == "reference"
    said = ""
    try:
        x + torch.ones(3, device=device)
    except RuntimeError as error:
        said = str(error)
    assert "size of tensor" in said, said

    calls = sum(row[3] for row in native.ops.counters())
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}: passed ({calls} calls routed)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
