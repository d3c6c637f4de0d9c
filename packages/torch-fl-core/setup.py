"""Build of torch-fl-core: Python packages by setuptools, native parts by CMake and ninja, both for the
installed torch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "cmake"))

import torch_build  # noqa: E402  (lies beside CMakeLists.txt, which runs it too)


class FreshPython(build_py):
    """Copies the Python packages into an empty tree: a module deleted since the last build must not reach the
    wheel.
    """

    def run(self) -> None:
        """Copy the packages."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class CMakeBuild(build_ext):
    """Builds all native parts in one CMake run, into the wheel's tree or, for an editable install, into
    src.
    """

    def run(self) -> None:
        """Configure, build, and copy the results and the headers to their places."""
        # An editable install is built again and again: its objects must outlive the one command.
        usual = HERE / "build" / "inplace" if self.inplace else self.build_temp
        build = Path(os.environ.get("TORCH_FL_BUILD_DIR", usual)).resolve()
        output = HERE / "src" if self.inplace else build / "out"
        build.mkdir(parents=True, exist_ok=True)
        configure = [
            "cmake", "-S", str(HERE), "-B", str(build), "-G", "Ninja", f"-DFLAGOS_PYTHON={sys.executable}",
            f"-DFLAGOS_OUTPUT_DIR={output}", *os.environ.get("TORCH_FL_CMAKE_ARGS", "").split(),
        ]  # fmt: skip
        jobs = os.environ.get("MAX_JOBS") or str(len(os.sched_getaffinity(0)))
        for command in (configure, ["cmake", "--build", str(build), "--parallel", jobs]):
            print("+", " ".join(command), flush=True)
            subprocess.run(command, check=True)
        # Vendors compile against the headers of the installed core.
        if self.inplace:
            headers = output / "torch_fl_base" / "include"
            if not headers.is_symlink():
                headers.symlink_to(HERE / "include")
        else:
            tree = Path(self.build_lib).resolve()
            shutil.copytree(output, tree, dirs_exist_ok=True)
            shutil.copytree(HERE / "include", tree / "torch_fl_base" / "include", dirs_exist_ok=True)


torch = torch_build.torch_build()
setup(
    version=torch.core_version,
    install_requires=[
        f"torch=={torch.minor}.*",
        "rich>=13",
        "typer>=0.12",
        'tomli>=2; python_version < "3.11"',
    ],
    # Makes the wheel one for this Python and platform; CMakeBuild knows the real targets.
    ext_modules=[Extension("torch_fl._C", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "build_py": FreshPython},
)
