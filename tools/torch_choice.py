"""Which torch an environment gets, decided before anything large is fetched."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

DEFAULT = "torch==2.13.*"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"

#: Distributions whose presence among the requirements makes a build of torch one for an accelerator.
_ACCELERATOR_PARTS = re.compile(r"(nvidia|cuda|rocm|pytorch-triton|intel|onemkl|triton)\b")

Report = Callable[[Sequence[str]], Mapping[str, Any]]
"""Takes arguments of `pip install`; returns the metadata of the torch that pip would install. Raises:
LookupError.
"""


class NoTorchError(RuntimeError):
    """No torch can be had that the caller would want; the message says what was tried and which switch
    helps.
    """


@dataclass(frozen=True)
class TorchChoice:
    """One torch, and how pip gets it."""

    arguments: tuple[str, ...]
    version: str
    reason: str


def requirement(asked: str | None) -> str:
    """Return the pip requirement for what was asked: None, "2.12", "2.12.1", "2.11.0+cu130", "torch==…" or a
    wheel's path.
    """
    if asked is None:
        return DEFAULT
    if asked.endswith(".whl") or asked.startswith("torch"):
        return asked
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?\S*", asked):
        raise NoTorchError(
            f"--torch {asked}: expected a version (2.12, 2.12.1, 2.11.0+cpu), a requirement or a wheel's path"
        )
    return f"torch=={asked}.*" if re.fullmatch(r"\d+\.\d+", asked) else f"torch=={asked}"


def accelerator_of(metadata: Mapping[str, Any]) -> str | None:
    """Return what makes this torch a build for an accelerator ("+cu130", "nvidia-cublas"), or None for a CPU
    build.
    """
    local = str(metadata["version"]).partition("+")[2]
    if local:
        return None if local.startswith("cpu") else f"+{local}"
    for text in metadata.get("requires_dist") or ():
        part = Requirement(text)
        if _ACCELERATOR_PARTS.match(part.name.lower()) and (
            part.marker is None or part.marker.evaluate({"extra": ""})
        ):
            return part.name
    return None


def choose(asked: str | None, report: Report, *, allow_cuda: bool = False) -> TorchChoice:
    """Choose the torch: what was asked for, else pip's own choice if that is a CPU build, else PyTorch's CPU
    index.

    Args:
        asked: the value of --torch or TORCH_FL_TORCH; see `requirement`.
        report: asks pip; nothing is installed or fetched by it but metadata.
        allow_cuda: take pip's choice even if it is a build for an accelerator (several GB).
    Raises: NoTorchError if neither source has a CPU build and no other was allowed.
    """
    wanted = requirement(asked)
    explicit = wanted.endswith(".whl") or re.search(r"\+(cu|rocm|xpu)", wanted) is not None
    try:
        found = report([wanted])
    except LookupError as error:
        found, first = None, f"pip finds no {wanted}: {error}"
    if found is not None:
        accelerator = accelerator_of(found)
        version = str(found["version"])
        if accelerator is None:
            return TorchChoice((wanted,), version, f"what pip takes for {wanted}, and it is a CPU build")
        if explicit:
            return TorchChoice((wanted,), version, f"asked for by name: {wanted}")
        first = (
            f"pip would take torch {version}, a build for an accelerator ({accelerator}) of some gigabytes"
        )
    try:
        from_index = report([wanted, "--index-url", CPU_INDEX])
    except LookupError as error:
        if allow_cuda and found is not None:
            return TorchChoice(
                (wanted,), str(found["version"]), f"{first}; that was allowed, as no CPU build is to be had"
            )
        hint = (
            " To take it all the same: --allow-cuda, or TORCH_FL_ALLOW_CUDA=1." if found is not None else ""
        )
        raise NoTorchError(f"{first}. PyTorch's index of CPU builds ({CPU_INDEX}): {error}.{hint}") from error
    return TorchChoice(
        (wanted, "--index-url", CPU_INDEX),
        str(from_index["version"]),
        f"{first}; hence from PyTorch's index of CPU builds",
    )


def pip_report(python: Path | str) -> Report:
    """Return a Report that asks the pip of `python`."""

    def report(arguments: Sequence[str]) -> Mapping[str, Any]:
        command = [
            str(python),
            "-m",
            "pip",
            "install",
            "--dry-run",
            "--ignore-installed",
            "--no-deps",
            "--quiet",
        ]
        command += ["--retries", "1", "--report", "-", *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            lines = [
                line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR")
            ]
            raise LookupError((lines or done.stderr.splitlines() or ["pip failed without a word"])[0])
        metadata: Mapping[str, Any] = json.loads(done.stdout)["install"][0]["metadata"]
        return metadata

    return report
