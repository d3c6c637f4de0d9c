"""The HAL header as an ABI: it compiles as C99 and C++17, its layout is frozen, and its texts and its list of
members agree.
"""

from __future__ import annotations

import copy
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hal_native import CORE, INCLUDE, Layers, Workshop, compiler

pytestmark = pytest.mark.needs_compiler
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
FROZEN = sorted(path for path in (CORE / "abi").iterdir() if re.fullmatch(r"\d+\.\d+", path.name))


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """Return abi/layout.py as a module."""
    spec = importlib.util.spec_from_file_location("flagos_abi_layout", CORE / "abi" / "layout.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def compile_alone(header: str, language: str, standard: str, folder: Path) -> None:
    """Compile a header twice in one file, and nothing else."""
    source = folder / ("alone.c" if language == "c" else "alone.cpp")
    source.write_text(
        f'#include "{header}"\n#include "{header}"\nint main(void) {{ return 0; }}\n', encoding="utf-8"
    )
    command = [
        *compiler(language),
        f"-std={standard}",
        *STRICT,
        "-I",
        str(INCLUDE),
        "-c",
        str(source),
        "-o",
        str(folder / "alone.o"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("language", "standard"), [("c", "c99"), ("c", "c11"), ("c++", "c++17"), ("c++", "c++20")]
)
def test_header_compiles_without_a_warning(language: str, standard: str, tmp_path: Path) -> None:
    compile_alone("flagos/hal.h", language, standard, tmp_path)


SUPPORT = sorted(
    path.name for path in (INCLUDE / "flagos" / "hal_support").glob("*.hpp") if path.name != "sdk_table.hpp"
)


@pytest.mark.parametrize("name", SUPPORT)
def test_support_header_compiles_alone(name: str, tmp_path: Path) -> None:
    compile_alone(f"flagos/hal_support/{name}", "c++", "c++17", tmp_path)


def test_layout_agrees_with_every_frozen_version(tool: ModuleType) -> None:
    assert FROZEN
    assert tool.check() == []


def test_layout_knows_every_structure_and_table(tool: ModuleType) -> None:
    layout = tool.probe(INCLUDE / "flagos")
    text = (INCLUDE / "flagos" / "hal.h").read_text(encoding="utf-8")
    assert set(layout["structs"]) == set(re.findall(r"^\} (flagos_hal_\w+);", text, flags=re.M)) - set(
        re.findall(r"typedef enum (\w+)", text)
    )
    members = re.findall(
        r"^FLAGOS_HAL_MEMBER\((\w+), (\w+),", (INCLUDE / "flagos" / "hal_members.def").read_text(), flags=re.M
    )
    for group, member in members:
        assert member in layout["structs"][f"flagos_hal_{group}_api"]["members"]
    tables = {
        name: one for name, one in layout["structs"].items() if re.fullmatch(r"flagos_hal_\w+_api", name)
    }
    assert sum(len(one["members"]) - 1 for one in tables.values()) == len(members)


def test_layout_tells_what_breaks_and_allows_growth(tool: ModuleType) -> None:
    frozen = tool.probe(INCLUDE / "flagos")
    later = copy.deepcopy(frozen)
    later["abi"] = [1, 1]
    later["constants"]["FLAGOS_HAL_ABI_MINOR"] = 1
    memory = later["structs"]["flagos_hal_memory_api"]
    memory["members"]["prefetch"] = [memory["size"], 8, "flagos_hal_status (*)(void)"]
    memory["size"] += 8
    later["constants"]["FLAGOS_HAL_CAP_NEW"] = 6
    assert tool.differences(frozen, later) == []
    moved = copy.deepcopy(later)
    moved["structs"]["flagos_hal_memory_api"]["members"]["copy"][0] += 8
    moved["structs"]["flagos_hal_event_api"]["members"]["query"][2] = "void (*)(void)"
    moved["constants"]["FLAGOS_HAL_STATUS_CAPTURE"] = 14
    moved["structs"]["flagos_hal_ipc_handle"]["size"] += 8
    del moved["structs"]["flagos_hal_info"]
    found = "\n".join(tool.differences(frozen, moved))
    for part in (
        "memory_api.copy",
        "event_api.query",
        "STATUS_CAPTURE",
        "ipc_handle had 136",
        "info is gone",
    ):
        assert part in found
    unannounced = copy.deepcopy(later)
    unannounced["abi"] = frozen["abi"]
    assert any("prefetch is new" in one for one in tool.differences(frozen, unannounced))


@pytest.mark.parametrize("folder", FROZEN, ids=[path.name for path in FROZEN])
def test_library_made_with_a_frozen_header_loads(
    folder: Path, workshop: Workshop, layers: Layers, tmp_path: Path
) -> None:
    (tmp_path / "flagos").symlink_to(folder)
    hal = layers.open(workshop.library("faulty.c", include=tmp_path))
    assert ".".join(map(str, hal.abi)) == folder.name
    hal.system.init()
    assert hal.device.count() == 1
    hal.memory.release(0, hal.memory.allocate(0, 64))
    hal.system.shutdown()


@pytest.mark.parametrize("folder", FROZEN, ids=[path.name for path in FROZEN])
def test_present_library_serves_a_core_of_a_frozen_minor(folder: Path, workshop: Workshop) -> None:
    major, minor = folder.name.split(".")
    program = workshop.program("negotiation_check.cpp")
    command = [str(program), str(workshop.library("support_hal.cpp", "-Wl,-z,now")), major, minor, "0"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.startswith("ok 1.")


def test_abi_member_list_says_what_the_header_texts_say() -> None:
    text = (INCLUDE / "flagos" / "hal.h").read_text(encoding="utf-8")
    listed = re.findall(
        r'^FLAGOS_HAL_MEMBER\((\w+), (\w+), (\w+), (\d+), (\w+), "([\w-]+)", "(.*)"\)$',
        (INCLUDE / "flagos" / "hal_members.def").read_text(encoding="utf-8"),
        flags=re.M,
    )
    assert len(listed) == len(re.findall(r"^  flagos_hal_status \(\*\w+\)\(", text, flags=re.M))
    for group, member, need, since, _, identifier, parameters in listed:
        table = re.search(rf"typedef struct flagos_hal_{group}_api \{{(.*?)\n\}}", text, flags=re.S)
        assert table is not None
        text_above = rf"/\* ({identifier})\. ((?:(?!\*/).)*)\*/"
        declaration = rf"flagos_hal_status \(\*{member}\)\(((?:[^;]|\n)*?)\);"
        found = re.search(rf"{text_above}\s*{declaration}", table[1], flags=re.S)
        assert found is not None, f"{identifier} does not stand before {group}.{member}"
        words = " ".join(found[2].replace("*", " ").split())
        assert ("Required since 1." in words) == (need == "REQUIRED"), f"{group}.{member}"
        if need == "REQUIRED":
            assert f"Required since 1.{since}" in words
        inner = re.sub(r"\(\*(\w+)\)\([^()]*\)", r"\1", found[3])
        names = re.findall(r"(\w+)\s*(?:,|$)", inner) if inner.strip() != "void" else []
        assert [name for name in parameters.split(", ") if name] == names, f"{group}.{member}"
