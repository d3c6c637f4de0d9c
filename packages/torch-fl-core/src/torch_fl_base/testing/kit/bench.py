"""The work bench of a test: a library, and what the test took from it, given back at the end."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

from torch_fl_base._hal import Detail, Hal, bind
from torch_fl_base._hal_header import header
from torch_fl_base._hal_types import new_structure, status_name
from torch_fl_base.testing.kit.checks import equal, expect, one_of, same_bytes, skip
from torch_fl_base.testing.kit.gate import Gate, shut_gate
from torch_fl_base.testing.kit.quirks import Quirks

OUTPUT_PATTERN = 0xA5
"""Output arguments hold this before a call that must not write them."""

C = header().constants
"""The header's numbers."""


def constant(name: str) -> int:
    """Return FLAGOS_HAL_<name>."""
    return C[f"FLAGOS_HAL_{name}"]


HOST_TO_HOST = constant("COPY_HOST_TO_HOST")
HOST_TO_DEVICE = constant("COPY_HOST_TO_DEVICE")
DEVICE_TO_HOST = constant("COPY_DEVICE_TO_HOST")
DEVICE_TO_DEVICE = constant("COPY_DEVICE_TO_DEVICE")


class Buffer:
    """Pageable host memory with an address and bytes to read and write."""

    def __init__(self, size: int, content: bytes = b"") -> None:
        self._memory = (ctypes.c_uint8 * max(size, 1))()
        self.size = size
        self.address = ctypes.addressof(self._memory)
        if content:
            self.write(content)

    def write(self, content: bytes, offset: int = 0) -> None:
        """Put bytes at an offset."""
        ctypes.memmove(self.address + offset, content, len(content))

    def read(self, size: int | None = None, offset: int = 0) -> bytes:
        """Return bytes from an offset; all of them by default."""
        return ctypes.string_at(self.address + offset, self.size - offset if size is None else size)


