"""The name `cuda` for flagos, for programs that have it written into them: asked for, and undone.

What it changes: C++ makes the device type mean flagos wherever an operator or a constructor of torch takes a
device; here, functions of torch.cuda become those of torch.flagos, name by name. What it leaves honest:
tensors tell `flagos` as their device, `is_cuda` is False, and torch.version.cuda is what torch was built for.
Also loaded by path (torch_fl_base._native.load_part), so that it must not import the package torch_fl.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from torch_fl_base import _env, _log, _native, autoload
from torch_fl_base._undo import Undoable

_ALIAS = "cuda"
_lock = threading.Lock()
_in_effect = 0
_undo: list[Callable[[], None]] = []
"""What gives everything back, in the order it was changed."""


class alias_cuda(Undoable):
    """Let `cuda` mean flagos: `device="cuda"`, `.cuda()`, `torch.device("cuda")`, autocast, torch.cuda.*.

    In effect for the whole process from the call until `undo`, or for a `with` block; several may be in
    effect at once. Tensors made meanwhile are flagos tensors and stay so. Functions of torch.cuda that flagos
    has no counterpart for raise NotImplementedError with the reason. FLAGOS_ALIAS_CUDA=1 does the same from
    the start.

    Raises: RuntimeError where torch has CUDA devices of its own: `cuda` means them.
    """

    def __init__(self) -> None:
        self._on = False
        with _lock:
            if _in_effect == 0 and torch.cuda.device_count() > 0:
                raise RuntimeError(
                    f"flagos: torch has {torch.cuda.device_count()} CUDA device(s) of its own here, and "
                    "'cuda' means them. Say 'flagos' in the program, or hide them (CUDA_VISIBLE_DEVICES=)."
                )
            _enter()
        self._on = True

    def undo(self) -> None:
        """Give the name back; the second call does nothing."""
        with _lock:
            if self._on:
                self._on = False
                _leave()


def follow_environment() -> None:
    """Do what FLAGOS_ALIAS_CUDA says, where torch has no accelerator of its own; opens no driver for it."""
    own = autoload.own_accelerator(autoload.facts_of(torch))
    if own is not None:
        _log.logger("compat").info("%s has no effect: %s", _env.ALIAS_CUDA.name, own)
        return
    # The program asks for an accelerator by name, as one that imports torch_fl does.
    _native.load().devices.allow_emulated()
    with _lock:
        if _in_effect == 0:
            _enter()


def in_effect() -> bool:
    """Return whether `cuda` means flagos now."""
    return _in_effect > 0


def _enter() -> None:
    global _in_effect
    if _in_effect == 0:
        try:
            _change()
        except BaseException:
            _give_back()
            raise
    _in_effect += 1


def _leave() -> None:
    global _in_effect
    _in_effect -= 1
    if _in_effect == 0:
        _give_back()


def _give_back() -> None:
    while _undo:
        _undo.pop()()


def _change() -> None:
    native = _native.load().compat
    _undo.append(native.restore_device_type)
    native.rename_device_type(_ALIAS, (torch.device, torch.Generator, torch.Stream, torch.Event))
    _set(torch.Tensor, "cuda", _tensor_cuda)
    _change_modules()
    _change_autocast()


def _set(owner: Any, name: str, value: Any) -> None:
    """Set an attribute of a module or a class, to be undone."""
    if name in vars(owner):
        before = vars(owner)[name]
        _undo.append(lambda: setattr(owner, name, before))
    else:
        _undo.append(lambda: delattr(owner, name))
    setattr(owner, name, value)


def _tensor_cuda(
    self: torch.Tensor,
    device: torch.device | str | int | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    """Return the tensor on a flagos device, the current one by default; itself if it is there already."""
    place = torch.device("flagos", device) if isinstance(device, int) else torch.device(device or "flagos")
    if place.type != "flagos":
        raise ValueError(f"Invalid device, must be cuda device: {place}")
    return self.to(place, non_blocking=non_blocking, memory_format=memory_format)


def _lazy_call(function: Callable[[], Any], **_: Any) -> None:
    """Call at once what torch.cuda would keep until its first use."""
    function()


_PRIVATE = (
    "_exchange_device",
    "_get_generator",
    "_get_rng_state_offset",
    "_is_in_bad_fork",
    "_lazy_init",
    "_maybe_exchange_device",
    "_set_rng_state_offset",
    "_set_stream_by_id",
)
"""Names of torch.cuda that torch itself uses by getattr(torch, <device type>)."""


def _change_modules() -> None:
    flagos = torch.flagos  # type: ignore[attr-defined]
    from torch.flagos._missing import MISSING  # type: ignore[import-not-found]

    for module in (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams):
        for name in [*torch.cuda.__all__, *_PRIVATE]:
            present = vars(module).get(name)
            if present is None:
                continue
            if name in MISSING:
                if inspect.isfunction(present):
                    _set(module, name, _refusing(name, MISSING[name]))
            elif hasattr(flagos, name) and not isinstance(present, ModuleType):
                _set(module, name, _standing_for(getattr(flagos, name)))
    for module in (torch.cuda, torch.cuda._utils):
        _set(module, "_get_device_index", torch._utils._get_device_index)
    _set(torch.cuda, "_lazy_call", _lazy_call)
    _set(torch.cuda, "_initialized", True)


def _standing_for(value: Any) -> Any:
    """Return a function as another object: torch.compile knows functions by identity, one per device type."""
    if not inspect.isfunction(value):
        return value

    @functools.wraps(value)
    def function(*args: Any, **kwargs: Any) -> Any:
        return value(*args, **kwargs)

    return function


def _refusing(name: str, reason: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"torch.cuda.{name} has no counterpart on flagos: {reason}")

    refuse.__name__ = refuse.__qualname__ = name
    return refuse


_AUTOCAST = ("is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype", "set_autocast_dtype")


def _change_autocast() -> None:
    from torch.amp import autocast_mode, grad_scaler
    from torch.cuda import amp

    for owner in (autocast_mode.autocast, grad_scaler.GradScaler):
        _set(owner, "__init__", _with_flagos(vars(owner)["__init__"]))
    for name in ("custom_fwd", "custom_bwd"):
        by_device = _with_flagos(getattr(torch.amp, name))
        for module in (torch.amp, autocast_mode):
            _set(module, name, by_device)
        for module in (amp, amp.autocast_mode):
            _set(module, name, functools.partial(by_device, device_type="flagos"))
    for name in _AUTOCAST:
        _set(torch, name, _of_accelerator(getattr(torch, name)))
    _set(torch, "get_autocast_gpu_dtype", functools.partial(torch.get_autocast_dtype, "flagos"))
    _set(torch, "set_autocast_gpu_dtype", functools.partial(torch.set_autocast_dtype, "flagos"))
    _set(amp.common, "amp_definitely_not_available", lambda: False)


def _with_flagos(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with the device type `cuda`, given or by default, replaced by flagos."""
    default = {
        name: "flagos"
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default == _ALIAS
    }

    @functools.wraps(function)
    def renamed(*args: Any, **kwargs: Any) -> Any:
        given = [_renamed(argument) for argument in args]
        named = {name: _renamed(argument) for name, argument in kwargs.items()}
        if default:
            taken = inspect.signature(function).bind_partial(*given, **named).arguments
            named.update({name: value for name, value in default.items() if name not in taken})
        return function(*given, **named)

    return renamed


def _of_accelerator(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return one of torch's functions on autocast, which without a device type mean CUDA."""

    @functools.wraps(function)
    def renamed(*args: Any) -> Any:
        if any(isinstance(argument, str) for argument in args):
            return function(*[_renamed(argument) for argument in args])
        return function("flagos", *args)

    return renamed


def _renamed(argument: Any) -> Any:
    return "flagos" if isinstance(argument, str) and argument.partition(":")[0] == _ALIAS else argument
