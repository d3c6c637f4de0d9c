"""Devices: how many there are, which is current, what they are, and when they are used for the first time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ._lazy import DEVICE, DeviceLike, activate, index_of, native, valid_index

if TYPE_CHECKING:
    from ._properties import DeviceProperties


def is_available() -> bool:
    """Return whether there is a device. Never raises, starts no emulated backend that the program did not ask
    for."""
    return device_count() > 0


def device_count() -> int:
    """Return the number of devices; 0 where a backend cannot be used (torch_fl.report() tells why). Never
    raises.

    Emulated devices count once the program has imported torch_fl, named them in FLAGOS_BACKENDS or used one.
    """
    return int(native.devices.device_count())


def is_initialized() -> bool:
    """Return whether the backends have been opened in this process, and may be used in it."""
    return bool(native.devices.activated()) and not _is_in_bad_fork()


def init() -> None:
    """Open the backends now rather than at the first use; a second call does nothing.

    Raises: BackendError listing every candidate with its reason if none has a device; saying what to do in a
        forked child whose parent has used a device.
    """
    activate()


def _lazy_init() -> None:
    """What torch calls before it makes the first tensor on the device; the same as init."""
    activate()


def _is_in_bad_fork() -> bool:
    """Return whether this is a forked child whose parent had opened the backends, so that devices cannot be
    used here."""
    return bool(native.devices.in_bad_fork())


def current_device() -> int:
    """Return the index of this thread's current device; 0 at first."""
    return int(native.devices.current_device())


def set_device(device: DeviceLike) -> None:
    """Make a device current in this thread. A negative index leaves things as they are.

    Raises: BackendError if there is no such device.
    """
    if index_of(device) >= 0:
        native.devices.set_device(valid_index(device))


def _exchange_device(device: int) -> int:
    """Make a device current and return the one before; a negative index only returns it."""
    if device < 0:
        return current_device()
    return int(native.devices.exchange_device(valid_index(device)))


_maybe_exchange_device = _exchange_device


class device:
    """A `with` block in which another device is current; a negative index, or None, changes nothing.

    Args:
        device: what names a device.
    """

    def __init__(self, device: DeviceLike) -> None:
        self.idx = -1 if device is None else index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, *exception: object) -> None:
        if self.idx >= 0:
            _exchange_device(self.prev_idx)


class device_of(device):
    """A `with` block in which the device of a tensor or storage is current; for one of another type nothing
    changes."""

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage) -> None:
        super().__init__(obj.get_device() if obj.device.type == DEVICE else -1)


def synchronize(device: DeviceLike = None) -> None:
    """Wait until all work queued on all streams of a device has finished; the current device by default.

    Raises: the error of work that failed asynchronously; BackendError if there is no such device.
    """
    native.devices.synchronize(valid_index(device))


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Return what the backend tells of a device; what it does not tell is None."""
    from ._properties import from_native

    return from_native(native.devices.properties(valid_index(device)))


def get_device_name(device: DeviceLike = None) -> str:
    """Return the name of a device, as its vendor spells it."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int] | None:
    """Return (major, minor) of a device; None where its vendor has no such numbers."""
    properties = get_device_properties(device)
    if properties.major is None or properties.minor is None:
        return None
    return properties.major, properties.minor


def get_arch_list() -> list[str]:
    """Return the compiler's names of the present devices' architectures, sorted, each once; [] where none is
    told.

    Kernels are compiled for the devices that are there, so that this is what they are compiled for.
    """
    names = {get_device_properties(index).arch for index in range(device_count())}
    return sorted(name for name in names if name)


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Return whether work on `device` can use memory of `peer_device` directly.

    Raises: BackendError if either does not exist, ValueError if both are the same.
    """
    first, second = valid_index(device), valid_index(peer_device)
    if first == second:
        raise ValueError(f"flagos: a device is not its own peer (flagos:{first})")
    return bool(native.devices.can_access_peer(first, second))


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the data types that torch.autocast("flagos") may compute in."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether bfloat16 can be used on the current device.

    Args:
        including_emulation: also where the device does not compute on it: another source then serves the
            operators.
            False: only where the backend tells that the hardware does.
    """
    if not is_available():
        return False
    dtypes = get_device_properties().dtypes
    return including_emulation or (dtypes is not None and torch.bfloat16 in dtypes)


def ipc_collect() -> None:
    """Do nothing: device memory is not shared between processes yet, so that there is none to collect."""


def device_memory_used(device: DeviceLike = None) -> int:
    """Return the bytes in use on a device, by all processes, as the backend counts them."""
    free, total = native.memory.info(valid_index(device))
    return int(total - free)
