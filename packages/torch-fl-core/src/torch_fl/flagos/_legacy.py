"""The old tensor and storage types (`torch.flagos.FloatTensor`, `torch.flagos.FloatStorage`, …) as torch.cuda
has them.

Made from one table: torch itself knows the types of a renamed device by their names only
(`tensor.type("torch.flagos.…")`).
"""

from __future__ import annotations

from typing import Any

import torch

from ._lazy import DEVICE

_TENSORS = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}
_STORAGES = {name.replace("Tensor", "Storage"): dtype for name, dtype in _TENSORS.items()} | {
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
}


class _TensorType(type):
    """The type of the tensor types: they make tensors, tell whether something is one, and have no
    instances."""

    dtype: torch.dtype

    def __call__(cls, *arguments: Any) -> torch.Tensor:
        """Make a tensor from sizes (contents undefined), a sequence, or nothing."""
        return torch.empty(0, dtype=cls.dtype, device=DEVICE).new(*arguments)

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.device.type == DEVICE
            and instance.dtype == cls.dtype
        )

    def __repr__(cls) -> str:
        return f"<class '{cls.__name__}'>"


def tensor_types() -> dict[str, type]:
    """Return the tensor types by name."""
    types: dict[str, type] = {}
    for name, dtype in _TENSORS.items():
        # tensor.type(T) reads the name of the C type object, which is what is given here, dots and all.
        members = {
            "dtype": dtype,
            "is_flagos": True,
            "is_cuda": False,
            "is_sparse": False,
            "layout": torch.strided,
        }
        types[name] = _TensorType(f"torch.{DEVICE}.{name}", (), {"__module__": f"torch.{DEVICE}", **members})
    return types


def storage_types() -> dict[str, type]:
    """Return the storage types by name; torch finds their device by the module they claim to be of."""
    base: Any = torch.storage._LegacyStorage
    return {
        name: type(base)(name, (base,), {"__module__": f"torch.{DEVICE}", "dtype": dtype, "_dtype": dtype})
        for name, dtype in _STORAGES.items()
    }
