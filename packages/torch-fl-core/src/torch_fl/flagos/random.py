"""Random numbers: one Philox generator a device, 16 bytes of state (seed, offset)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

import torch

from ._lazy import DeviceLike, native, valid_index


class _DefaultGenerators(Sequence[torch.Generator]):
    """The default generators of all devices, as a sequence that asks for each when it is used; activates."""

    def __len__(self) -> int:
        return int(native.devices.device_count())

    @overload
    def __getitem__(self, index: int) -> torch.Generator: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[torch.Generator, ...]: ...
    def __getitem__(self, index: int | slice) -> torch.Generator | tuple[torch.Generator, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"flagos: no generator {index}: there are {count} devices")
        generator: torch.Generator = native.generators.default_generator(index % count)
        return generator

    def __repr__(self) -> str:
        return f"<default generators of {len(self)} flagos devices>"


default_generators: Sequence[torch.Generator] = _DefaultGenerators()


def _default(device: DeviceLike) -> torch.Generator:
    generator: torch.Generator = native.generators.default_generator(valid_index(device))
    return generator


def get_rng_state(device: DeviceLike = "flagos") -> torch.Tensor:
    """Return the state of a device's generator: [16], uint8, on the CPU; seed, then offset."""
    return _default(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of all devices' generators."""
    return [get_rng_state(index) for index in range(native.devices.device_count())]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "flagos") -> None:
    """Set the state of a device's generator to what get_rng_state returned.

    Raises: RuntimeError for a tensor that is no such state.
    """
    _default(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the states of the generators of device 0, 1, … in turn."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator; without any device the seed is kept for all that come."""
    if native.devices.activated() or native.devices.device_count() > 0:
        _default(None).manual_seed(int(seed))
    else:
        manual_seed_all(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices, also of those that are opened later. Opens nothing."""
    native.generators.seed_all(int(seed) % (1 << 64))


def seed() -> int:
    """Seed the current device's generator from the operating system's randomness and return the seed."""
    return _default(None).seed()


def seed_all() -> None:
    """Seed all devices' generators with one number from the operating system's randomness."""
    manual_seed_all(torch.Generator().seed())


def initial_seed() -> int:
    """Return the seed of the current device's generator."""
    return _default(None).initial_seed()


def _get_generator(device: torch.device) -> torch.Generator:
    """Return the default generator of a device; torch's own helpers ask for it by this name."""
    return _default(device)


def _get_rng_state_offset(device: DeviceLike = "flagos") -> int:
    """Return the offset in a device's random sequence, a multiple of 4."""
    return int(_default(device).get_offset())


def _set_rng_state_offset(offset: int, device: DeviceLike = "flagos") -> None:
    """Set the offset in a device's random sequence, a multiple of 4."""
    _default(device).set_offset(offset)
