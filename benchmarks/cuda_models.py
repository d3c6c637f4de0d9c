"""Models on a GPU, `flagos` in companion mode against native `cuda`: training, inference, memory, threads.

Training takes turns between processes, since native CUDA cannot train beside a claimed device; the rest is
paired in one process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from typing import Any

import torch

from benchmarks import qwen3
from benchmarks.cuda_training import Block, Gpt
from benchmarks.figures import Figure

METHOD = (
    "bf16, random weights. Training: processes in turns, median of 20 steps after 8 in each, then the median "
    "of the processes' ratios. Decoding, the diffusion block, generation and prefill: paired in one process, "
    "medians of the rounds' own ratios. Qwen3-0.6B: its public shape in plain torch, the layers operation by "
    "operation as in transformers; its AdamW is the fused one."
)


def _child(model: str, device: str, batch: int, length: int) -> dict[str, Any]:
    program = (
        f"import json; from benchmarks.cuda_training import train; "
        f"print(json.dumps(train({model!r}, {device!r}, {batch}, {length})))"
    )
    # Native CUDA trains only where nothing has claimed the device.
    left_out = () if device == "flagos" else ("FLAGOS_",)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(left_out)}
    if device != "flagos":
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"training {model} on {device} failed:\n{done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _training(
    model: str, batch: int, length: int, at_most: float, turns: int, memory_at_most: float | None = 1.02
) -> list[Figure]:
    """Return the figures of time and of reserved memory; the latter is for information without a limit."""
    ours, theirs = [], []
    for turn in range(turns):
        for device in ("flagos", "cuda") if turn % 2 else ("cuda", "flagos"):
            (ours if device == "flagos" else theirs).append(_child(model, device, batch, length))
    ratios = [a["ms"] / b["ms"] for a, b in zip(ours, theirs, strict=True)]
    native = [run["ms"] for run in theirs]
    shape = f"{batch} × {length}"
    details: dict[str, float | str] = {
        "flagos ms": statistics.median(run["ms"] for run in ours),
        "cuda ms": statistics.median(native),
        "cuda spread": f"{min(native):.2f} to {max(native):.2f} ms",
        "same losses": str(ours[0]["losses"] == theirs[0]["losses"]),
    }
    memory = ours[0]["reserved"] / theirs[0]["reserved"]
    sizes: dict[str, float | str] = {
        "flagos MB": ours[0]["reserved"] / 1e6,
        "cuda MB": theirs[0]["reserved"] / 1e6,
    }
    ratio = statistics.median(ratios)
    return [
        Figure(f"{model} train step, batch {shape}", ratio, "×", at_most, details=details),
        Figure(f"{model} reserved memory, batch {shape}", memory, "×", memory_at_most, details=sizes),
    ]


def _paired(name: str, at_most: float, make: Any, rounds: int) -> Figure:
    """Time the function that `make(device)` gives, on both devices in turns."""
    calls = {device: make(device) for device in ("flagos", "cuda")}
    results = [call().cpu() for call in calls.values()]
    taken: dict[str, list[float]] = {"flagos": [], "cuda": []}
    for turn in range(rounds + 3):
        for device in ("flagos", "cuda") if turn % 2 else ("cuda", "flagos"):
            torch.cuda.synchronize()
            start = time.perf_counter()
            calls[device]()
            torch.cuda.synchronize()
            if turn >= 3:
                taken[device].append(time.perf_counter() - start)
    ratios = [a / b for a, b in zip(taken["flagos"], taken["cuda"], strict=True)]
    details: dict[str, float | str] = {
        "flagos ms": statistics.median(taken["flagos"]) * 1e3,
        "cuda ms": statistics.median(taken["cuda"]) * 1e3,
        "same results": str(torch.equal(*results)),
    }
    return Figure(name, statistics.median(ratios), "×", at_most, details=details)


def _decoding(device: str) -> Any:
    torch.manual_seed(0)
    model = Gpt().to(device, torch.bfloat16).eval()
    token = torch.randint(32000, (1, 64), generator=torch.Generator().manual_seed(1)).to(device)

    def step() -> torch.Tensor:
        with torch.no_grad():
            chosen: torch.Tensor = model(token)[:, -1].argmax(-1)
            return chosen

    return step


def _diffusion(device: str) -> Any:
    torch.manual_seed(0)
    model = Block(1152, 16, causal=False).to(device, torch.bfloat16).eval()
    x = torch.randn(2, 4096, 1152, generator=torch.Generator().manual_seed(1)).to(device, torch.bfloat16)

    def step() -> torch.Tensor:
        with torch.no_grad():
            for _ in range(3):
                model(x)
            mixed: torch.Tensor = model(x)
            return mixed

    return step


def _prompt(model: qwen3.Qwen3, length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(model.tokens.num_embeddings, (1, length), generator=generator)
    return tokens.to(model.tokens.weight.device)


def _generation(device: str) -> Any:
    model = qwen3.build(device).eval()
    prompt = _prompt(model, 32)
    return lambda: qwen3.generate(model, prompt, 32)


def _prefill(device: str) -> Any:
    model = qwen3.build(device).eval()
    prompt = _prompt(model, 512)

    def step() -> torch.Tensor:
        with torch.no_grad():
            scores: torch.Tensor = model(prompt, qwen3.Cache())
            return scores

    return step


def _threads() -> Figure:
    """Count what goes wrong when 8 threads use one pair of tensors."""
    first, second = torch.ones(256, device="flagos"), torch.full((256,), 2.0, device="flagos")
    problems: list[str] = []

    def work() -> None:
        for _ in range(2000):
            try:
                result = first + second
                if {str(first.device), str(second.device), str(result.device)} != {"flagos:0"}:
                    problems.append("device")
            except RuntimeError as error:
                problems.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Figure("errors of 8 threads on one pair of tensors", float(len(problems)), "", at_most=0.0)


def _switching() -> Figure:
    from torch_fl import routes

    x = torch.ones(4, device="flagos")
    taken = []
    with routes.fallback("allow"):
        for turn in range(101):
            start = time.perf_counter()
            routes.set({"sqrt": "cpu" if turn % 2 else "boxed"})
            taken.append((time.perf_counter() - start) * 1e3)
            x.sqrt()
        routes.reset()
    return Figure("switching one operator's route", statistics.median(taken), "ms", at_most=1.0)


def measure(*, quick: bool = False) -> list[Figure]:
    """Return the figures of models. Needs a GPU with the companion."""
    from benchmarks.cuda_machine import on_one_core, require_companion

    require_companion()
    rounds = 10 if quick else 60
    found = []
    with on_one_core():
        found.append(_paired("GPT decode, batch 1, 64 tokens before", 1.04, _decoding, rounds))
        found.append(_paired("diffusion block, 4,096 tokens", 1.01, _diffusion, rounds // 2))
        # A round of it takes more than half a second.
        found.append(_paired("Qwen3-0.6B generate, batch 1, 32 + 32 tokens", 1.03, _generation, rounds // 5))
        found.append(_paired("Qwen3-0.6B prefill, 512 tokens", 1.01, _prefill, rounds // 2))
        found += [_threads(), _switching()]
    turns = 1 if quick else 2
    found += _training("GPT", 16, 1024, 1.01, turns) + _training("GPT", 2, 128, 1.04, turns)
    return found + _training("Qwen3-0.6B", 4, 512, 1.02, turns, memory_at_most=None)
