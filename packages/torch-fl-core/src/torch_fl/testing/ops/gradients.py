"""The checks of derivatives: first and second order in reverse mode, first order in forward mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad as _forward_ad

from torch_fl.testing.ops.attempt import Call
from torch_fl.testing.ops.mirror import Mirror, tensors_in, transform

_fwd: Any = _forward_ad  # untyped in torch

if TYPE_CHECKING:
    from torch_fl.testing.ops.checks import Pairs, Subject


class _Random:
    """Random tensors made on CPU once and handed to each device in turn, in the order they are asked for."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._made: list[torch.Tensor] = []

    def reader(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return a function that gives the next tensor in the form of its argument, on the same device."""
        position = -1

        def next_like(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal position
            position += 1
            if position == len(self._made):
                wide = torch.complex64 if tensor.dtype == torch.complex32 else tensor.dtype
                wide = torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else wide
                values = torch.randn(tensor.shape, dtype=wide, generator=self._generator).to(tensor.dtype)
                self._made.append(values)
            return Mirror(tensor.device)(self._made[position])  # type: ignore[no-any-return]

        return next_like


def _wrapped(subject: Subject, sample: Any) -> Callable[..., Any]:
    """Return the operator as its derivative is to be taken: with OpInfo's own normalisation of inputs and
    outputs."""
    info = subject.info
    operator = info.get_op()
    post = sample.output_process_fn_grad

    def function(*args: Any, **kwargs: Any) -> Any:
        wrapper = getattr(info, "gradcheck_wrapper", None)
        if getattr(wrapper, "__name__", "") == "wrapper_set_seed":  # see database._let_random_operators_draw
            wrapper = None
        result = wrapper(operator, *args, **kwargs) if wrapper else operator(*args, **kwargs)
        return post(result)

    return function


def _differentiable(value: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_in(value) if tensor.requires_grad]


class _NothingToDerive(Exception):
    """No result of the call depends on an input that requires a gradient."""


def _derivative(subject: Subject, *, second: bool, most: int) -> Pairs:
    for index, sample in enumerate(subject.samples(requires_grad=True, most=most)):
        function = _wrapped(subject, sample)
        random = _Random(subject.config.seed)

        def derive(*args: Any, _f: Any = function, _r: _Random = random, **kwargs: Any) -> Any:
            inputs = _differentiable((args, kwargs))
            outputs = _differentiable(_f(*args, **kwargs))
            if not inputs or not outputs:
                raise _NothingToDerive
            like = _r.reader()
            seeds = [like(output) for output in outputs]
            first = torch.autograd.grad(outputs, inputs, seeds, create_graph=second, allow_unused=True)
            if not second:
                return [outputs, first]
            again = _differentiable(first)
            if not again:
                raise _NothingToDerive
            return torch.autograd.grad(again, inputs, [like(grad) for grad in again], allow_unused=True)

        call = Call((sample.input, *sample.args), dict(sample.kwargs))
        accumulated = second or subject.config.looser != 1.0
        yield f"sample {index}", subject.compare(derive, call, strict=False, accumulated=accumulated)[2]


def backward(subject: Subject) -> Pairs:
    """Compare results and gradients of every sample, for the same random gradients of the results."""
    yield from _derivative(subject.against_cpu(), second=False, most=24)


def gradgrad(subject: Subject) -> Pairs:
    """Compare second derivatives."""
    yield from _derivative(subject.against_cpu(), second=True, most=4)


def forward_ad(subject: Subject) -> Pairs:
    """Compare tangents of the results for the same random tangents of the inputs."""
    for index, sample in enumerate(subject.samples(requires_grad=True, most=4)):
        function = _wrapped(subject, sample)
        random = _Random(subject.config.seed)

        def derive(*args: Any, _f: Any = function, _r: _Random = random, **kwargs: Any) -> Any:
            if not _differentiable((args, kwargs)):
                raise _NothingToDerive
            like = _r.reader()
            with _fwd.dual_level():
                mirror = _Dual(like)
                call_args, call_kwargs = mirror.apply(args), mirror.apply(kwargs)
                results = tensors_in(_f(*call_args, **call_kwargs))
                tangents = [_fwd.unpack_dual(result).tangent for result in results]
            found = [tangent for tangent in tangents if tangent is not None]
            if not found:
                raise _NothingToDerive
            return found

        call = Call((sample.input, *sample.args), dict(sample.kwargs))
        yield f"sample {index}", subject.compare(derive, call, strict=False)[2]


class _Dual:
    """Turns every tensor that requires a gradient into a dual one."""

    def __init__(self, like: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._like = like

    def apply(self, value: Any) -> Any:
        return transform(value, self._leaf)

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            return _fwd.make_dual(leaf.detach(), self._like(leaf))
        return leaf
