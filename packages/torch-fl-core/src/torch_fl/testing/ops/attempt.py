"""One call of an operator on one device: its result or error, its warnings, and whether it drew random
numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_fl.testing.ops.compare import compare_results, compare_values
from torch_fl.testing.ops.mirror import Mirror


@dataclass(frozen=True)
class Config:
    """How operators are compared.

    Args:
        device: the device under test, as a string.
        reference: the device whose results are right: "cpu", or one whose own kernels the device under test
            runs. Gradients in reverse mode are compared with CPU's all the same, within tolerance: PyTorch's
            engine serves one accelerator per process.
        looser: how many times torch.testing's tolerances hold, where not bit for bit.
        exact: bit for bit. Right where the device runs the reference's own kernels; elsewhere torch.testing's
            tolerances hold.
        max_samples: the most samples of an operator that one check uses, spread evenly over those PyTorch
            offers.
        seed: for samples, gradients and random operators.
    """

    device: str = "flagos"
    reference: str = "cpu"
    looser: float = 1.0
    exact: bool = True
    max_samples: int = 48
    seed: int = 20260


class DeviceLost(RuntimeError):
    """The device takes no more work in this process, as a GPU after an assertion in a kernel."""


@dataclass
class Call:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    def everything(self) -> tuple[Any, ...]:
        """Return the arguments as one nested structure."""
        return (self.args, self.kwargs)


@dataclass
class Attempt:
    """What came of a call."""

    device: torch.device
    call: Call
    mirror: Mirror
    result: Any = None
    error: BaseException | None = None
    warned: tuple[str, ...] = ()
    random: bool = False


Function = Callable[..., Any]


def attempt(function: Function, call: Call, device: str, seed: int) -> Attempt:
    """Call `function` on doubles of the arguments on `device`, every generator freshly seeded.

    An error of the call is kept, not raised; so are its warnings. Random is whether CPU's default generator
    advanced, which tells the truth only for device "cpu", or a generator was among the arguments.

    Raises: DeviceLost if the device refuses work afterwards.
    """
    mirror = Mirror(device)
    args, kwargs = mirror((call.args, call.kwargs))
    outcome = Attempt(torch.device(device), Call(args, kwargs), mirror)
    torch.manual_seed(seed)
    before = torch.get_rng_state()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome.result = function(*args, **kwargs)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  Whatever an operator raises is the observation made here.
            outcome.error = error
    _expect_alive(outcome.device)
    outcome.warned = tuple(str(warning.message) for warning in caught)
    outcome.random = bool(mirror.generators) or not torch.equal(before, torch.get_rng_state())
    return outcome


def _expect_alive(device: torch.device) -> None:
    if device.type == "cpu":
        return
    try:
        torch.get_device_module(device).synchronize()
    except RuntimeError as error:
        raise DeviceLost(summary(error)) from None


def summary(error: BaseException) -> str:
    """Return type and first lines of an error, short enough for a result file."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"


def compare_attempts(
    ours: Attempt, theirs: Attempt, *, exact: bool, values: bool = True, looser: float = 1.0
) -> list[str]:
    """Return complaints about a call on the device against the same call on the reference: errors, result,
    changed arguments."""
    if theirs.error is not None:
        if ours.error is None:
            return [f"no error; the reference raises {summary(theirs.error)}"]
        if not isinstance(ours.error, type(theirs.error)) and not isinstance(theirs.error, type(ours.error)):
            return [f"raises {summary(ours.error)}; the reference raises {summary(theirs.error)}"]
        return []
    if ours.error is not None:
        return [f"raises {summary(ours.error)}"]
    if theirs.random and ours.random and ours.device.type != "cpu" and not theirs.mirror.generators:
        return ["draws from CPU's default generator; its own must be used"]
    values = values and not theirs.random
    complaints = compare_results(
        ours.result,
        theirs.result,
        ours.call.everything(),
        theirs.call.everything(),
        device=ours.device if ours.mirror.names_device else torch.device("cpu"),
        exact=exact,
        values=values,
        looser=looser,
    )
    if values:
        pairs = zip(ours.mirror.bases(), theirs.mirror.bases(), strict=True)
        for index, (mine, wanted) in enumerate(pairs):
            what = f"memory of argument {index} after the call"
            complaints += compare_values(mine, wanted, what, exact=exact, looser=looser)
    return complaints
