"""The command line of the op level: `run` it, `report` a result, make the `docs` page."""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch_fl.testing.ops import expected, pages, results
from torch_fl.testing.ops.attempt import Config
from torch_fl.testing.ops.database import CHECKS, Job, all_jobs, ci_jobs, select
from torch_fl.testing.ops.runner import Entry, Runner, WorkersDoNotStart

_MODULE = "torch_fl.testing.ops"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    run = commands.add_parser("run", help="run entries and write a result file")
    run.add_argument(
        "--device", default="flagos", help="device under test (default: flagos); cpu compares CPU with itself"
    )
    run.add_argument(
        "--reference",
        default="cpu",
        help="device whose results are right (default: cpu); cuda where flagos runs CUDA's own kernels",
    )
    run.add_argument(
        "--slice", choices=["ci", "full"], default="full", help="the fixed part for CI, or everything"
    )
    run.add_argument(
        "--ops", action="append", default=[], metavar="PATTERN", help="operators, shell-style; repeatable"
    )
    run.add_argument(
        "--dtypes", action="append", default=[], metavar="PATTERN", help="data types; repeatable"
    )
    run.add_argument(
        "--checks", action="append", default=[], metavar="PATTERN", help=f"of {', '.join(CHECKS)}"
    )
    run.add_argument(
        "--tolerance", action="store_true", help="compare within torch.testing's tolerance, not bit for bit"
    )
    run.add_argument("--max-samples", type=int, help="samples per operator and check (default: 48; ci: 6)")
    run.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    run.add_argument("--timeout", type=float, default=120.0, help="seconds one check may take (default: 120)")
    run.add_argument("--expected", type=Path, default=expected.DEFAULT_LIST, help="list of expected failures")
    run.add_argument("--output", type=Path, help="result file to write")
    run.add_argument("--list", action="store_true", help="print the entries chosen and run nothing")

    report = commands.add_parser("report", help="print a result file")
    report.add_argument("result", type=Path)
    report.add_argument("--group", action="store_true", help="group failures by message")

    docs = commands.add_parser("docs", help="make the coverage page from result files")
    docs.add_argument("results", type=Path, nargs="+")
    docs.add_argument("--page", type=Path, required=True, help="the page to write")
    docs.add_argument(
        "--check", action="store_true", help="write nothing; fail if the page is not what would be written"
    )

    worker = commands.add_parser("worker")
    worker.add_argument("--reply-fd", type=int, required=True)
    worker.add_argument("--mark", type=Path, required=True)
    worker.add_argument("--config", required=True)
    return parser


_ASKS_FOR_MODE = """
import torch, torch_fl
torch.flagos.init()
used = [r for r in torch_fl._C.devices.backend_records() if r["state"] == "selected"]
first = min(used, key=lambda record: record["first_device"])
by_companion = torch_fl.companion(torch.device("flagos", first["first_device"])) is not None
print("companion" if by_companion else "zero-copy" if first["host_access"] == "coherent" else "staged")
"""


def memory_mode(device: str) -> str:
    """Return how operators reach device 0: by its `companion`, by the host `zero-copy`, or by the host
    `staged`, where it cannot touch the device's memory.

    Asked in a process of its own: this one starts workers, and opens no device.
    """
    if device == "cpu":
        return "zero-copy"
    done = subprocess.run([sys.executable, "-c", _ASKS_FOR_MODE], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the device cannot be opened:\n{done.stderr}")
    return done.stdout.strip()


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[Entry, Counter[str]], None]]:
    """Yield a function to call with every outcome: a bar on a terminal, a line now and then elsewhere."""
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
    except ImportError:
        console = None
    else:
        console = Console(stderr=True)
    if console is None or not console.is_terminal:
        last = time.monotonic()

        def line(entry: Entry, counts: Counter[str]) -> None:
            nonlocal last
            done = sum(counts.values())
            if entry.status in _TOLD:
                print(_line(entry), file=sys.stderr, flush=True)
            if time.monotonic() - last > 20 or done == total:
                last = time.monotonic()
                print(f"{done}/{total} {_counted(counts)} at {entry.op}", file=sys.stderr, flush=True)

        yield line
        return
    columns = [
        TextColumn("[bold]ops"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[counts]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    ]
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=total, counts="")

        def advance(entry: Entry, counts: Counter[str]) -> None:
            if entry.status in _TOLD:
                progress.console.print(_line(entry), style="red", markup=False)
            progress.update(task, advance=1, description=entry.op[:30], counts=_counted(counts))

        yield advance


# What is told as it happens, so that a run that is stopped was not in vain.
_TOLD = ("fail", "crash", "timeout")


