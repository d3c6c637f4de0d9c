"""Operators from Python on a GPU, `flagos` in companion mode against `cuda`: what one call costs the host."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.figures import Figure
from benchmarks.paired import Pair, compare

METHOD = (
    "Time of the calling thread, which is bound to one core. Per case 61 rounds of about 6 ms for each "
    "device in turns in one process, the queue drained before each; ratios are medians of the rounds' own "
    "ratios. The spread is that of cuda against itself in the same run: a target is met when the ratio lies "
    "within it or within that spread of 1."
)


@dataclass(frozen=True)
class Case:
    """A statement and the most it may cost, as a multiple of native CUDA's time."""

    name: str
    statement: str
    at_most: float


CASES = (
    Case("add, 1 element", "add(one, one)", 1.03),
    Case("mul, 1 element", "mul(one, one)", 1.03),
    Case("add_, 1 element", "one_more.add_(one)", 1.03),
    Case("mm, 16 × 16", "mm(small, small)", 1.03),
    Case("sum", "square.sum()", 1.03),
    Case("layer_norm", "layer_norm(square, (64,), weight, bias)", 1.03),
    Case("softmax", "square.softmax(-1)", 1.03),
    Case("cat of two", "cat((square, square))", 1.03),
    Case("embedding", "embedding(indices, square)", 1.03),
    Case("view", "square.view(4096)", 1.02),
    Case("transpose", "square.t()", 1.02),
    Case("slice", "square[1:3]", 1.02),
    Case("empty, 1 element", "empty(1, device=device)", 1.0),
    Case("copy_, contiguous", "target.copy_(square)", 1.0),
    Case("host to device, 1 number", "one_more.copy_(host_one)", 1.0),
    Case("device to host, 1 number", "host_one.copy_(one_more)", 1.0),
    Case("item", "one.item()", 1.0),
    Case("index_put_, 128 × 64", "table.index_put_((rows,), values)", 1.04),
    Case("attention, causal", "attention(query, query, query, is_causal=True)", 1.04),
    Case("foreach add_, 50 tensors", "foreach_add_(many, 1.0)", 1.10),
)


def _names(device: str) -> dict[str, Any]:
    functional = torch.nn.functional
    square = torch.rand(64, 64, device=device)
    return {
        "device": torch.device(device),
        "add": torch.add,
        "mul": torch.mul,
        "mm": torch.mm,
        "cat": torch.cat,
        "empty": torch.empty,
        "layer_norm": functional.layer_norm,
        "embedding": functional.embedding,
        "attention": functional.scaled_dot_product_attention,
        "foreach_add_": torch._foreach_add_,
        "one": torch.ones(1, device=device),
        "one_more": torch.ones(1, device=device),
        "host_one": torch.ones(1),
        "small": torch.rand(16, 16, device=device),
        "square": square,
        "target": torch.empty_like(square),
        "weight": torch.rand(64, device=device),
        "bias": torch.rand(64, device=device),
        "indices": torch.arange(64, device=device),
        "table": torch.zeros(128, 64, device=device),
        "rows": torch.arange(32, device=device),
        "values": torch.rand(32, 64, device=device),
        "query": torch.rand(2, 8, 128, 64, device=device, dtype=torch.bfloat16),
        "many": [torch.rand(64, device=device) for _ in range(50)],
        "wait": torch.cuda.synchronize,
    }


def _pair(case: Case, ours: dict[str, Any], theirs: dict[str, Any], quick: bool) -> Pair:
    return compare(
        case.statement,
        ours,
        theirs,
        rounds=9 if quick else 61,
        seconds_per_round=0.006,
        setup="wait()",
        clock=time.perf_counter,
    )


def measure(*, quick: bool = False) -> list[Figure]:
    """Return one figure per case: flagos' time as a multiple of CUDA's. Needs a GPU with the companion."""
    from benchmarks.cuda_machine import on_one_core, require_companion

    require_companion()
    found = []
    with on_one_core():
        ours, theirs, again = _names("flagos"), _names("cuda"), _names("cuda")
        for case in CASES:
            pair, native = _pair(case, ours, theirs, quick), _pair(case, again, theirs, quick)
            noise = max(abs(native.ratio - 1), native.spread)
            details: dict[str, float | str] = {
                "flagos ns": pair.ours,
                "cuda ns": pair.theirs,
                "added ns": pair.ours - pair.theirs,
                "spread": f"± {100 * pair.spread:.1f} %",
                "cuda against cuda": f"{native.ratio:.3f} ± {100 * native.spread:.1f} %",
            }
            limit = max(case.at_most, 1 + noise)
            found.append(Figure(case.name, pair.ratio, "×", at_most=round(limit, 3), details=details))
    return found
