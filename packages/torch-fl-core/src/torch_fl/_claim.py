"""Claiming the device: from here on PrivateUse1 is called `flagos`, and torch.flagos exists.

Loaded by path (torch_fl_base._native.load_part), so that it must not import the package torch_fl.
"""

from __future__ import annotations

import atexit
import sys
import threading

import torch
from torch_fl_base import _env, _native, discovery
from torch_fl_base.autoload import DEVICE
from torch_fl_base.spec import BackendError

_lock = threading.Lock()
_claimed = False
records: list[discovery.Record] = []
"""What discovery found when the device was claimed; `torch_fl.report` merges it with what the runtime has reached."""


def claim(explicit: bool) -> None:
    """Rename PrivateUse1, register torch.flagos and the methods named after it. The second call only adds `explicit`.

    Args:
        explicit: the program imported torch_fl; emulated devices count from here on where no others are.
    Raises: BackendError if another plugin holds PrivateUse1 (names it), if core does not fit this torch or this Python,
        or, if explicit, for bad environment values. Nothing has been claimed then.
    """
    global _claimed
    with _lock:
        if explicit:
            _env.runtime_settings()
        if not _claimed:
            _claim(explicit)
            _claimed = True
        if explicit:
            _native.load().devices.allow_emulated()


def _claim(explicit: bool) -> None:
    owner = torch._C._get_privateuse1_backend_name()
    if owner not in ("privateuseone", DEVICE):
        raise BackendError(_taken(owner))
    native = _native.load()
    try:
        settings = _env.runtime_settings()
        records[:] = discovery.discover()
        requests = [record.request() for record in records]
    except BackendError as error:
        if explicit:
            raise
        # `import torch` must not fail over a bad variable: the first use of the device raises this.
        settings = {}
        requests = [{"name": "configuration", "path": "", "skip": str(error)}]
    native.devices.configure(settings)
    native.devices.set_backend_requests(requests)
    # What can fail comes before the rename, which cannot be undone.
    module = _native.load_part(f"torch.{DEVICE}")
    dlpack = _native.load_part("torch_fl._dlpack")
    torch.utils.rename_privateuse1_backend(DEVICE)
    if not hasattr(torch, DEVICE):
        torch._register_device_module(DEVICE, module)
        torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    dlpack.install()
    atexit.register(native.devices.shutdown)


def _taken(owner: str) -> str:
    """Say who holds PrivateUse1 and what to do."""
    module = getattr(torch, owner, None)
    name = getattr(module, "__name__", None)
    file = getattr(module, "__file__", None)
    origin = f" (module {name}, {file})" if module is not None else ""
    loaded = sorted(key for key in sys.modules if key in (f"torch_{owner}", owner))
    package = f"; it was brought by the package {', '.join(loaded)}" if loaded else ""
    return (
        f"flagos: torch has room for one device plugin (PrivateUse1), and the device {owner!r}{origin} holds it"
        f"{package}. Use one of the two in a process: do not import the other plugin, set "
        f"TORCH_DEVICE_BACKEND_AUTOLOAD=0 if it loads itself, or uninstall it. {_native.DOCTOR}"
    )
