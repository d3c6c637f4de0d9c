"""A library under the validating layer, as the tests of the layer see it."""

from __future__ import annotations

import ctypes
from typing import Any

from hal_native import Layers

from torch_fl_base._hal import Hal
from torch_fl_base._hal_types import new_structure

SIZE = 4096
HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = range(4)
TIMING, BLOCKING, INTERPROCESS = 1, 2, 4
"""Flags of events."""


class Checked:
    """A library under the validating layer, and what a test asks of it."""

    def __init__(self, hal: Hal, layers: Layers) -> None:
        self.hal = hal
        self._layers = layers

    def violations(self) -> int:
        return self._layers.violations(self.hal)

    def accepts(self, function: str, *inputs: Any) -> Any:
        """Call; nothing may be complained of."""
        before = self.violations()
        outcome = self.hal.call(function, *inputs)
        assert outcome.status == "OK", self.hal.last_error()
        assert self.violations() == before, self.hal.last_error()
        return outcome.value

    def refuses(self, status: str, rule: str, text: str, function: str, *inputs: Any) -> None:
        """Call; it must be answered with this status and a detail that starts with the rule."""
        before = self.violations()
        outcome = self.hal.call(function, *inputs)
        detail = self.hal.last_error()
        assert (outcome.status, detail.status) == (status, status), detail
        assert detail.message.startswith(f"{rule}: "), detail.message
        assert text in detail.message
        assert (detail.function, detail.vendor_code, detail.vendor_name) == (function, 0, "")
        assert self.violations() == before + 1


class Things:
    """Objects of the reference library to do wrong with."""

    def __init__(self, checked: Checked) -> None:
        hal = checked.hal
        self.pointer = hal.memory.allocate(0, SIZE)
        self.other = hal.memory.allocate(0, SIZE)
        self.elsewhere = hal.memory.allocate(1, SIZE)
        self.stream = hal.stream.create(0, None)
        self.stream_of_1 = hal.stream.create(1, None)
        self.default = hal.stream.default_stream(0)
        self.event = hal.event.create(0, 0)
        self.timed = hal.event.create(0, TIMING)
        self.timed_of_1 = hal.event.create(1, TIMING)
        self.pinned = hal.host.allocate(SIZE)
        self.released = hal.memory.allocate(0, SIZE)
        hal.memory.release(0, self.released)
        self.dead_stream = hal.stream.create(0, None)
        hal.stream.destroy(self.dead_stream)
        self.dead_event = hal.event.create(0, 0)
        hal.event.destroy(self.dead_event)
        self.buffer = ctypes.create_string_buffer(SIZE)
        self.host = ctypes.addressof(self.buffer)


def options(**values: int) -> Any:
    made = new_structure("flagos_hal_stream_options")
    for name, value in values.items():
        setattr(made, name, value)
    return made


def sized(name: str, size: int) -> Any:
    made = new_structure(name)
    made.struct_size = size
    return made
