"""The hot path in C++: router, guard, boxing, allocator, pinned memory. Compiles benchmarks/csrc against the
installed libtorch_fl."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure

METHOD = (
    "C++, -O2, linked with libtorch_fl; medians of 7 or more repetitions. Allocator hits: processor time per "
    "allocate-and-free pair, since threads outnumber cores."
)
ROOT = Path(__file__).resolve().parent.parent
SOURCES = Path(__file__).with_name("csrc")


def _core_folders() -> tuple[Path, Path]:
    """Return the folders of torch_fl and torch_fl_base as installed."""
    import torch_fl
    import torch_fl_base

    assert torch_fl.__file__ is not None
    assert torch_fl_base.__file__ is not None
    return Path(torch_fl.__file__).parent, Path(torch_fl_base.__file__).parent


def compiled(name: str) -> Path:
    """Return the program made from csrc/<name>.cpp; compiles it where source or library changed."""
    import torch
    from torch.utils import cpp_extension

    core, _ = _core_folders()
    library = core / "lib" / "libtorch_fl.so"
    source = SOURCES / f"{name}.cpp"
    folder = ROOT / ".cache" / "benchmarks"
    package = ROOT / "packages" / "torch-fl-core"
    torch_library = Path(torch.__file__).parent / "lib"
    compiler = os.environ.get("CXX", "ccache g++" if shutil.which("ccache") else "g++").split()
    command = [*compiler, "-std=c++20", "-O2", f"-I{package}", f"-I{package / 'include'}"]
    command += [f"-isystem{path}" for path in cpp_extension.include_paths()]
    command += [f"-isystem{sysconfig.get_paths()['include']}"]
    command += [
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        str(source),
    ]
    # Old tags: libtorch_fl itself does not know where torch lies, and only DT_RPATH holds for what it needs.
    command += ["-Wl,--no-as-needed", "-Wl,--disable-new-dtags"]
    command += [f"-Wl,-rpath,{library.parent}", f"-Wl,-rpath,{torch_library}"]
    command += [str(library), f"-L{torch_library}", "-lc10", "-ltorch_cpu", "-lpthread"]
    seen = source.read_bytes() + library.read_bytes() + " ".join([torch.__version__, *command]).encode()
    program = folder / f"{name}-{hashlib.sha256(seen).hexdigest()[:16]}"
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    command += ["-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{source.name} does not compile:\n{done.stderr[-3000:]}")
    return program


def _run(name: str, *arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run([compiled(name), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def _hot_path(library: str) -> list[Figure]:
    targets = {"router look-up": 10.0, "guard: exchange of the same device": 5.0}
    return [
        Figure(row["case"], row["ns"], "ns", at_most=targets.get(row["case"]))
        for row in _run("hot_path_bench", library)
    ]


def _allocator(library: str, seconds: float) -> list[Figure]:
    rows = _run("allocator_bench", library, "reference", str(seconds))
    by_case = {
        (row["case"], row["bytes"], row["threads"]): row for row in rows if row["pattern"] == "allocate, free"
    }
    found = []
    for (case, size, threads), row in by_case.items():
        if case != "caching":
            continue
        raw = by_case["hal", size, threads]
        name = f"{size >> 10} KiB, {threads} thread{'s' if threads > 1 else ''}"
        hit = row["cpu_ns_per_pair"]
        found.append(
            Figure(
                f"allocator hit and free, {name}",
                hit,
                "ns",
                at_most=150.0 if threads == 1 else None,
                details={"elapsed ns": row["ns_per_pair"]},
            )
        )
        found.append(
            Figure(
                f"raw HAL over allocator, {name}",
                raw["ns_per_pair"] / row["ns_per_pair"],
                "×",
                at_least=5.0 if threads == 8 else None,
                details={"raw elapsed ns": raw["ns_per_pair"], "raw ns": raw["cpu_ns_per_pair"]},
            )
        )
    return found


def _boxing(library: str) -> list[Figure]:
    """Return what a call by the companion's kernel costs over the kernel called directly."""
    return [
        Figure(
            f"boxing adds to {row['case']}", row["added_ns"], "ns", details={"native ns": row["native_ns"]}
        )
        for row in _run("boxing_bench", library)
    ]


def measure(*, quick: bool = False) -> list[Figure]:
    """Return figures of the router, the guard, boxing, the allocators."""
    library = str(_core_folders()[1] / "lib" / "libflagos_hal_reference.so")
    return _hot_path(library) + _boxing(library) + _allocator(library, 0.05 if quick else 0.3)
