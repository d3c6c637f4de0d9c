"""Streams and events: torch.Stream and torch.Event of the device `flagos`, with what torch.cuda's offer
besides."""

from __future__ import annotations

from typing import Any

import torch

from ._lazy import DEVICE, DeviceLike, index_of, native, valid_index

_DEVICE_TYPE = 20  # c10::DeviceType::PrivateUse1


class _EventType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == DEVICE


class Event(torch.Event, metaclass=_EventType):
    """A mark in a stream, that other streams and the host can wait for. Made at its first record.

    What is made is a torch.Event itself, which has all that is needed: torch.Stream.record_event and
    torch.Event.elapsed_time refuse an event of a derived class (seen on 2.13). isinstance knows both names.

    Args:
        enable_timing: elapsed_time can be asked of it.
        blocking: accepted as torch.cuda's; how a wait waits is the backend's choice.
        interprocess: must be False: events cannot be shared between processes yet.
    Raises: NotImplementedError for interprocess=True.
    """

    def __new__(  # type: ignore[misc]
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        """Make an event; see the class."""
        if interprocess:
            raise NotImplementedError(
                "flagos: events cannot be shared between processes; make it with interprocess=False"
            )
        return torch.Event(DEVICE, enable_timing=enable_timing, blocking=blocking)


class Stream(torch.Stream):
    """A queue of work on one device, independent of all others; from a pool, so that ids come round again.

    Args:
        device: what names the device; the current one by default.
        priority: lower is more urgent, clamped to `priority_range()`.
        stream_id, device_index, device_type: name an existing stream instead.
    Raises: BackendError if there is no such device.
    """

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **existing: Any) -> Stream:
        """Make a stream, or name an existing one; see the class."""
        if "stream_id" in existing:
            existing.setdefault("device_type", _DEVICE_TYPE)
            return super().__new__(cls, priority=priority, **existing)
        if existing:
            raise TypeError(f"flagos: Stream takes no argument {', '.join(sorted(existing))}")
        return super().__new__(cls, torch.device(DEVICE, valid_index(device)), priority=priority)

    def wait_event(self, event: torch.Event) -> None:
        """Make work queued here from now on wait for the event as last recorded; queued, the host does not
        wait."""
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Make work queued here from now on wait for what is queued on `stream` now; the host does not
        wait."""
        self.wait_event(stream.record_event())

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Record `event`, or a new one, at the tail of this stream and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    @property
    def native_handle(self) -> int:
        """The vendor's own handle of the stream as an integer, for the vendor's libraries; may be 0."""
        return int(native.streams.native_handle(self.stream_id, self.device_index))

    @property
    def hal_handle(self) -> int:
        """The HAL's handle of the stream (flagos_hal_stream) as an integer; ExternalStream takes one."""
        return int(native.streams.hal_handle(self.stream_id, self.device_index))

    @property
    def priority(self) -> int:
        """The priority that the backend gave the stream."""
        return int(native.streams.priority(self.stream_id, self.device_index))

    @staticmethod
    def priority_range(device: DeviceLike = None) -> tuple[int, int]:
        """Return the least and the greatest priority of a device; (0, 0) where there is no choice."""
        least, greatest = native.streams.priority_range(valid_index(device))
        return int(least), int(greatest)

    def __repr__(self) -> str:
        return f"<torch.flagos.Stream device={self.device} stream_id={self.stream_id}>"


class ExternalStream(Stream):
    """A stream that another library made, usable here while that library keeps it alive.

    Args:
        stream_ptr: a flagos_hal_stream of this device's backend as an integer (not the vendor's own handle).
        device: the device that it was made on; the current one by default.
    Raises: BackendError if there is no such device.
    """

    def __new__(cls, stream_ptr: int, device: DeviceLike = None) -> ExternalStream:
        """Name a stream that was made elsewhere; see the class."""
        stream_id, index = native.streams.external_stream(stream_ptr, valid_index(device))
        stream = super().__new__(cls, stream_id=stream_id, device_index=index)
        assert isinstance(stream, ExternalStream)
        return stream


def _wrap(named: tuple[int, int]) -> Stream:
    return Stream(stream_id=named[0], device_index=named[1])


def current_stream(device: DeviceLike = None) -> Stream:
    """Return this thread's current stream of a device; the current device by default."""
    return _wrap(native.streams.current_stream(valid_index(device)))


def default_stream(device: DeviceLike = None) -> Stream:
    """Return the stream that a device's work goes to when nothing else is said."""
    return _wrap(native.streams.default_stream(valid_index(device)))


def get_stream_from_external(data_ptr: int, device: DeviceLike = None) -> Stream:
    """Return a stream that another library made; see ExternalStream."""
    return ExternalStream(data_ptr, device)


def set_stream(stream: torch.Stream | None) -> None:
    """Make a stream current in this thread, and its device too; None changes nothing.

    A `with torch.flagos.stream(...)` block does the same and undoes it.
    """
    if stream is not None:
        _set_stream_by_id(stream.stream_id, index_of(stream.device), stream.device_type)


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    """Make a stream current by its numbers, and its device too; the compiler calls it."""
    if device_type != _DEVICE_TYPE:
        raise ValueError(f"flagos: a stream of device type {device_type} is no flagos stream")
    native.devices.set_device(device_index)
    native.streams.set_current_stream(stream_id, device_index)


class StreamContext:
    """A `with` block in which a stream and its device are current; None changes nothing.

    Afterwards the device that was current is current again, and on the stream's device the stream that was.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._before: tuple[int, Stream] | None = None

    def __enter__(self) -> None:
        if self.stream is not None:
            self._before = int(native.devices.current_device()), current_stream(self.stream.device)
            set_stream(self.stream)

    def __exit__(self, *exception: object) -> None:
        if self._before is not None:
            device, stream = self._before
            set_stream(stream)
            native.devices.set_device(device)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return a `with` block in which `stream` and its device are current."""
    return StreamContext(stream)


def is_current_stream_capturing() -> bool:
    """Return whether the current stream is recording a graph."""
    capturing = getattr(current_stream(), "is_capturing", None)
    return bool(capturing()) if capturing is not None else False
