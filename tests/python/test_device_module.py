"""torch.flagos against torch.cuda: every public name is there, or is listed here with the reason why not."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch.cuda

import torch_fl
from torch_fl.flagos._missing import MISSING

# Arguments of torch.cuda's functions that ours lack, by function.
MISSING_ARGUMENTS: dict[str, set[str]] = {
    "Event": {"external"},  # for graph capture
    "memory_snapshot": {"mempool_id", "include_traces"},  # for private pools; torch.flagos.memory._snapshot
}


@pytest.mark.parametrize("name", sorted(torch.cuda.__all__))
def test_every_name_of_torch_cuda_is_there_or_has_a_reason(name: str) -> None:
    if name in MISSING:
        assert not hasattr(torch.flagos, name), f"{name} is there: take it off the list"
    else:
        assert hasattr(torch.flagos, name), f"torch.flagos.{name} is missing without a reason"


def test_missing_name_is_refused_with_the_reason() -> None:
    with pytest.raises(AttributeError, match="'temperature': the HAL has no function that tells it"):
        torch.flagos.temperature()
    with pytest.raises(AttributeError, match=r"'temperatur'$"):
        torch.flagos.temperatur()


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the list is that of torch 2.13")
def test_reasons_are_for_names_that_exist() -> None:
    assert set(MISSING) <= set(torch.cuda.__all__)
    assert all(MISSING.values())


def _parameters(function: object) -> dict[str, inspect.Parameter]:
    if inspect.isclass(function):
        function = function.__new__ if "__new__" in vars(function) else function.__init__
    parameters = dict(inspect.signature(function).parameters)  # type: ignore[arg-type]
    return {
        name: p
        for name, p in parameters.items()
        if name not in ("cls", "self") and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    }


CALLABLE = [
    name
    for name in sorted(torch.cuda.__all__)
    if name not in MISSING
    and callable(getattr(torch.cuda, name))
    and not name.endswith(("Tensor", "Storage"))
]


@pytest.mark.parametrize("name", CALLABLE)
def test_arguments_have_the_names_and_order_of_torch_cuda(name: str) -> None:
    theirs, ours = _parameters(getattr(torch.cuda, name)), _parameters(getattr(torch.flagos, name))
    wanted = [parameter for parameter in theirs if parameter not in MISSING_ARGUMENTS.get(name, set())]
    assert list(ours)[: len(wanted)] == wanted
    for parameter in wanted:
        optional = theirs[parameter].default is not inspect.Parameter.empty
        assert (ours[parameter].default is not inspect.Parameter.empty) >= optional, parameter


@pytest.mark.parametrize("name", CALLABLE)
def test_every_function_says_what_it_returns(name: str) -> None:
    text = inspect.getdoc(getattr(torch.flagos, name))
    assert text, f"torch.flagos.{name} has no docstring"
    summary = text.partition("\n\n")[0]
    assert summary.endswith("."), summary


def test_torch_fl_flagos_is_the_same_module() -> None:
    assert torch_fl.flagos is torch.flagos
    assert torch.flagos.__name__ == "torch.flagos"
    assert torch.get_device_module("flagos") is torch.flagos
