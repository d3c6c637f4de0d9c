"""Operators from Python, `flagos` against `cpu`: what one call costs on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.figures import Figure
from benchmarks.paired import compare

METHOD = (
    "Processor time of the process, one PyTorch thread. Per case 41 rounds of about 10 ms for each device in "
    "turns in one process; ns are medians of rounds, ratios medians of the rounds' own ratios."
)


@dataclass(frozen=True)
class Case:
    """A statement and the most it may cost, as a multiple of CPU's time."""

    name: str
    statement: str
    at_most: float | None = None


CASES = (
    Case("add, 1 element", "add(one, one)", 1.25),
    Case("empty, 1 element", "empty(1, device=device)", 1.3),
    Case("empty, 3 × 4", "empty(3, 4, device=device)", 1.3),
    Case("view", "square.view(4096)", 1.05),
    Case("transpose", "square.t()", 1.05),
    Case("slice", "square[1:3]", 1.05),
    Case("permute", "cube.permute(2, 0, 1)", 1.05),
    Case("expand", "row.expand(64, 64)", 1.05),
    Case("select", "square[5]", 1.05),
    Case("add_, 1 element", "one_more.add_(one)"),
    Case("add with a number", "one + 1.0"),
    Case("mul, 64 × 64", "square * square"),
    Case("add, 1 M elements", "big + big"),
    Case("item", "one.item()"),
    Case("sum, 64 × 64", "square.sum()"),
    Case("mm, 64 × 64", "mm(square, square)"),
    Case("mm, 512 × 512", "mm(large, large)"),
    Case("addmm, 64 × 64", "addmm(row, square, square)"),
    Case("softmax, 64 × 64", "square.softmax(-1)"),
    Case("layer_norm, 64 × 64", "layer_norm(square, (64,))"),
    Case("cat of two", "cat((square, square))"),
    Case("index by 64", "square[indices]"),
    Case("zeros, 64 × 64", "zeros(64, 64, device=device)"),
    Case("clone, 64 × 64", "square.clone()"),
    Case("copy_, 64 × 64", "target.copy_(square)"),
    Case("conversion to half", "square.half()"),
    Case("foreach add_, 50 tensors", "foreach_add_(many, 1.0)"),
    Case("foreach mul, 50 tensors", "foreach_mul(many, 0.5)"),
    Case("rand, 64", "rand(64, device=device)"),
    Case("backward of a product", "(leaf * leaf).sum().backward()"),
)


def _names(device: str) -> dict[str, Any]:
    square = torch.rand(64, 64, device=device)
    return {
        "device": torch.device(device),
        "add": torch.add,
        "addmm": torch.addmm,
        "cat": torch.cat,
        "empty": torch.empty,
        "zeros": torch.zeros,
        "rand": torch.rand,
        "mm": torch.mm,
        "layer_norm": torch.nn.functional.layer_norm,
        "foreach_add_": torch._foreach_add_,
        "foreach_mul": torch._foreach_mul,
        "one": torch.ones(1, device=device),
        "one_more": torch.ones(1, device=device),
        "row": torch.rand(1, 64, device=device),
        "square": square,
        "target": torch.empty_like(square),
        "cube": torch.rand(16, 16, 16, device=device),
        "large": torch.rand(512, 512, device=device),
        "big": torch.rand(1_000_000, device=device),
        "indices": torch.arange(64, device=device),
        "many": [torch.rand(64, device=device) for _ in range(50)],
        "leaf": torch.rand(64, device=device, requires_grad=True),
    }


def _copies(quick: bool) -> list[Figure]:
    """Return what moving 4 MiB costs, against a copy on CPU."""
    host, mine = torch.rand(1 << 20), torch.empty(1 << 20, device="flagos")
    pinned = torch.rand(1 << 20).pin_memory()
    theirs = {"to": torch.empty(1 << 20), "from_": host, "wait": lambda: None}
    wait = torch.flagos.synchronize  # type: ignore[attr-defined]
    cases = {
        "copy 4 MiB, host to device": {"to": mine, "from_": host},
        "copy 4 MiB, pinned to device": {"to": mine, "from_": pinned},
        "copy 4 MiB, device to host": {"to": host.clone(), "from_": mine},
        "copy 4 MiB, within a device": {"to": torch.empty_like(mine), "from_": mine},
    }
    if torch.flagos.device_count() > 1:  # type: ignore[attr-defined]
        cases["copy 4 MiB, between devices"] = {"to": mine.to("flagos:1"), "from_": mine}
    found = []
    for name, ours in cases.items():
        pair = compare("to.copy_(from_); wait()", {**ours, "wait": wait}, theirs, rounds=9 if quick else 31)
        found.append(Figure(name, pair.ratio, "×", details={"flagos ns": pair.ours, "cpu ns": pair.theirs}))
    return found


def measure(*, quick: bool = False) -> list[Figure]:
    """Return one figure per case: flagos' time as a multiple of CPU's."""
    import torch_fl  # noqa: F401

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        ours, theirs = _names("flagos"), _names("cpu")
        found = []
        for case in CASES:
            pair = compare(case.statement, ours, theirs, rounds=9 if quick else 41)
            details: dict[str, float | str] = {
                "flagos ns": pair.ours,
                "cpu ns": pair.theirs,
                "added ns": pair.ours - pair.theirs,
                "spread": f"± {100 * pair.spread:.1f} %",
            }
            found.append(Figure(case.name, pair.ratio, "×", at_most=case.at_most, details=details))
        return found + _copies(quick)
    finally:
        torch.set_num_threads(threads)
