"""The binary layout of hal.h: what a compiled library and core must agree on, as data.

    python layout.py                 print the layout of include/flagos/hal.h as JSON
    python layout.py --check         compare it with every frozen version under abi/
    python layout.py --freeze        write abi/<major.minor>/ anew from include/flagos/ (until that version
                                     is released)

A C program made from the header's own text and run asks the compiler for the offset and size of every member
of every structure and for the value of every constant. Uses $CC, else cc.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ABI = Path(__file__).resolve().parent
INCLUDE = ABI.parent / "include"
FILES = ("hal.h", "hal_status.def")

Layout = dict[str, Any]
"""{"abi": [major, minor], "structs": {name: {"size", "members": {name: [offset, size, type]}}},
"constants": {name: value}}"""


@dataclass(frozen=True)
class Member:
    """A member of a structure as the header declares it."""

    name: str
    type: str
    """Its declaration without names: "flagos_hal_status (*)(int32_t, uint64_t, void**)"."""


def without_comments(text: str) -> str:
    """Return C text with each comment replaced by a space."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


def one_line(text: str) -> str:
    """Return text with runs of white space as one space."""
    return " ".join(text.split())


def structures(text: str) -> dict[str, list[Member]]:
    """Return the members of every structure that a header defines, in order."""
    found: dict[str, list[Member]] = {}
    for match in re.finditer(r"typedef struct (\w+) \{(.*?)\n\} (\w+);", without_comments(text), flags=re.S):
        found[match[3]] = [member(one) for one in match[2].split(";") if one.strip()]
    return found


def member(declaration: str) -> Member:
    """Return the member that a declaration (without its semicolon) makes."""
    line = one_line(declaration)
    function = re.match(r"(.*?\(\*)(\w+)(\)\(.*\))$", line)
    if function:
        unnamed = re.sub(r"(?<=[ *])\w+(?=[,)])", "", function[3])  # a parameter's name is no part of the ABI
        return Member(function[2], function[1] + unnamed.replace(" ,", ",").replace(" )", ")"))
    plain = re.match(r"(.*?)(\w+)((?:\[\w+\])?)$", line)
    if not plain:
        raise SystemExit(f"layout.py does not understand this declaration: {line}")
    return Member(plain[2], plain[1].strip() + plain[3])


def constants(text: str) -> list[str]:
    """Return the names of the header's numbers: enumerators and object-like macros with a value."""
    bare = without_comments(text)
    names = re.findall(r"^#define (FLAGOS_HAL_\w+) +\(?-?\d+u?\)?\s*$", bare, flags=re.M)
    for body in re.findall(r"enum(?: \w+)? \{(.*?)\}", bare, flags=re.S):
        names += re.findall(r"\b(FLAGOS_HAL_[A-Z0-9_]+)\s*(?:=|,|$)", body.strip(), flags=re.M)
    return [name for name in dict.fromkeys(names) if name != "FLAGOS_HAL_STATUS"]


def statuses(text: str) -> list[str]:
    """Return the names of the status classes that hal_status.def lists."""
    names = re.findall(r"^FLAGOS_HAL_STATUS\((\w+),", text, flags=re.M)
    return ["FLAGOS_HAL_STATUS_" + name for name in names]


def probe(folder: Path) -> Layout:
    """Return the layout of the header in `folder` (hal.h, hal_status.def), as the compiler sees it."""
    text = (folder / "hal.h").read_text(encoding="utf-8")
    structs = structures(text)
    names = constants(text) + statuses((folder / "hal_status.def").read_text(encoding="utf-8"))
    lines = ["#include <stdio.h>", '#include "flagos/hal.h"', "int main(void) {"]
    for struct, members in structs.items():
        lines.append(f'  printf("S {struct} %zu\\n", sizeof({struct}));')
        for each in members:
            where = f"offsetof({struct}, {each.name}), sizeof((({struct}*)0)->{each.name})"
            lines.append(f'  printf("M {struct} {each.name} %zu %zu\\n", {where});')
    lines += [f'  printf("C {name} %lld\\n", (long long){name});' for name in names]
    lines += ["  return 0;", "}"]
    with tempfile.TemporaryDirectory() as scratch:
        # The header includes "flagos/…", so it must lie in a folder of that name.
        place = Path(scratch) / "flagos"
        place.mkdir()
        for file in FILES:
            shutil.copy(folder / file, place / file)
        source = Path(scratch) / "probe.c"
        source.write_text("\n".join(lines) + "\n", encoding="utf-8")
        program = Path(scratch) / "probe"
        compiler = shlex.split(os.environ.get("CC", "cc"))
        subprocess.run([*compiler, "-std=c99", "-I", scratch, str(source), "-o", str(program)], check=True)
        answers = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    return assemble(structs, answers)


def assemble(structs: dict[str, list[Member]], answers: str) -> Layout:
    """Return the layout that the probe's answers describe."""
    types = {(struct, each.name): each.type for struct, members in structs.items() for each in members}
    layout: Layout = {"abi": [], "structs": {}, "constants": {}}
    for line in answers.splitlines():
        kind, *rest = line.split()
        if kind == "S":
            layout["structs"][rest[0]] = {"size": int(rest[1]), "members": {}}
        elif kind == "M":
            struct, name, offset, size = rest
            layout["structs"][struct]["members"][name] = [int(offset), int(size), types[struct, name]]
        else:
            layout["constants"][rest[0]] = int(rest[1])
    layout["abi"] = [layout["constants"]["FLAGOS_HAL_ABI_MAJOR"], layout["constants"]["FLAGOS_HAL_ABI_MINOR"]]
    return layout


