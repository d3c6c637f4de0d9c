"""Exact doubles of an operator's arguments on another device: same values, strides, offsets, shared storage,
conj and neg bits.

`Tensor.to(device)` keeps values but neither gaps between elements nor which tensors share memory. Whether an
operator is right about views, overlaps and strided outputs shows only on doubles that keep both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# What PyTorch's samples call a device: where it is an argument, they name CUDA too if there is one.
_SAMPLES_NAME = ("cpu", "cuda")


def transform(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return `value` with `function` applied to every leaf of its lists, tuples, dicts and slices."""
    if isinstance(value, torch.Size):
        return value
    if isinstance(value, tuple):
        items = [transform(item, function) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, list):
        return [transform(item, function) for item in value]
    if isinstance(value, dict):
        return {key: transform(item, function) for key, item in value.items()}
    if isinstance(value, slice):
        start, stop, step = (transform(part, function) for part in (value.start, value.stop, value.step))
        return slice(start, stop, step)
    return function(value)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a nested structure, in the order of `transform`."""
    found: list[torch.Tensor] = []

    def visit(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        return leaf

    transform(value, visit)
    return found


def has_plain_storage(tensor: torch.Tensor) -> bool:
    """Return whether the tensor is an ordinary strided one, so that storage, strides and offset mean
    something."""
    return (
        tensor.layout == torch.strided
        and not tensor.is_nested
        and type(tensor) in (torch.Tensor, torch.nn.Parameter)
    )


class Mirror:
    """Makes doubles of CPU structures on one device; tensors that share storage there share it here.

    Args:
        device: where the doubles live; "cpu" gives independent copies, so that an original stays untouched.
    """

    def __init__(self, device: str | torch.device) -> None:
        self.device = torch.device(device)
        self._bases: dict[int, torch.Tensor] = {}
        self._originals: list[torch.UntypedStorage] = []  # kept alive: the keys above are their addresses
        self._dtypes: dict[int, torch.dtype] = {}
        self.generators: list[torch.Generator] = []
        self.names_device = False  # whether anything in the arguments says where results belong

    def __call__(self, value: Any) -> Any:
        """Return the double of a nested structure; devices and generators in it are replaced as well."""
        return transform(value, self._leaf)

    def bases(self) -> list[torch.Tensor]:
        """Return one flat tensor over each storage made, in the order of making, in the type of its first
        tensor."""
        found = []
        for key, base in self._bases.items():
            size = self._dtypes[key].itemsize
            found.append(base[: base.numel() // size * size].view(self._dtypes[key]))
        return found

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            if leaf.device.type not in _SAMPLES_NAME:
                return leaf
            self.names_device = True
            return self._tensor(leaf.cpu())
        if isinstance(leaf, torch.device) and leaf.type in _SAMPLES_NAME:
            self.names_device = True
            return self.device
        if isinstance(leaf, str) and leaf.partition(":")[0] in _SAMPLES_NAME:
            self.names_device = True
            return str(self.device)
        if isinstance(leaf, torch.Generator):
            double = torch.Generator(self.device)
            double.manual_seed(leaf.initial_seed())
            self.generators.append(double)
            return double
        return leaf

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if not has_plain_storage(tensor):
            moved = tensor.detach().to(self.device, copy=True)
            return moved.requires_grad_(tensor.requires_grad)
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._bases:
            whole = torch.empty(0, dtype=torch.uint8).set_(storage)
            self._bases[key] = whole.to(self.device, copy=True)
            self._originals.append(storage)
            self._dtypes[key] = tensor.dtype
        base = self._bases[key]
        usable = base[: base.numel() // tensor.dtype.itemsize * tensor.dtype.itemsize]
        with torch.no_grad():
            double = usable.view(tensor.dtype).as_strided(
                tensor.size(), tensor.stride(), tensor.storage_offset()
            )
            if tensor.is_conj():
                double = double.conj()
            if tensor.is_neg():
                double = torch._neg_view(double)
        double = double.detach()
        return double.requires_grad_() if tensor.requires_grad else double


def interleaved(tensor: torch.Tensor) -> torch.Tensor:
    """Return an equal tensor whose elements lie two apart with an offset of one, so that neither is what a
    kernel hopes for."""
    if not has_plain_storage(tensor) or tensor.dim() == 0 or tensor.numel() == 0:
        return tensor
    with torch.no_grad():
        wide = torch.zeros((*tensor.shape[:-1], tensor.shape[-1] * 2 + 1), dtype=tensor.dtype)
        view = wide[..., 1::2]
        view.copy_(tensor.detach())
        view = view.detach()
    return view.requires_grad_(tensor.requires_grad)


def reversed_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return an equal tensor whose dimensions lie in memory in the opposite order (column-major, for a
    matrix)."""
    if not has_plain_storage(tensor) or tensor.dim() < 2 or tensor.numel() == 0:
        return tensor
    with torch.no_grad():
        order = tuple(reversed(range(tensor.dim())))
        view = tensor.detach().permute(order).contiguous().permute(order).detach()
    return view.requires_grad_(tensor.requires_grad)


def emptied(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with its first dimension cut to nothing; a 0-dim tensor stays."""
    if not has_plain_storage(tensor) or tensor.dim() == 0:
        return tensor
    return tensor.detach()[:0].clone().requires_grad_(tensor.requires_grad)


def scalared(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's first element as a 0-dim tensor; an empty tensor stays."""
    if not has_plain_storage(tensor) or tensor.numel() == 0:
        return tensor
    return tensor.detach().reshape(-1)[0].clone().requires_grad_(tensor.requires_grad)
