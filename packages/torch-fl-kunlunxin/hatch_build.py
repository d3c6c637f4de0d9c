"""Builds the package's HAL library into its wheel, and takes core's headers into its source distribution.

The file is the same in every vendor package (a test compares). A package without csrc/ has no library
yet: its wheel is pure Python.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class VendorBuild(BuildHookInterface):  # type: ignore[type-arg]
    """The build hook of both targets."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add what is not in the tree to the build."""
        if version == "editable" and not self._sources():
            return
        headers = self._headers()
        made = self.root / "build"
        made.mkdir(exist_ok=True)
        record = made / "compatibility.json"
        record.write_text(json.dumps(self._compatibility(headers), indent=2) + "\n", encoding="utf-8")
        if self.target_name == "sdist":
            # With the headers inside, the source distribution builds anywhere.
            build_data["force_include"][str(headers / "flagos")] = "include/flagos"
            build_data["force_include"][str(record)] = "compatibility.json"
            return
        module = next((self.root / "src").glob("torch_fl_*")).name
        build_data["force_include"][str(record)] = f"{module}/compatibility.json"
        if self._sources():
            library = self._library(headers, made)
            build_data["force_include"][str(library)] = f"{module}/{library.name}"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{re.sub(r'[-.]', '_', sysconfig.get_platform())}"

    @property
    def root(self) -> Path:  # type: ignore[override]
        """The folder of the package."""
        return Path(super().root)

    def _sources(self) -> list[Path]:
        return sorted((self.root / "csrc").glob("*.cpp"))

    def _headers(self) -> Path:
        """Return the folder with flagos/hal.h: of this source distribution, this repository, or the installed
        core.
        """
        core = importlib.util.find_spec("torch_fl_base")
        places = [self.root / "include", self.root.parent / "torch-fl-core" / "include"]
        if core is not None and core.origin is not None:
            places.append(Path(core.origin).parent / "include")
        for place in places:
            if (place / "flagos" / "hal.h").exists():
                return place
        tried = ", ".join(map(str, places))
        raise FileNotFoundError(
            f"flagos/hal.h was not found in {tried}. Install torch-fl-core into this environment."
        )

    def _library(self, headers: Path, made: Path) -> Path:
        folder = made / f"cmake-{sysconfig.get_platform()}"
        configure = [
            "cmake",
            "-S",
            str(self.root),
            "-B",
            str(folder),
            "-G",
            "Ninja",
            f"-DFLAGOS_INCLUDE_DIR={headers}",
        ]
        for command in (configure, ["cmake", "--build", str(folder)]):
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}")
        (library,) = folder.glob("libflagos_hal_*.so")
        return library

    def _compatibility(self, headers: Path) -> dict[str, Any]:
        """Return what a reader of the wheel must know to tell whether it fits, without loading anything."""
        text = (headers / "flagos" / "hal.h").read_text(encoding="utf-8")
        major, minor = (re.search(rf"FLAGOS_HAL_ABI_{part} (\d+)u", text) for part in ("MAJOR", "MINOR"))
        if major is None or minor is None:
            raise ValueError(f"{headers}/flagos/hal.h states no ABI version")
        digest = hashlib.sha256()
        for path in sorted(p for p in (headers / "flagos").rglob("*") if p.is_file()):
            digest.update(path.relative_to(headers).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
        return {
            "package": self.metadata.name,
            "version": self.metadata.version,
            "hal_abi": [int(major[1]), int(minor[1])],
            "headers_sha256": digest.hexdigest(),
            "library": bool(self._sources()),
            "requires": list(self.metadata.core.dependencies),
        }
