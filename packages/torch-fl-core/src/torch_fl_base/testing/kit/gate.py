"""Holding a stream up until the test says go."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from torch_fl_base._hal import Hal

PATIENCE_S = 8.0
"""How long a gate stays shut before it opens by itself; well below the time limit of an isolated test."""

# Host callbacks must not enter an interpreter, so the kit hands out functions of the C library. A semaphore
# is waited for and posted through a pointer to it, which is just what a callback's argument is.
_libc: Any = ctypes.CDLL(None)
SEM_WAIT = ctypes.cast(_libc.sem_wait, ctypes.c_void_p).value
SEM_POST = ctypes.cast(_libc.sem_post, ctypes.c_void_p).value


class Semaphore:
    """A semaphore of the C library; its address is an argument for SEM_WAIT and SEM_POST."""

    def __init__(self, value: int = 0) -> None:
        self._memory = (ctypes.c_uint64 * 16)()  # more than any platform's sem_t
        self.address = ctypes.addressof(self._memory)
        _libc.sem_init(ctypes.c_void_p(self.address), 0, value)

    def post(self) -> None:
        """Add one."""
        _libc.sem_post(ctypes.c_void_p(self.address))

    def wait(self) -> None:
        """Take one, waiting for it."""
        _libc.sem_wait(ctypes.c_void_p(self.address))

    @property
    def value(self) -> int:
        """Posts not waited for yet."""
        value = ctypes.c_int()
        _libc.sem_getvalue(ctypes.c_void_p(self.address), ctypes.byref(value))
        return value.value


class Gate:
    """Work queued behind a shut gate does not start. It opens by itself after a while, so that a library
    that blocks where it must not ends in a failed test rather than a hanging one."""

    def __init__(self, opener: Callable[[], None]) -> None:
        self._opener = opener
        self._lock = threading.Lock()
        self.is_open = False
        self.expired = False
        self._timers = [threading.Timer(PATIENCE_S, self._expire)]
        self._start()

    def open(self) -> None:
        """Let the work go; does nothing if the gate is open."""
        with self._lock:
            if not self.is_open:
                self.is_open = True
                self._opener()
        for timer in self._timers:
            timer.cancel()

    def open_after(self, seconds: float) -> None:
        """Open in the background, for the test of a call that waits."""
        self._timers.append(threading.Timer(seconds, self.open))
        self._start()

    def _start(self) -> None:
        self._timers[-1].daemon = True
        self._timers[-1].start()

    def _expire(self) -> None:
        self.expired = not self.is_open
        self.open()


def shut_gate(hal: Hal, stream: int) -> Gate:
    """Hold `stream` up through stream.host_callback, which the library must have."""
    semaphore = Semaphore()
    gate = Gate(semaphore.post)
    gate.semaphore = semaphore  # type: ignore[attr-defined] # keeps the memory alive as long as the gate
    hal.stream.host_callback(stream, SEM_WAIT, semaphore.address)
    return gate
