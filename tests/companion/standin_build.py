"""Builds the stand-in companion's library, once for the same sources, compiler and torch."""

from __future__ import annotations

import concurrent.futures
import fcntl
import getpass
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "csrc"


def compiler() -> str | None:
    """Return the C++ compiler's command: $CXX, g++ or c++; None if there is none."""
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")


def build(cache: Path | None = None) -> Path:
    """Return the library for the torch of this Python, from `cache` where the same sources were built before.

    Raises: RuntimeError with the compiler's words, or if there is no compiler.
    """
    command = compiler()
    if command is None:
        raise RuntimeError("the stand-in needs a C++ compiler: neither g++ nor c++ is on the path")
    flags = _flags()
    digest = hashlib.sha256("\0".join([command, *flags, _torch_version()]).encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    folder = (cache or _default_cache()) / digest.hexdigest()[:16]
    library = folder / "libstandin.so"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:  # test processes may build at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _compile(command, flags, folder, library)
    return library


def _default_cache() -> Path:
    given = os.environ.get("STANDIN_CACHE")
    return Path(given) if given else Path(tempfile.gettempdir()) / f"torch-fl-standin-{getpass.getuser()}"


def _torch_version() -> str:
    import torch

    return str(torch.__version__)


def _flags() -> list[str]:
    import torch

    root = Path(torch.__file__).parent
    # As core's build does: the C++ standard is that of torch's own extension builder.
    text = (root / "utils" / "cpp_extension.py").read_text(encoding="utf-8")
    standards = re.findall(r"""['"]-std=c\+\+(\d+)['"]""", text)
    standard = max(set(standards), key=standards.count)
    includes = [root / "include", root / "include" / "torch" / "csrc" / "api" / "include"]
    return [
        f"-std=c++{standard}",
        "-O1",
        "-g0",
        "-fPIC",
        "-fvisibility=hidden",
        "-Wall",
        "-Wextra",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-isystem{path}" for path in includes),
    ]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the stand-in does not build\n{' '.join(command)}\n{done.stderr}")


def _compile(command: str, flags: list[str], folder: Path, library: Path) -> None:
    import torch

    # Parsing ATen is most of the work; the first compilation does it for all.
    header = folder / "precompiled.h"
    shutil.copy2(SOURCES / "precompiled.h", header)
    _run([*command.split(), *flags, "-x", "c++-header", str(header), "-o", f"{header}.gch"])
    sources = sorted(SOURCES.glob("*.cpp"), key=lambda path: -path.stat().st_size)
    objects = [folder / f"{path.stem}.o" for path in sources]
    commands = [
        [*command.split(), *flags, "-include", str(header), "-c", str(source), "-o", str(target)]
        for source, target in zip(sources, objects, strict=True)
    ]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_run, commands))
    torch_library = Path(torch.__file__).parent / "lib"
    unfinished = library.with_suffix(".new")
    link = [*command.split(), "-shared", "-Wl,-s", *map(str, objects), "-o", str(unfinished)]
    link += [str(torch_library / "libc10.so"), str(torch_library / "libtorch_cpu.so")]
    # torch brings the shared C++ library; an archive beside it, which some compilers link, breaks both.
    shared = subprocess.run(
        [*command.split(), "-print-file-name=libstdc++.so.6"], capture_output=True, text=True, check=False
    ).stdout.strip()
    link += [shared] if os.path.isabs(shared) else []
    _run([*link, f"-Wl,-rpath,{torch_library}", f"-Wl,-rpath-link,{torch_library}", "-Wl,--no-undefined"])
    unfinished.replace(library)
    for path in [*objects, Path(f"{header}.gch")]:
        path.unlink()


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
