"""The Python mirror of hal.h is what a compiler makes of hal.h, and what was frozen in abi/."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from torch_fl_base import _hal_header, _hal_types
from torch_fl_base._hal_header import CType, header, include_dir, parse

LAYOUT = json.loads(
    (Path(__file__).parents[2] / "packages" / "torch-fl-core" / "abi" / "1.0" / "layout.json").read_text()
)
TABLES = {f"flagos_hal_{group}_api": functions for group, functions in header().groups.items()}
COMPILER = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")


def spelled(kind: CType) -> str:
    """Return a type without const, as the layout file has it once const is dropped there."""
    if kind.base == "function":
        return f"void (*)({', '.join(spelled(parameter) for parameter in kind.parameters)})"
    return f"{kind.base}{'*' * kind.pointers}{f'[{kind.array}]' if kind.array else ''}"


@pytest.mark.parametrize("name", [name for name in LAYOUT["structs"] if name in header().structures])
def test_layout_of_structures_equals_the_frozen_one(name: str) -> None:
    frozen = LAYOUT["structs"][name]
    mirror = _hal_types.structure(name)
    fields = {field.name: field for field in header().structures[name]}
    assert ctypes.sizeof(mirror) >= frozen["size"]
    for member, (offset, size, kind) in frozen["members"].items():
        descriptor = getattr(mirror, member)
        assert (descriptor.offset, descriptor.size) == (offset, size), member
        # The length of an array, which the layout may give by name, shows in its size.
        assert spelled(fields[member].type).partition("[")[0] == kind.replace("const ", "").partition("[")[0]


@pytest.mark.parametrize("name", TABLES)
def test_layout_of_tables_equals_the_frozen_one(name: str) -> None:
    frozen = dict(LAYOUT["structs"][name]["members"])
    frozen.pop("struct_size")
    word = ctypes.sizeof(ctypes.c_void_p)
    found = {
        function.name: [
            (index + 1) * word,
            word,
            f"flagos_hal_status (*)({', '.join(spelled(p.type) for p in function.parameters) or 'void'})",
        ]
        for index, function in enumerate(TABLES[name])
    }
    known = {member: found[member] for member in frozen}
    assert known == {
        member: [offset, size, kind.replace("const ", "")] for member, (offset, size, kind) in frozen.items()
    }


def test_layout_covers_every_structure_and_group() -> None:
    assert {*header().structures, *TABLES, "flagos_hal_api"} >= set(LAYOUT["structs"])
    order = [name.removesuffix("_api").removeprefix("flagos_hal_") for name in TABLES]
    members = [name for name in LAYOUT["structs"]["flagos_hal_api"]["members"] if name in order]
    assert members == order


@pytest.mark.needs_compiler
@pytest.mark.skipif(COMPILER is None, reason="no C compiler: neither $CC nor cc nor gcc is there")
def test_constants_and_sizes_are_the_compiler_s(tmp_path: Path) -> None:
    known = header()
    lines = [f'printf("%s %lld\\n", "{name}", (long long)({name}));' for name in known.constants]
    lines += [f'printf("%s %lld\\n", "{name}", (long long)sizeof({name}));' for name in known.structures]
    source = tmp_path / "probe.c"
    body = "\n".join(lines)
    source.write_text(
        f'#include <stdio.h>\n#include "flagos/hal.h"\nint main(void) {{\n{body}\nreturn 0;\n}}\n'
    )
    program = tmp_path / "probe"
    subprocess.run(
        [str(COMPILER), "-std=c99", "-I", str(include_dir()), str(source), "-o", str(program)], check=True
    )
    printed = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    compiled = {name: int(value) for name, value in (line.split() for line in printed.splitlines())}
    mirrored = dict(known.constants)
    mirrored.update({name: ctypes.sizeof(_hal_types.structure(name)) for name in known.structures})
    assert mirrored == compiled


def test_no_constant_of_the_header_is_missed() -> None:
    import re

    source = _hal_header._without_comments((include_dir() / "flagos" / "hal.h").read_text(encoding="utf-8"))
    written = set(
        re.findall(r"\bFLAGOS_HAL_(?:CAP|COPY|MEMORY|EVENT|ACCESS|CAPTURE|ACTIVITY|DTYPE|HOST)_\w+", source)
    )
    assert written <= set(header().constants)
    assert len(header().statuses) == header().constants["FLAGOS_HAL_STATUS_COUNT_"]


def copy_of_the_header(folder: Path) -> Path:
    for name in ("hal.h", "hal_status.def", "hal_members.def"):
        shutil.copy(include_dir() / "flagos" / name, folder / name)
    return folder / "hal.h"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("/* HAL-DEV-02. Makes", "/* Makes", "no requirement id"),
        ("(*health)(int32_t device);", "(*health)(unsigned long device);", "cannot read the type"),
        ("(*health)(int32_t device);", "(*wellness)(int32_t device);", "wellness"),
        ("HAL-DEV-07. OK while", "HAL-DEV-08. OK while", "another id"),
        (
            "(*fill)(int32_t device, void* destination,",
            "(*fill)(int32_t device, void* target,",
            "another id or other",
        ),
    ],
)
def test_header_beyond_the_parser_is_an_error(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    path = copy_of_the_header(tmp_path)
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises((ValueError, KeyError), match=complaint):
        parse(path)


def test_header_without_a_table_is_an_error(tmp_path: Path) -> None:
    path = copy_of_the_header(tmp_path)
    text = path.read_text(encoding="utf-8")
    line = "  const flagos_hal_trace_api* trace;\n"
    assert line in text
    path.write_text(text.replace(line, ""), encoding="utf-8")
    with pytest.raises(ValueError, match="flagos_hal_api names"):
        parse(path)