def _line(entry: Entry) -> str:
    return f"{entry.status:8} {entry.op}:{entry.dtype}:{entry.check} {entry.message}"[:400]


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def _chosen(options: argparse.Namespace) -> list[Job]:
    jobs = ci_jobs() if options.slice == "ci" else all_jobs()
    return select(jobs, options.ops, options.dtypes, options.checks)


def _run(options: argparse.Namespace, arguments: list[str]) -> int:
    try:
        jobs = _chosen(options)
    except ValueError as error:
        print(f"{_MODULE}: {error}", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(f"{job.op}:{job.dtype}:{check}" for job in jobs for check in job.checks))
        return 0
    expectations = expected.load(options.expected)
    samples = options.max_samples or (6 if options.slice == "ci" else 48)
    config = Config(
        device=options.device,
        reference=options.reference,
        exact=not options.tolerance,
        max_samples=samples,
    )
    entries: list[Entry] = []
    counts: Counter[str] = Counter()
    started = time.monotonic()
    mode = memory_mode(options.device)
    with _progress(sum(len(job.checks) for job in jobs)) as show:

        def on_entry(entry: Entry) -> None:
            known = expected.apply([entry], expectations, mode)[0]
            entries.append(known)
            counts[known.status] += 1
            show(known, counts)

        try:
            Runner(config, options.workers, options.timeout, on_entry).run(jobs)
        except WorkersDoNotStart as error:
            print(f"{_MODULE}: {error}", file=sys.stderr)
            return 2
    whole = options.slice == "full" and not (options.ops or options.dtypes or options.checks)
    selection = options.slice if not (options.ops or options.dtypes or options.checks) else "part"
    result = results.document(
        entries,
        device=options.device,
        mode=mode,
        selection=selection,
        exact=config.exact,
        reference=config.reference,
        seconds=time.monotonic() - started,
        arguments=_without_paths(arguments),
    )
    if options.output:
        results.write(result, options.output)
    _print(result, grouped=False)
    stale = expected.unused(entries, expectations, mode) if whole else []
    for item in stale:
        print(
            f"no entry matches the expected failure {list(item.ops)} {list(item.dtypes)} {list(item.checks)}"
        )
    return 0 if results.green(result) and not stale else 1


def _without_paths(arguments: list[str]) -> list[str]:
    """Return the arguments with absolute paths cut to their last part: a result names no folder of one
    machine."""
    return [Path(word).name if word.startswith("/") else word for word in arguments]


def _print(result: dict[str, Any], *, grouped: bool) -> None:
    bad = [item for item in result["not_passed"] if item["status"] in expected.BAD]
    if grouped:
        groups: dict[str, list[str]] = {}
        for item in bad:
            text = item["message"].split("sample", 1)[-1].split(":", 1)[-1].strip()
            groups.setdefault(f"{item['status']}: {text[:110]}", []).append(item["entry"])
        for text, names in sorted(groups.items(), key=lambda pair: -len(pair[1])):
            print(f"{len(names):5} {text}\n      {' '.join(names[:6])}")
    else:
        for item in bad:
            print(f"{item['status']:8} {item['entry']} {item['message']}")
    print(
        f"\n{result['mode']} {result['device']}, {result['selection']}, "
        f"{result['seconds']:.0f} s, {result['calls']} pairs of calls"
    )
    for name, counts in [*result["by_dtype"].items(), ("all", result["totals"])]:
        of = results.attempted(counts)
        rest = ", ".join(f"{n} {status}" for status, n in counts.items() if n and status != "pass")
        print(f"  {name:16} {counts['pass']:6} of {of:6} pass{'; ' + rest if rest else ''}")


def _docs(options: argparse.Namespace) -> int:
    text = pages.page([(str(path), results.read(path)) for path in options.results])
    if not options.check:
        options.page.parent.mkdir(parents=True, exist_ok=True)
        options.page.write_text(text, encoding="utf-8")
        return 0
    present = options.page.read_text(encoding="utf-8") if options.page.exists() else None
    if present == text:
        return 0
    print(
        f"{options.page} is not what its result files give; run the command without --check", file=sys.stderr
    )
    return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status (0 green, 1 not green, 2 not run)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(words)
    if options.command == "worker":
        from torch_fl.testing.ops.worker import serve

        serve(options.reply_fd, options.mark, Config(**json.loads(options.config)))
        return 0
    if options.command == "run":
        return _run(options, words)
    if options.command == "docs":
        return _docs(options)
    try:
        _print(results.read(options.result), grouped=options.group)
    except (OSError, ValueError) as error:
        print(f"{_MODULE}: {error}", file=sys.stderr)
        return 2
    return 0
