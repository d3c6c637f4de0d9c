"""The other process of the ipc tests: it exports memory or an event and does as it is told through a pipe."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from torch_fl_base._hal import load
from torch_fl_base._hal_types import new_structure
from torch_fl_base.testing.kit.checks import equal

if TYPE_CHECKING:
    from torch_fl_base.testing.kit.bench import Bench

SIZE = 4096
EXPORTED = 0x2A
"""Exported memory is filled with this."""


class Exporter:
    """Another process with the same library, and the handle of what it exports."""

    def __init__(self, bench: Bench, what: str, device: int) -> None:
        order = json.dumps([bench.hal.name, bench.hal.path, what, device])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, order],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self.handle = handle_from_bytes(bytes.fromhex(self._answer()))

    def ask(self, word: str) -> str:
        """Send an order and return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().decode().strip()
        equal(
            answer != "" and not answer.startswith("error"),
            True,
            f"{answer!r} from the exporting process: success",
        )
        return answer

    def close(self) -> None:
        """End the other process."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def handle_from_bytes(data: bytes) -> Any:
    """Return a flagos_hal_ipc_handle that came from another process."""
    handle = new_structure("flagos_hal_ipc_handle")
    return type(handle).from_buffer_copy(data)


def main() -> None:
    """Run as `python -m torch_fl_base.testing.kit.ipc_peer <order>`."""
    from torch_fl_base.testing.kit import checks
    from torch_fl_base.testing.kit.bench import Bench, constant
    from torch_fl_base.testing.kit.quirks import Quirks

    checks.in_child = True
    name, path, what, device = json.loads(sys.argv[1])
    try:
        hal = load(name, path)
        bench = Bench(hal, Quirks())
        hal.system.init()
        stream = bench.stream(device)
        pointer = bench.allocate(SIZE, device)
        hal.memory.fill(device, pointer, EXPORTED, SIZE)
        if what == "memory":
            handle = hal.ipc.export_memory(device, pointer)
        else:
            event = bench.event(device, constant("EVENT_INTERPROCESS"))
            handle = hal.ipc.export_event(event)
        gate = None
        print(bytes(handle).hex(), flush=True)
        for line in sys.stdin:
            word = line.strip()
            if word == "first byte":
                print(bench.get(pointer, 1, device)[0], flush=True)
            elif word == "record held":
                gate = bench.gate(stream)
                hal.event.record(event, stream)
                print("recorded", flush=True)
            elif word == "record":
                hal.event.record(event, stream)
                hal.stream.synchronize(stream)
                print("recorded", flush=True)
            elif word == "go" and gate is not None:
                gate.open()
                hal.stream.synchronize(stream)
                print("gone", flush=True)
        bench.close()
        hal.system.shutdown()
    except Exception as error:  # noqa: BLE001 - the other side shows it
        print(f"error: {error}", flush=True)


if __name__ == "__main__":
    main()
