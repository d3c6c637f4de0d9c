"""Trains a small GPT on a flagos device and, step by step beside it, on the CPU, and compares the two.

Both runs start from the same weights and see the same batches in the same order. The closing table says
whether the losses agree, whether a checkpoint written on the device comes back whole, what a step costs on
both, and which source served the calls of the device. The exit status is 0 only if all of it holds.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo.model import Gpt, Shape
from demo.report import Report, source_counts

TEXT = Path(__file__).parent / "text" / "harbour.txt"
WARM_UP = 5  # steps whose time does not count


@dataclass
class Run:
    """One training run on one device."""

    device: torch.device
    model: Gpt
    optimizer: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @classmethod
    def on(cls, device: torch.device, start: Gpt, rate: float) -> Run:
        """Return a run on `device` that starts from a copy of the weights of `start`."""
        model = copy.deepcopy(start).to(device)
        return cls(device, model, torch.optim.AdamW(model.parameters(), lr=rate, fused=True))

    def step(self, tokens: torch.Tensor, following: torch.Tensor) -> None:
        """Do one step with a batch that lies in host memory; the time counts until the device is done."""
        begin = time.perf_counter()
        loss = self.model.loss(tokens.to(self.device), following.to(self.device))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.losses.append(loss.item())
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)
        self.seconds.append(time.perf_counter() - begin)

    @property
    def step_time(self) -> float:
        """Median seconds of a step, without the first few."""
        return statistics.median(self.seconds[WARM_UP:] or self.seconds)

    @property
    def final_loss(self) -> float:
        """Mean loss of the last tenth of the steps."""
        return statistics.fmean(self.losses[-max(1, len(self.losses) // 10) :])

    @torch.no_grad()
    def evaluate(self, tokens: torch.Tensor, following: torch.Tensor) -> float:
        """Return the loss of a batch without training on it."""
        return float(self.model.loss(tokens.to(self.device), following.to(self.device)).item())


class Batches:
    """Random pieces of the text, drawn on the host so that every device sees the same ones."""

    def __init__(self, text: str, context: int, size: int, seed: int) -> None:
        self.letters = sorted(set(text))
        index = {letter: number for number, letter in enumerate(self.letters)}
        self.tokens = torch.tensor([index[letter] for letter in text])
        self.context, self.size = context, size
        self.random = torch.Generator().manual_seed(seed)

    def next(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return tokens and the tokens that follow them, int64 [size, context] each."""
        starts = torch.randint(len(self.tokens) - self.context - 1, (self.size,), generator=self.random)
        places = starts[:, None] + torch.arange(self.context)
        return self.tokens[places], self.tokens[places + 1]


