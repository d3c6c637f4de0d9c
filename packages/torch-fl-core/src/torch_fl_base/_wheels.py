"""Whether a wheel of torch-fl would work in this environment, told from its metadata: nothing is installed or
loaded."""

from __future__ import annotations

import json
import re
import sys
import sysconfig
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path
from typing import Any

from torch_fl_base import _native, discovery
from torch_fl_base._torch_facts import installed_torch
from torch_fl_base.preflight import Check


def check_wheel(path: Path) -> list[Check]:
    """Return the checks of one wheel: its tags, its torch or HAL ABI, and whether it brings a library at
    all."""
    name = path.name
    try:
        with zipfile.ZipFile(path) as wheel:
            metadata = _metadata(wheel)
            record = _record(wheel)
    except (OSError, zipfile.BadZipFile, KeyError, ValueError) as error:
        return [Check(name, False, f"is no wheel of torch-fl: {error}")]
    checks = [_tags(name)]
    pin = _torch_pin(metadata)
    if pin:
        checks.append(_torch(name, pin))
    if record:
        checks.append(_library(name, record))
    if not pin and not record:
        checks.append(Check(name, False, "is no wheel of torch-fl: no pin of torch, no compatibility.json"))
    return checks


def _metadata(wheel: zipfile.ZipFile) -> Message:
    files = [file for file in wheel.namelist() if file.endswith(".dist-info/METADATA")]
    if len(files) != 1:
        raise ValueError("it has no METADATA")
    return message_from_string(wheel.read(files[0]).decode("utf-8"))


def _record(wheel: zipfile.ZipFile) -> dict[str, Any] | None:
    files = [file for file in wheel.namelist() if re.fullmatch(r"torch_fl_\w+/compatibility\.json", file)]
    return dict(json.loads(wheel.read(files[0]))) if files else None


def _torch_pin(metadata: Message) -> str | None:
    """Return the torch minor that the wheel requires: "2.13" of "torch==2.13.*"."""
    for requirement in metadata.get_all("Requires-Dist") or []:
        match = re.fullmatch(r"torch\s*\(?==\s*(\d+\.\d+)\.\*\)?", requirement.strip())
        if match:
            return match[1]
    return None


def _tags(name: str) -> Check:
    """Compare the tags in the file's name with this Python and this machine."""
    parts = name.removesuffix(".whl").split("-")
    if not name.endswith(".whl") or len(parts) < 5:
        return Check(f"{name}: tags", False, "the file is not named as a wheel")
    python, _, platform = parts[-3:]
    here = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    machine = sysconfig.get_platform().rpartition("-")[2]
    fits_python = any(tag in (here, "py3") for tag in python.split("."))
    fits_machine = platform == "any" or any(tag.endswith(f"_{machine}") for tag in platform.split("."))
    return Check(
        f"{name}: tags", fits_python and fits_machine, f"{python}, {platform}; here: {here}, {machine}"
    )


def _torch(name: str, pin: str) -> Check:
    facts = installed_torch()
    if facts is None:
        return Check(f"{name}: torch", False, f"it needs torch {pin}, and torch is not installed")
    fits = _native.minor(facts.version) == pin
    cure = "" if fits else f': pip install "torch-fl-core=={_native.minor(facts.version)}.*"'
    return Check(f"{name}: torch", fits, f"it needs torch {pin}; installed is {facts.version}{cure}")


def _library(name: str, record: dict[str, Any]) -> Check:
    theirs = tuple(int(part) for part in record["hal_abi"])
    ours = discovery.core_abi()
    found = f"its library speaks HAL ABI {theirs[0]}.{theirs[1]}, this core {ours[0]}.{ours[1]}"
    if not record.get("library"):
        return Check(f"{name}: library", False, "it brings no HAL library yet")
    return Check(f"{name}: library", theirs[0] == ours[0], found)
