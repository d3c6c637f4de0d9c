"""The documentation page of the op level, made from result files and from nothing else."""

from __future__ import annotations

from typing import Any

from torch_fl.testing.ops.results import attempted

_HEAD = """\
# Operator coverage

Made by `python -m torch_fl.testing.ops docs` from the result files named below; do not edit.

Every operator of PyTorch's OpInfo database runs on the device and on CPU with the same inputs, in every data
type that CPU supports for it. An entry is one check of one operator with one data type:

| check | compared |
|---|---|
| forward | results of PyTorch's samples: values, type, shape, strides, shared memory, changed arguments |
| strided | the same with interleaved and with column-major memory |
| edge | the same with every tensor emptied, and with every tensor 0-dim; where CPU raises, the device must |
| conj_neg | the same with the conjugate bit and with the negative bit set |
| out | `out=` of the right size, a wrong one (resized, with the warning), none, strided, of another type |
| inplace | the in-place variant: result, identity, address, version counter, gaps between elements |
| backward | gradients, for the same random gradients of the results |
| gradgrad | second derivatives (float64) |
| forward_ad | forward-mode derivatives (float64) |
| errors | PyTorch's error inputs: type and text of the error |

Random operators are compared by form, reproducibility per seed, difference between seeds, and distribution.
An entry is skipped where CPU itself gives no reference (it raises on every sample).
"""


def _share(counts: dict[str, int]) -> str:
    of = attempted(counts)
    return f"{counts['pass']:,} of {of:,} ({100 * counts['pass'] / of:.2f} %)" if of else "none"


def _table(title: str, groups: dict[str, dict[str, int]]) -> list[str]:
    lines = [
        f"| {title} | pass | expected failure | unsupported | fail, crash, time-out | skipped |",
        "|---|---|---|---|---|---|",
    ]
    for name, counts in groups.items():
        failed = sum(counts[status] for status in ("fail", "crash", "timeout", "surprise"))
        lines.append(
            f"| {name} | {_share(counts)} | {counts['expected']} | {counts['unsupported']} "
            f"| {failed} | {counts['skip']} |"
        )
    return lines


def _section(name: str, result: dict[str, Any]) -> list[str]:
    hardware, versions = result["hardware"], result["versions"]
    devices = ", ".join(sorted({str(device["name"]) for device in hardware["devices"]})) or "none"
    lines = [
        f"## {result['mode']}: {_share(result['totals'])}",
        "",
        f"`{result['command']}` on {result['date'][:10]}, {result['seconds']:.0f} s: "
        f"{result['operators']} operators, "
        f"{result['calls']:,} pairs of calls, compared {result['comparison']}.",
        f"Devices: {devices}; host {hardware['cpu']}, {hardware['cores']} cores. "
        + ", ".join(f"{key} {value}" for key, value in versions.items() if value)
        + f". File: `{name}`.",
        "",
        *_table("data type", result["by_dtype"]),
        "",
        *_table("check", result["by_check"]),
        "",
    ]
    missing = result["not_passed"]
    if missing:
        lines += [
            f"### Not passed in mode {result['mode']}",
            "",
            "| entry | status | reason |",
            "|---|---|---|",
        ]
        for item in missing:
            reason = item["message"].replace("|", "\\|")
            lines.append(f"| `{item['entry']}` | {item['status']} | {reason[:200]} |")
        lines.append("")
    return lines


def page(named_results: list[tuple[str, dict[str, Any]]]) -> str:
    """Return the page's text.

    Args:
        named_results: file name as the page should show it, and the file's content; one section each, in this
            order.
    """
    lines = [_HEAD]
    for name, result in named_results:
        lines += _section(name, result)
    return "\n".join(lines).rstrip() + "\n"
