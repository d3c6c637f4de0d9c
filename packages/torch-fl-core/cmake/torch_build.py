"""What a build of core must know of the PyTorch it is built for.

Used by setup.py (version, requirement) and, as a script, by CMakeLists.txt, which reads the lines
`NAME=value` it prints. One place, so that a wheel's name, its metadata and its compiler flags can never be of
two different torches.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent

#: The n of core's version `<torch minor>.<n>`; one more with every release of the same sources.
RELEASE = 0
#: The torch minors these sources are built and smoke-tested for (`nox -s minors`).
OLDEST, NEWEST = (2, 10), (2, 15)

NO_TORCH = """torch-fl-core is built against the PyTorch of this environment, and there is none in {python}.
Install PyTorch first, then build without isolation, so that the build sees it:
    pip install "torch=={newest}.*"
    pip install --no-build-isolation torch-fl-core"""


class BuildError(SystemExit):
    """The environment cannot build core; the text says why and what to do."""


@dataclasses.dataclass(frozen=True)
class TorchBuild:
    """The installed PyTorch, as far as compiling and naming core depend on it."""

    version: str
    minor: str
    cxx_standard: int
    cxx11_abi: bool
    include_dirs: tuple[str, ...]
    library_dir: str

    @property
    def core_version(self) -> str:
        """Core's version for this torch: `<torch minor>.<n>`."""
        return f"{self.minor}.{RELEASE}"


def torch_build() -> TorchBuild:
    """Return the facts of the installed torch. Imports torch without its device plugins.

    Raises: BuildError if torch is missing, or is of a minor these sources are not made for.
    """
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = (
        "0"  # a plugin (an older core, perhaps broken) must not run in its own build
    )
    try:
        import torch
        from torch.utils import cpp_extension
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise BuildError(NO_TORCH.format(python=sys.executable, newest="2.13")) from None
    version = str(torch.__version__)
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        raise BuildError(f"torch-fl-core: cannot read the version of torch: {version!r}")
    minor = (int(numbers[1]), int(numbers[2]))
    if not OLDEST <= minor <= NEWEST and os.environ.get("TORCH_FL_ANY_TORCH") != "1":
        raise BuildError(
            f"torch-fl-core: these sources are made for torch {OLDEST[0]}.{OLDEST[1]} to "
            f"{NEWEST[0]}.{NEWEST[1]}; this environment has {version}. "
            "Set TORCH_FL_ANY_TORCH=1 to try all the same."
        )
    return TorchBuild(
        version=version,
        minor=f"{minor[0]}.{minor[1]}",
        cxx_standard=_cxx_standard(Path(cpp_extension.__file__).read_text(encoding="utf-8")),
        cxx11_abi=bool(torch.compiled_with_cxx11_abi()),
        include_dirs=tuple(cpp_extension.include_paths()),
        library_dir=str(Path(torch.__file__).parent / "lib"),
    )


def _cxx_standard(source: str) -> int:
    """Return the C++ standard that this torch's own extension builder passes (it has no function that
    tells).
    """
    found = collections.Counter(re.findall(r"""['"]-std=c\+\+(\d+)['"]""", source))
    if not found:
        raise BuildError(
            "torch-fl-core: torch.utils.cpp_extension names no C++ standard; is this PyTorch complete?"
        )
    return int(found.most_common(1)[0][0])


def compiler_version(compiler: str) -> str:
    """Return the first line of `<compiler> --version`."""
    command = [*compiler.split(), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def hal_abi() -> list[int]:
    """Return major and minor of the HAL ABI in hal.h."""
    header = (PACKAGE / "include" / "flagos" / "hal.h").read_text(encoding="utf-8")
    found = dict(re.findall(r"#define FLAGOS_HAL_ABI_(MAJOR|MINOR) (\d+)u", header))
    return [int(found["MAJOR"]), int(found["MINOR"])]


def source_hash() -> str:
    """Return a hash of everything a build of core reads from this folder."""
    digest = hashlib.sha256()
    folders = ("csrc", "include", "cmake")
    files = [PACKAGE / "CMakeLists.txt", PACKAGE / "setup.py", PACKAGE / "pyproject.toml"]
    files += sorted(
        p for f in folders for p in (PACKAGE / f).rglob("*") if p.is_file() and "__pycache__" not in p.parts
    )
    for path in files:
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def write_build_record(path: Path, torch: TorchBuild, compiler: str, flags: str) -> None:
    """Write `torch_fl_base/compatibility.json`: what this core was built for, read before any C++ symbol is
    needed.
    """
    record = {
        "package": "torch-fl-core",
        "version": torch.core_version,
        "library": True,  # the reference backend's
        "torch": torch.version,
        "torch_minor": torch.minor,
        "hal_abi": hal_abi(),
        "cxx11_abi": torch.cxx11_abi,
        "cxx_standard": torch.cxx_standard,
        "python": platform.python_version(),
        "extension_suffix": sysconfig.get_config_var("EXT_SUFFIX"),
        "machine": platform.machine(),
        "compiler": compiler,
        "flags": flags,
        "sources": source_hash(),
    }
    text = json.dumps(record, indent=2) + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> None:
    """Print the facts for CMake and keep them in the file given as the one argument.

    With `--record <facts> <path> <compiler> <flags>`: write the build record, from those facts (without
    importing torch).
    """
    if arguments[0] == "--record":
        _, facts, path, compiler, flags = arguments
        torch = TorchBuild(**json.loads(Path(facts).read_text(encoding="utf-8")))
        write_build_record(Path(path), torch, compiler_version(compiler), flags)
        return
    torch = torch_build()
    Path(arguments[0]).write_text(json.dumps(dataclasses.asdict(torch)), encoding="utf-8")
    print(f"FLAGOS_TORCH_VERSION={torch.version}")
    print(f"FLAGOS_TORCH_CXX_STANDARD={torch.cxx_standard}")
    print(f"FLAGOS_TORCH_CXX11_ABI={int(torch.cxx11_abi)}")
    print(f"FLAGOS_TORCH_INCLUDE_DIRS={';'.join(torch.include_dirs)}")
    print(f"FLAGOS_TORCH_LIBRARY_DIR={torch.library_dir}")
    print(f"FLAGOS_PYTHON_INCLUDE_DIR={sysconfig.get_path('include')}")
    print(f"FLAGOS_EXTENSION_SUFFIX={sysconfig.get_config_var('EXT_SUFFIX')}")


if __name__ == "__main__":
    main(sys.argv[1:])
