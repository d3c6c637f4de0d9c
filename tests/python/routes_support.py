"""What the tests of routes share: known operators, a vendor's table, and how faults are told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torch_fl_base.routes import RouteError
from torch_fl_base.routes.model import Table
from torch_fl_base.routes.operators import Catalogue

VENDOR = """\
schema = 1
extends = "base"
[ops."mean.dim"]
candidates = ["gems", {source = "boxed", when = {dtype = "float32"}}]
reason = "gems is right, boxed is fast"
until = "issue 7"
"""
SCHEMAS = {
    "aten::mm": {"self": "Tensor", "mat2": "Tensor"},
    "aten::mm.out": {"self": "Tensor", "mat2": "Tensor", "out": "Tensor"},
    "aten::mean.dim": {
        "self": "Tensor",
        "dim": "Optional[List[int]]",
        "keepdim": "bool",
        "dtype": "Optional[int]",
    },
    "aten::mean": {"self": "Tensor", "dtype": "Optional[int]"},
    "aten::_softmax": {"self": "Tensor", "dim": "int", "half_to_float": "bool"},
    "aten::softmax.int": {"self": "Tensor", "dim": "int", "dtype": "Optional[int]"},
    "aten::sdpa": {"query": "Tensor", "attn_mask": "Optional[Tensor]", "scale": "Optional[float]"},
    "aten::_foreach_add.List": {"self": "List[Tensor]", "other": "List[Tensor]"},
    "aten::_foreach_mul.List": {"self": "List[Tensor]", "other": "List[Tensor]"},
    "prims::add": {"a": "Tensor", "b": "Tensor"},
}
CATALOGUE = Catalogue(
    lambda: SCHEMAS, SCHEMAS.get, lambda: [op for op in SCHEMAS if op != "aten::softmax.int"], "2.13"
)
Read = Callable[..., Table]


def faults_of(read: Read, text: str) -> list[str]:
    with pytest.raises(RouteError) as caught:
        read(text)
    return [str(fault).rpartition("/")[2] for fault in caught.value.faults]


def fails(action: Callable[[], object], *words: str) -> None:
    with pytest.raises(RouteError) as caught:
        action()
    for word in words:
        assert word in str(caught.value), str(caught.value)