GROWING = ("FLAGOS_HAL_ABI_MINOR", "FLAGOS_HAL_STATUS_COUNT_", "FLAGOS_HAL_CAP_COUNT_")
"""Constants that a new minor changes by design."""


def differences(frozen: Layout, now: Layout) -> list[str]:
    """Return what breaks libraries or cores compiled with `frozen`; what only grew is no difference.

    Two layouts of one version must be equal; of two minors of one major the later may append members and
    constants.
    """
    same = frozen["abi"] == now["abi"]
    found = []
    for struct, was in frozen["structs"].items():
        here = now["structs"].get(struct)
        if here is None:
            found.append(f"{struct} is gone")
            continue
        for name, place in was["members"].items():
            if here["members"].get(name) != place:
                found.append(f"{struct}.{name} was {place} and is {here['members'].get(name)}")
        fixed = same or "struct_size" not in was["members"]
        if here["size"] < was["size"] or (fixed and here["size"] != was["size"]):
            why = "" if same or not fixed else " (without struct_size it must not grow)"
            found.append(f"{struct} had {was['size']} bytes and has {here['size']}{why}")
        if same:
            found += [f"{struct}.{name} is new" for name in here["members"] if name not in was["members"]]
    for name, value in frozen["constants"].items():
        if now["constants"].get(name) != value and (same or name not in GROWING):
            found.append(f"{name} was {value} and is {now['constants'].get(name)}")
    if same:
        found += [f"{struct} is new" for struct in now["structs"] if struct not in frozen["structs"]]
        found += [f"{name} is new" for name in now["constants"] if name not in frozen["constants"]]
    return found


def frozen_versions() -> list[Path]:
    """Return the folders of the frozen versions, the oldest first."""
    folders = [path for path in ABI.iterdir() if re.fullmatch(r"\d+\.\d+", path.name)]
    return sorted(folders, key=lambda path: [int(part) for part in path.name.split(".")])


def code_of(folder: Path) -> dict[str, str]:
    """Return the header files of a folder without comments and white space, which may still change."""
    files = {}
    for file in FILES:
        text = one_line(without_comments((folder / file).read_text(encoding="utf-8")))
        files[file] = re.sub(r" ?(\W) ?", r"\1", text)
    return files


def check() -> list[str]:
    """Return everything in which include/flagos/hal.h and the frozen versions disagree."""
    now = probe(INCLUDE / "flagos")
    current = f"{now['abi'][0]}.{now['abi'][1]}"
    folders = frozen_versions()
    faults = []
    if current not in [folder.name for folder in folders]:
        faults.append(f"hal.h says ABI {current}, but abi/{current}/ does not exist: run layout.py --freeze")
    for folder in folders:
        frozen = json.loads((folder / "layout.json").read_text(encoding="utf-8"))
        faults += [f"abi/{folder.name}/layout.json: {one}" for one in differences(frozen, probe(folder))]
        if frozen["abi"][0] == now["abi"][0]:
            faults += [f"since {folder.name}: {one}" for one in differences(frozen, now)]
        if folder.name == current and code_of(folder) != code_of(INCLUDE / "flagos"):
            faults.append(
                f"abi/{current}/ is not the header of include/flagos/; layout.py --freeze renews it"
            )
    return faults


def freeze() -> Path:
    """Write the present header and its layout as the frozen copy of its version; returns the folder."""
    layout = probe(INCLUDE / "flagos")
    folder = ABI / f"{layout['abi'][0]}.{layout['abi'][1]}"
    folder.mkdir(exist_ok=True)
    for file in FILES:
        shutil.copy(INCLUDE / "flagos" / file, folder / file)
    (folder / "layout.json").write_text(to_text(layout), encoding="utf-8")
    return folder


def to_text(layout: Layout) -> str:
    """Return a layout as JSON with one member to a line, so that a change is one line of a diff."""
    text = json.dumps(layout, indent=1)
    return re.sub(r"\[\s+(-?\d+),\s+(-?\d+)(?:,\s+(\"[^\n]*\"))?\s+\]", pair, text) + "\n"


def pair(match: re.Match[str]) -> str:
    """Return a short JSON list on one line."""
    return "[" + ", ".join(part for part in match.groups() if part is not None) + "]"


def main(arguments: list[str]) -> int:
    """Run the command line; the exit status."""
    parser = argparse.ArgumentParser(description="The binary layout of hal.h.")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="compare hal.h with every frozen version")
    action.add_argument("--freeze", action="store_true", help="write abi/<major.minor>/ from include/flagos/")
    options = parser.parse_args(arguments)
    if options.freeze:
        print(f"wrote {freeze().relative_to(ABI.parent)}")
    elif options.check:
        faults = check()
        for fault in faults:
            print(fault, file=sys.stderr)
        if faults:
            return 1
        print(f"hal.h agrees with {', '.join(folder.name for folder in frozen_versions())}")
    else:
        print(to_text(probe(INCLUDE / "flagos")), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
