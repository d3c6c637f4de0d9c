"""Claiming the device: from here on PrivateUse1 is called `flagos`, and torch.flagos exists.

Loaded by path (torch_fl_base._native.load_part), so that it must not import the package torch_fl.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from pathlib import Path

import torch
from torch.utils import backend_registration

from torch_fl_base import _env, _log, _native, discovery
from torch_fl_base.autoload import DEVICE
from torch_fl_base.routes import start as routes
from torch_fl_base.spec import BackendError

_lock = threading.Lock()
_claimed = False
_fault: BackendError | None = None
"""What is wrong with the configuration, where `import torch` alone claimed the device."""
records: list[discovery.Record] = []
"""What discovery found when the device was claimed; `torch_fl.report` merges it with what the runtime has
reached."""


def claim(explicit: bool) -> None:
    """Rename PrivateUse1, register torch.flagos and the methods named after it. The second call only adds
    `explicit`.

    Args:
        explicit: the program imported torch_fl; emulated devices count from here on where no others are.
    Raises: BackendError if another plugin holds PrivateUse1 (names it), if core does not fit this torch or
        this Python, or, if explicit, for bad environment values. Nothing has been claimed then.
    """
    global _claimed
    with _lock:
        if not _claimed:
            _claim(explicit)
            _claimed = True
        elif explicit and _fault is not None:
            _configure(explicit)  # raises it, unless the program has set the variable right since
        if explicit:
            routes.check()
            native = _native.load()
            native.ops.register()
            native.devices.allow_emulated()
    if _fault is None and _env.ALIAS_CUDA.read():
        _native.load_part("torch_fl._alias_cuda").follow_environment()


def _claim(explicit: bool) -> None:
    owner = torch._C._get_privateuse1_backend_name()
    if owner not in ("privateuseone", DEVICE):
        raise BackendError(_taken(owner))
    _native.load()
    _configure(explicit)
    # What can fail comes before the rename, which cannot be undone.
    module = _native.load_part(f"torch.{DEVICE}")
    dlpack = _native.load_part("torch_fl._dlpack")
    sharing = _native.load_part("torch_fl._sharing")
    backend_registration.rename_privateuse1_backend(DEVICE)
    if not hasattr(torch, DEVICE):
        torch._register_device_module(DEVICE, module)  # type: ignore[no-untyped-call]
        backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
    dlpack.install()
    sharing.install()
    _native.load().routes.on_open(_wake_companions)
    atexit.register(_shut_down)


def _wake_companions() -> None:
    """Let the companions' own modules know that their devices are in use: torch.cuda tells no memory, and
    keeps seeds for later, until it was initialised."""
    for record in _native.load().devices.backend_records():
        module = getattr(torch, record["companion"] or "", None)
        if module is not None and hasattr(module, "init"):
            module.init()


_SETTLE_S = 0.03
"""Longer than an idle worker of autograd needs to leave its last task, also on a busy machine."""


def _shut_down() -> None:
    """Give everything back at exit, once autograd's workers are idle.

    A worker may still be leaving the last backward: Python would end it in the middle of C++ when it asks for
    the GIL, and the process would abort (seen on Python 3.11, one run in five, where a program ends right
    after backward).
    """
    native = _native.load()
    if native.devices.activated() and _autograd_has_workers() and not native.ops.settle_autograd():
        time.sleep(_SETTLE_S)
    native.devices.shutdown()


def _autograd_has_workers() -> bool:
    """Return whether the engine has started its threads: one per device, at the first backward of any."""
    names = Path("/proc/self/task").glob("*/comm")
    try:
        return any(name.read_text().startswith("pt_autograd") for name in names)
    except OSError:  # a thread ended meanwhile
        return True


def _configure(explicit: bool) -> None:
    """Hand variables and candidates to the runtime. If not explicit, a fault is raised by the first use of
    the device."""
    global _fault
    native = _native.load()
    settings: dict[str, str] = {}
    try:
        _env.AUTOLOAD.read()  # a bad value could not be told at `import torch`, which is silent
        settings = _env.runtime_settings()
        levels = _env.LOG.read()
        records[:] = discovery.discover()
        routes.start(records, explicit)
    except BackendError as error:
        if explicit:
            raise
        _fault = error
        native.devices.set_backend_requests([{"name": "configuration", "path": "", "skip": str(error)}])
        return
    _fault = None
    _log.configure(levels)
    for line in discovery.describe(records):
        _log.logger("backends").info("%s", line)
    native.devices.configure(settings)
    if settings[_env.ALLOCATOR.name] == "direct":
        native.memory.set_mode("direct")
    native.devices.set_backend_requests([record.request() for record in records])


def _taken(owner: str) -> str:
    """Say who holds PrivateUse1 and what to do."""
    module = getattr(torch, owner, None)
    name = getattr(module, "__name__", None)
    file = getattr(module, "__file__", None)
    origin = f" (module {name}, {file})" if module is not None else ""
    loaded = sorted(key for key in sys.modules if key in (f"torch_{owner}", owner))
    package = f"; it was brought by the package {', '.join(loaded)}" if loaded else ""
    return (
        f"flagos: torch has room for one plugin (PrivateUse1), and the device {owner!r}{origin} holds it"
        f"{package}. Use one of the two in a process: do not import the other plugin, set "
        f"TORCH_DEVICE_BACKEND_AUTOLOAD=0 if it loads itself, or uninstall it. {_native.DOCTOR}"
    )
