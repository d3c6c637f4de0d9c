"""The demo's train step, `flagos` against `cpu`, in turns on the same batches."""

from __future__ import annotations

import statistics
import time

import torch

from benchmarks.figures import Figure

METHOD = (
    "The demo's model and batch; each step is run on both devices, the order turning; medians of the steps' "
    "own ratios. As many threads as PyTorch chooses."
)


def measure(*, quick: bool = False) -> list[Figure]:
    """Return the speed of the demo's train step on flagos as a share of CPU's."""
    import torch_fl  # noqa: F401
    from demo.model import Gpt, Shape
    from demo.train import TEXT, Batches, Run

    torch.manual_seed(1)
    text = TEXT.read_text(encoding="utf-8")
    shape = Shape(vocabulary=len(set(text)))
    batches = Batches(text, shape.context, 16, seed=2)
    start = Gpt(shape)
    ours, theirs = (Run.on(torch.device(name), start, 2e-3) for name in ("flagos:0", "cpu"))
    steps, warm_up = (12, 4) if quick else (90, 10)
    processor: dict[str, list[float]] = {"flagos": [], "cpu": []}
    for number in range(steps):
        batch = batches.next()
        for run in (ours, theirs) if number % 2 else (theirs, ours):
            before = time.process_time()
            run.step(*batch)
            processor[run.device.type].append(time.process_time() - before)
    mine, reference = ours.seconds[warm_up:], theirs.seconds[warm_up:]
    speeds = [b / a for a, b in zip(mine, reference, strict=True)]
    details: dict[str, float | str] = {
        "flagos ms": statistics.median(mine) * 1e3,
        "cpu ms": statistics.median(reference) * 1e3,
        "cpu time flagos ms": statistics.median(processor["flagos"][warm_up:]) * 1e3,
        "cpu time cpu ms": statistics.median(processor["cpu"][warm_up:]) * 1e3,
        "steps": f"{len(speeds)}",
        "threads": f"{torch.get_num_threads()}",
    }
    return [
        Figure(
            "train step, speed against CPU", statistics.median(speeds), "×", at_least=0.95, details=details
        )
    ]
