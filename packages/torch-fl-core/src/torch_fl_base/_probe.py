"""Opening one HAL library and telling what is in it, in a process of its own: a library that crashes takes
only that.

`python -m torch_fl_base._probe <name> <library>` prints one line of JSON; `probe` runs it and reads the
answer.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from torch_fl_base.discovery import State

TIMEOUT = 60.0
"""Seconds until a library that does not answer counts as failed."""


def probe(name: str, library: Path, timeout: float = TIMEOUT) -> dict[str, Any]:
    """Return what opening the library shows: state, reason, devices, versions. Never raises for what the
    library does.

    Args:
        name: the backend's.
        library: the HAL library.
        timeout: seconds.
    """
    command = [sys.executable, "-m", "torch_fl_base._probe", name, str(library)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return _failed(f"its library did not answer within {timeout:.0f} s")
    if done.returncode < 0:
        return _failed(f"its library ended the process with {_signal(-done.returncode)}")
    lines = done.stdout.strip().splitlines()
    try:
        answer = json.loads(lines[-1])
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        return _failed(f"opening its library ended with exit status {done.returncode}: {last}")
    return dict(answer)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _failed(reason: str) -> dict[str, Any]:
    return {"state": State.FAILED.value, "reason": reason, "devices": []}


def _open(name: str, library: str) -> dict[str, Any]:
    """Open, initialise, ask and shut down; in the child only."""
    from torch_fl_base import _hal

    try:
        hal = _hal.load(name, library)
    except _hal.HalLoadError as error:
        state = State.ABI_REFUSED if error.kind == "AbiRefused" else State.FAILED
        return {"state": state.value, "reason": str(error), "devices": []}
    answer: dict[str, Any] = {"state": State.SELECTED.value, "reason": "", "devices": []}
    answer["abi"] = ".".join(map(str, hal.abi))
    try:
        hal.system.init()
        for index in range(hal.device.count()):
            properties = hal.device.properties(index)
            device = {
                "name": properties.name.decode(errors="replace"),
                "total_memory": properties.total_memory,
            }
            answer["devices"].append(device)
    except _hal.HalError as error:
        missing = error.status == "UNAVAILABLE"
        answer.update(
            state=(State.SDK_MISSING if missing else State.FAILED).value, reason=str(error), devices=[]
        )
    else:
        if not answer["devices"]:
            answer.update(state=State.NO_DEVICE.value, reason="the runtime is there and reports no device")
    info = hal.system.info()
    for field in ("library_version", "sdk_version", "driver_version", "sdk_path"):
        answer[field] = (getattr(info, field) or b"").decode(errors="replace")
    hal.system.shutdown()
    return answer


if __name__ == "__main__":
    print(json.dumps(_open(sys.argv[1], sys.argv[2])))
