"""_C.hal: libraries opened by hand from Python with torch, and their functions called through ctypes."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
from hal_native import Workshop, reference_library

pytestmark = pytest.mark.needs_compiler


@pytest.fixture(scope="module")
def binding() -> Any:
    """Return torch_fl._C.hal."""
    pytest.importorskip("torch")
    from torch_fl_base import _native

    return _native.load().hal


def call(library: Any, name: str, *arguments: Any) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int32)(library.functions[name])(*arguments))


def test_open_library_tells_name_path_version_and_groups(binding: Any) -> None:
    path = reference_library()
    library = binding.open("mine", str(path), private_copy=True)
    assert (library.name, library.path, library.abi) == ("mine", str(path), (1, 0))
    assert {"host", "peer"} <= set(library.optional_groups)
    assert library.violations == 0
    names = [member["name"] for member in binding.members()]
    assert sorted(library.functions) == sorted(names)
    assert all(library.functions.values())


def test_functions_can_be_called_through_the_layers(binding: Any, tmp_path: Path) -> None:
    trace = tmp_path / "calls.log"
    library = binding.open(
        "mine",
        str(reference_library()),
        private_copy=True,
        validate=True,
        trace=True,
        trace_path=str(trace),
        log_violations=False,
    )
    assert call(library, "system.init") == 0
    pointer = ctypes.c_void_p()
    assert call(library, "memory.allocate", 0, ctypes.c_uint64(64), ctypes.byref(pointer)) == 0
    assert call(library, "memory.release", 0, ctypes.c_void_p(0x10000)) == 3
    assert library.violations == 1
    described = library.describe_failure(3)
    assert described.startswith(
        "backend 'mine': memory.release failed: INVALID_HANDLE (a stream, event, graph or pointer"
    )
    assert "GEN-08: pointer 0x10000 is not memory that this library gave out" in described
    assert library.describe_failure(5).endswith(
        "the library left no detail"
    )  # another failure's detail is not quoted
    assert call(library, "memory.release", 0, pointer) == 0
    assert call(library, "system.shutdown") == 0
    assert [line.split(" ")[3].partition("(")[0] for line in trace.read_text().splitlines()] == [
        "system.init",
        "memory.allocate",
        "memory.release",
        "system.last_error",
        "system.last_error",
        "memory.release",
        "system.shutdown",
    ]


def test_refused_library_raises_with_its_kind(binding: Any, workshop: Workshop, tmp_path: Path) -> None:
    other_major = workshop.library("negotiable.c", "-DARRANGE=API.abi_major=2;")
    for path, kind, text in (
        (tmp_path / "none.so", "not found", "there is no HAL library at"),
        (Path(__file__), "not a library", "is not an ELF shared library"),
        (other_major, "ABI refused", "speaks HAL ABI 2.0, this torch-fl-core speaks 1.0"),
    ):
        with pytest.raises(binding.LoadError, match=text) as refused:
            binding.open("mine", str(path))
        assert refused.value.kind == kind
        assert isinstance(refused.value, RuntimeError)


def test_missing_member_is_described_as_such(binding: Any, workshop: Workshop) -> None:
    library = binding.open("mine", str(workshop.library("negotiable.c", "-DARRANGE=STREAM.host_callback=0;")))
    assert call(library, "stream.host_callback", None, None, None) == 6
    assert library.describe_failure(6) == (
        "backend 'mine': stream.host_callback failed: UNSUPPORTED (the library or the hardware cannot do "
        "this): the library of backend 'mine' (HAL ABI 1.0) does not have this function (HAL-STR-10)"
    )


def test_statuses_have_names_and_texts(binding: Any) -> None:
    assert (binding.status_name(5), binding.status_text(5)) == (
        "OUT_OF_MEMORY",
        "the memory asked for cannot be had",
    )
    assert (binding.status_name(99), binding.status_text(-1)) == ("?", "?")
