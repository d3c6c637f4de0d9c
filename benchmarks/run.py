"""Measure core, compare with targets: `python -m benchmarks.run [name…]`; by default all without a GPU."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import cuda_eager, cuda_models, eager, figures, imports, native, sizes, training

BENCHMARKS: dict[str, tuple[str, Callable[..., list[figures.Figure]], str]] = {
    "eager": ("Operators from Python, flagos against cpu", eager.measure, eager.METHOD),
    "training": ("Train step of the demo, flagos against cpu", training.measure, training.METHOD),
    "imports": ("Cost of import", imports.measure, imports.METHOD),
    "native": ("Hot path in C++", native.measure, native.METHOD),
    "sizes": ("Sizes", sizes.measure, sizes.METHOD),
    "cuda_eager": ("Operators from Python, flagos against cuda", cuda_eager.measure, cuda_eager.METHOD),
    "cuda_models": ("Models, flagos against cuda", cuda_models.measure, cuda_models.METHOD),
}
NEEDS_GPU = ("cuda_eager", "cuda_models")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks named; the exit status is 1 with `--strict` if a target is missed, 2 if one did not
    run."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"of {', '.join(BENCHMARKS)}; default: all that need no GPU"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few rounds: shows that it works, gives no evidence"
    )
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    parser.add_argument("--output", type=Path, default=figures.RESULTS, help="folder of the result files")
    options = parser.parse_args(words)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    console = Console() if sys.stdout.isatty() else Console(width=130)
    missed = failed = 0
    for name in options.names or [name for name in BENCHMARKS if name not in NEEDS_GPU]:
        title, measure, method = BENCHMARKS[name]
        with console.status(f"measuring: {title}"):
            try:
                found = measure(quick=options.quick)
            except RuntimeError as error:
                console.print(f"[red]{name} did not run:[/] {error}")
                failed += 1
                continue
        figures.show(title, found, console)
        missed += sum(figure.met is False for figure in found)
        if not options.quick:
            command = [word for word in words if not word.startswith("/")]
            console.print(f"→ {figures.write(name, found, method, command, options.output).name}\n")
    console.print(f"{missed} target{'s' if missed != 1 else ''} missed, {failed} not measured")
    return 2 if failed else int(bool(options.strict and missed))


if __name__ == "__main__":
    sys.exit(main())