class Bench:
    """Calls and checks on one library. What is taken through it is released by `close`."""

    def __init__(self, hal: Hal, quirks: Quirks) -> None:
        self.hal = hal
        self.quirks = quirks
        self.leaves_initialised = False
        """Set by an isolated test that ends without shutdown."""
        self._releases: list[Callable[[], None]] = []
        self._kept: list[Any] = []
        self._gates: list[Gate] = []
        self._streams: list[int] = []

    # --- what there is ----------------------------------------------------------------------------------

    def capability(self, name: str) -> int:
        """Return a capability, 0 if the library does not know it, as core does."""
        outcome = self.hal.call("system.capability", constant(f"CAP_{name}"))
        return int(outcome.value) if outcome.status == "OK" else 0

    def requires(self, qualified: str) -> None:
        """Skip unless the library brings a group ("peer") or function ("stream.host_callback")."""
        if not self.hal.has(qualified):
            kind = "function" if "." in qualified else "group"
            skip(f"the library has no {kind} {qualified}")

    def requires_async(self) -> None:
        """Skip unless queued calls return before the work is done."""
        if not self.capability("ASYNC_STREAMS"):
            skip("capability ASYNC_STREAMS is 0: everything is synchronous")

    def requires_devices(self, count: int) -> None:
        """Skip unless there are that many devices."""
        present = self.hal.device.count()
        if present < count:
            skip(f"needs {count} device{'s' if count > 1 else ''}, the library has {present}")

    @property
    def last_device(self) -> int:
        """The highest device index; skips where there is no device."""
        self.requires_devices(1)
        return int(self.hal.device.count()) - 1

    # --- taking things ----------------------------------------------------------------------------------

    def later(self, release: Callable[[], None]) -> None:
        """Have something done by `close`, last come first."""
        self._releases.append(release)

    def close(self) -> None:
        """Give everything back. Failures here are ignored: the test has said what it had to say."""
        for gate in self._gates:
            gate.open()
        # Memory must not be released while queued work uses it, and tests leave work behind.
        for stream in self._streams:
            self._try("stream.synchronize", stream)
        # A test that took nothing has nothing to wait for, and does not fall with a synchronize that crashes.
        count = self.hal.call("device.count") if self._releases else None
        for device in range(count.value if count is not None and count.status == "OK" else 0):
            self._try("device.synchronize", device)
        while self._releases:
            self._releases.pop()()

    def keep(self, thing: Any) -> None:
        """Keep something alive that the library may still reach."""
        self._kept.append(thing)

    def _try(self, qualified: str, *inputs: Any) -> None:
        self.hal.call(qualified, *inputs)

    def allocate(self, size: int, device: int = 0) -> int:
        """Return device memory; released by `close` unless the test has done so."""
        self.requires_devices(device + 1)
        pointer = self.hal.memory.allocate(device, size)
        expect(pointer is not None or size == 0, f"memory.allocate({device}, {size}) said OK and gave null")
        self.later(lambda: self._try("memory.release", device, pointer))
        return int(pointer or 0)

    def stream(self, device: int = 0) -> int:
        """Return a new stream."""
        self.requires_devices(device + 1)
        handle = self.hal.stream.create(device, None)
        expect(handle is not None, "stream.create said OK and gave null")
        self.later(lambda: self._try("stream.destroy", handle))
        self._streams.append(int(handle))
        return int(handle)

    def default_stream(self, device: int = 0) -> int:
        """Return the default stream."""
        self.requires_devices(device + 1)
        return int(self.hal.stream.default_stream(device))

    def event(self, device: int = 0, flags: int = 0) -> int:
        """Return a new event."""
        self.requires_devices(device + 1)
        handle = self.hal.event.create(device, flags)
        expect(handle is not None, "event.create said OK and gave null")
        self.later(lambda: self._try("event.destroy", handle))
        return int(handle)

    def host(self, size: int, content: bytes = b"") -> Buffer:
        """Return pageable host memory, kept alive until `close`."""
        buffer = Buffer(size, content)
        self._kept.append(buffer)
        return buffer

    def pinned(self, size: int) -> int:
        """Return pinned host memory; skips where the library has none."""
        self.requires("host.allocate")
        pointer = self.hal.host.allocate(size)
        self.later(lambda: self._try("host.release", pointer))
        return int(pointer)

    def gate(self, stream: int) -> Gate:
        """Hold a stream up. Skips where streams are synchronous or the library offers no way to do it."""
        self.requires_async()
        if self.quirks.make_busy is not None:
            gate = self.quirks.make_busy(self.hal, stream)
        elif self.hal.has("stream.host_callback"):
            gate = shut_gate(self.hal, stream)
        else:
            skip("a stream cannot be held up: neither stream.host_callback nor quirks.make_busy is there")
        self._gates.append(gate)
        return gate

    def still_shut(self, gate: Gate, what: str) -> None:
        """Fail if the gate had to open by itself: a call before this line has blocked."""
        expect(not gate.expired, f"{what} blocked until the stream it must not wait for went on")
        expect(not gate.is_open, f"{what}: the gate is open too early")

    # --- moving bytes -----------------------------------------------------------------------------------

    def put(self, pointer: int, content: bytes, device: int = 0) -> None:
        """Write bytes to device memory with memory.copy."""
        source = Buffer(len(content), content)
        self.hal.memory.copy(device, pointer, source.address, len(content), HOST_TO_DEVICE)

    def get(self, pointer: int, size: int, device: int = 0) -> bytes:
        """Read bytes from device memory with memory.copy."""
        target = Buffer(size)
        self.hal.memory.copy(device, target.address, pointer, size, DEVICE_TO_HOST)
        return target.read()

    def holds(self, pointer: int, wanted: bytes, what: str, device: int = 0) -> None:
        """Fail unless device memory has these bytes."""
        same_bytes(self.get(pointer, len(wanted), device), wanted, what)

    def memory_of(self, device: int) -> tuple[int, int]:
        """Return free and total bytes."""
        free, total = self.hal.device.memory_info(device)
        return int(free), int(total)

    # --- failures ---------------------------------------------------------------------------------------

    def refuses(
        self, status: str | Iterable[str], qualified: str, *inputs: Any, keeps_outputs: bool = True
    ) -> str:
        """Fail unless a call ends with `status` (one of them), as a failure should: outputs untouched,
        detail complete.

        NOT_READY and the UNSUPPORTED of an absent function leave no detail, which is checked too.
        Returns: the status.
        """
        wanted = (status,) if isinstance(status, str) else tuple(status)
        function = header().function(qualified)
        arguments, outputs = bind(function, inputs)
        names = [parameter.name for parameter in function.parameters if parameter.is_output]
        images = [_paint(output, name) for output, name in zip(outputs, names, strict=True)]
        present = self.hal.has(qualified)
        before = self.detail()
        number = self.hal.function(qualified)(*arguments)
        found = status_name(number)
        call = f"{qualified}({', '.join(_show(value) for value in inputs)})"
        one_of(found, wanted, f"the status of {call}")
        if keeps_outputs:
            for output, image in zip(outputs, images, strict=True):
                equal(_bytes(output).hex(), image.hex(), f"the output of {call} after {found}")
        if present and found not in ("OK", "NOT_READY"):
            self.check_detail(self.detail(), found, qualified, call)
        elif qualified != "system.last_error":
            equal(self.detail(), before, f"the detail after {found} of {call}")
        return found

    def refuses_null_output(self, qualified: str, index: int, *inputs: Any) -> None:
        """Fail unless a null output pointer (the index-th output) gives INVALID_ARGUMENT and nothing is
        written."""
        function = header().function(qualified)
        arguments, outputs = bind(function, inputs)
        positions = [at for at, parameter in enumerate(function.parameters) if parameter.is_output]
        arguments[positions[index]] = None
        names = [function.parameters[at].name for at in positions]
        images = [_paint(output, name) for output, name in zip(outputs, names, strict=True)]
        number = self.hal.function(qualified)(*arguments)
        name = names[index]
        equal(number, constant("STATUS_INVALID_ARGUMENT"), f"the status of {qualified} with {name} null")
        for output, image in zip(outputs, images, strict=True):
            equal(_bytes(output).hex(), image.hex(), f"another output of {qualified} with {name} null")

    def detail(self) -> Detail:
        """Return this thread's last error."""
        return self.hal.last_error()

    def check_detail(self, detail: Detail, status: str, qualified: str, call: str) -> None:
        """Fail unless a failure's detail names status and function and has a one-line message."""
        equal(detail.status, status, f"the status in the detail of {call}")
        equal(detail.function, qualified, f"the function in the detail of {call}")
        expect(detail.message != "", f"the detail of {call} has no message")
        expect("\n" not in detail.message, f"the message of {call} has a newline: {detail.message!r}")
        expect("\ufffd" not in detail.message, f"the message of {call} is no UTF-8")

    def raw_error(self) -> Any:
        """Return the flagos_hal_error of this thread, to look at null pointers and sizes."""
        error = new_structure("flagos_hal_error")
        equal(self.hal.raw.system.last_error(ctypes.byref(error)), 0, "the status of system.last_error")
        return error


def _paint(output: Any, name: str) -> bytes:
    size = ctypes.sizeof(output)
    if isinstance(output, ctypes.Structure) and hasattr(output, "struct_size"):
        kept: int = output.struct_size
        ctypes.memset(ctypes.addressof(output), OUTPUT_PATTERN, size)
        output.struct_size = kept
    elif not name.startswith("inout_"):
        ctypes.memset(ctypes.addressof(output), OUTPUT_PATTERN, size)
    return _bytes(output)


def _bytes(output: Any) -> bytes:
    return ctypes.string_at(ctypes.addressof(output), ctypes.sizeof(output))


def _show(value: Any) -> str:
    if isinstance(value, ctypes.Structure):
        return type(value).__name__
    return hex(value) if isinstance(value, int) and abs(value) > 1 << 20 else repr(value)
