"""What `torch.hpu` is while the stand-in is loaded: as much of a device module as PyTorch itself calls."""

from __future__ import annotations

import sys

import standin
import torch


def _lazy_init() -> None:
    """Do nothing; PyTorch calls it before the first tensor of the device."""


def _is_in_bad_fork() -> bool:
    return False


def is_available() -> bool:
    """Return whether there is a device."""
    return standin.device_count() > 0


def is_initialized() -> bool:
    """Return True."""
    return True


def device_count() -> int:
    """Return the number of devices."""
    return standin.device_count()


def current_device() -> int:
    """Return the calling thread's current device."""
    return standin.current_device()


def _index(device: object) -> int:
    index = device if isinstance(device, int) else torch.device(str(device)).index
    return standin.current_device() if index is None else index


def get_rng_state(device: object = "hpu") -> torch.Tensor:
    """Return the state of a device's default generator: 16 bytes, seed and offset, on the CPU."""
    words = b"".join(word.to_bytes(8, sys.byteorder) for word in standin.random_state(_index(device)))
    return torch.frombuffer(bytearray(words), dtype=torch.uint8)


def set_rng_state(state: torch.Tensor, device: object = "hpu") -> None:
    """Set the state of a device's default generator."""
    words = bytes(state.tolist())
    seed, offset = (int.from_bytes(words[i : i + 8], sys.byteorder) for i in (0, 8))
    standin.set_random_state(_index(device), seed, offset)


def manual_seed_all(seed: int) -> None:
    """Seed the default generators of all devices. `torch.manual_seed` does not know this device type."""
    for device in range(standin.device_count()):
        standin.set_random_state(device, seed)


class device:
    """A `with` block in which another device is current."""

    def __init__(self, device: object) -> None:
        self._index = _index(device)
        self._before = self._index

    def __enter__(self) -> None:
        self._before = standin.exchange_device(self._index)

    def __exit__(self, *error: object) -> None:
        standin.exchange_device(self._before)