def check_checkpoint(run: Run, batches: Batches, rate: float, report: Report) -> None:
    """Save the run, load it on the device and on the CPU, compare what they say, and let training go on."""
    sample = batches.next()
    before = run.evaluate(*sample)
    host = torch.device("cpu")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "checkpoint.pt"
        torch.save({"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict()}, file)
        size = f"{file.stat().st_size / 2**20:.1f} MiB"
        loaded = {device: Run.on(device, Gpt(run.model.shape), rate) for device in (run.device, host)}
        for device, other in loaded.items():
            saved = torch.load(file, map_location=device, weights_only=True)
            other.model.load_state_dict(saved["model"])
            other.optimizer.load_state_dict(saved["optimizer"])
            loss = other.evaluate(*sample)
            # On its own device every bit must be back; the CPU may add up in another order.
            fits = loss == before if device == run.device else abs(loss - before) <= 1e-4 * before
            report.add(f"checkpoint, on {device}", f"loss {loss:.6f}, saved at {before:.6f} ({size})", fits)
    # The optimizer came back too: one more step leads both to the same place.
    resumed = loaded[run.device]
    for each in (run, resumed):
        each.step(*sample)
    mine, theirs = run.evaluate(*sample), resumed.evaluate(*sample)
    report.add("training goes on from it", f"loss {theirs:.6f}, without the break {mine:.6f}", mine == theirs)


def train(runs: Sequence[Run], batches: Batches, steps: int, console: Console) -> None:
    """Train all runs for `steps` steps, one after the other in every step; the order turns every time."""
    losses_column = TextColumn("{task.fields[losses]}")
    count = MofNCompleteColumn()
    columns = (TextColumn("[bold]training"), BarColumn(), count, losses_column, TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=steps, losses="")
        for number in range(steps):
            batch = batches.next()
            for run in runs if number % 2 == 0 else reversed(runs):
                run.step(*batch)
            losses = "  ".join(f"{run.device} {run.losses[-1]:.4f}" for run in runs)
            progress.update(task, advance=1, losses=f"loss {losses}")
            if not console.is_terminal and (number + 1) % max(1, steps // 10) == 0:
                console.print(f"step {number + 1:4d}/{steps}  loss  {losses}")


def compare(device: Run, host: Run, tolerance: float, report: Report) -> None:
    """Add to the report what the two runs came to."""
    early = max(abs(a - b) for a, b in zip(device.losses[:20], host.losses[:20], strict=True))
    late = abs(device.final_loss - host.final_loss) / host.final_loss
    fall = f"{device.losses[0]:.3f} → {device.final_loss:.3f} nats a character"
    report.add("loss goes down", f"{device.device}: {fall}", device.final_loss < 0.8 * device.losses[0])
    report.add(
        "losses equal, first 20 steps",
        f"largest difference {early:.1e} (allowed {tolerance:.0e})",
        early <= tolerance,
    )
    report.add(
        "losses equal, at the end",
        f"{device.final_loss:.4f} and {host.final_loss:.4f} (allowed 1 %)",
        late <= 0.01,
    )
    ratio = host.step_time / device.step_time
    times = f"{device.device} {device.step_time * 1e3:.1f} ms, cpu {host.step_time * 1e3:.1f} ms"
    report.add("time per step (median)", f"{times}: {ratio:.2f} × the speed of the CPU")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--device", default="flagos", help="the device that is compared with the CPU (%(default)s)"
    )
    parser.add_argument("--steps", type=int, default=300, help="training steps (%(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="pieces of text per step (%(default)s)")
    parser.add_argument("--width", type=int, default=128, help="width of the model (%(default)s)")
    parser.add_argument("--layers", type=int, default=4, help="layers of the model (%(default)s)")
    parser.add_argument("--rate", type=float, default=2e-3, help="learning rate (%(default)s)")
    parser.add_argument(
        "--tolerance", type=float, default=1e-3, help="loss difference allowed at first (%(default)s)"
    )
    parser.add_argument("--text", type=Path, default=TEXT, help="the text to learn (UTF-8)")
    options = parser.parse_args(arguments)
    console = Console() if sys.stdout.isatty() else Console(width=110)

    torch.manual_seed(1)
    text = options.text.read_text(encoding="utf-8")
    device = torch.device(options.device, 0) if options.device != "cpu" else torch.device("cpu")
    shape = Shape(vocabulary=len(set(text)), width=options.width, layers=options.layers)
    batches = Batches(text, shape.context, options.batch, seed=2)
    start = Gpt(shape)
    runs = [Run.on(device, start, options.rate), Run.on(torch.device("cpu"), start, options.rate)]
    size = sum(p.numel() for p in start.parameters()) / 1e6
    console.print(
        f"torch {torch.__version__}, device {device}: {shape.layers} layers, {size:.2f} M parameters; "
        f"{len(text) / 1000:.0f} kB of text; {options.steps} steps of {options.batch} × {shape.context}"
    )

    counts_before = source_counts()
    train(runs, batches, options.steps, console)
    report = Report(f"{device} beside cpu")
    compare(runs[0], runs[1], options.tolerance, report)
    check_checkpoint(runs[0], batches, options.rate, report)

    prompt = batches.tokens[:24].unsqueeze(0).to(device)
    written = "".join(batches.letters[i] for i in runs[0].model.write(prompt, 120)[0].tolist())
    report.add_sources(counts_before, source_counts(), expected=device.type == "flagos")
    console.print(f"\nThe model writes: [italic]{written!r}[/italic]", highlight=False)
    report.print(console)
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main())
