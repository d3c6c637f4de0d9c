"""The bindings and their types: every bound function has an entry in _C.pyi and a docstring."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import torch_fl
from torch_fl_base import _native

STUB = ast.parse((_native.PACKAGE / "_C.pyi").read_text(encoding="utf-8"))


def _members(body: list[ast.stmt]) -> set[str]:
    return {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


TYPED = {node.name: _members(node.body) for node in STUB.body if isinstance(node, ast.ClassDef)}
BOUND = {
    name: {member for member in vars(module) if not member.startswith("__")}
    for name, module in vars(torch_fl._C).items()
    if type(module).__name__ == "module"
}


def test_subjects_are_the_same() -> None:
    assert set(TYPED) == set(BOUND)


@pytest.mark.parametrize("subject", sorted(BOUND))
def test_functions_of_a_subject_are_typed_and_documented(subject: str) -> None:
    assert TYPED[subject] == BOUND[subject]
    module = getattr(torch_fl._C, subject)
    assert module.__doc__
    for name in BOUND[subject]:
        if isinstance(getattr(module, name), type):
            continue  # an exception
        # pybind11 puts the signature first.
        assert getattr(module, name).__doc__.partition("\n\n")[2].strip(), f"{subject}.{name} says nothing"


def test_bindings_are_where_an_import_would_put_them() -> None:
    import torch_fl._C as imported

    assert imported is torch_fl._C
    assert Path(imported.__file__).parent == _native.PACKAGE
