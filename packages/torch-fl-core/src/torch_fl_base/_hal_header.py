"""What hal.h says, as Python data: constants, structures, the functions of each group, and the requirements.

Everything is read from the headers that are installed with this package, so that there is no second list to
keep equal: `_hal` makes its ctypes mirror from them, the conformance kit its parametrised tests, the
documentation its table. Types, texts and numbers come from hal.h and hal_status.def; what may be left out,
since when, and what holds before init comes from hal_members.def. The parser knows only the plain subset of
C that hal.h keeps to, and raises on anything else; tests compare its result with a compiler's.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CType:
    """A type as the header spells it: `flagos_hal_info` with one pointer and no array, for instance."""

    base: str
    """Name without const and stars; "function" for a pointer to a function."""
    pointers: int = 0
    array: int = 0
    """Number of elements; 0 for no array."""
    parameters: tuple[CType, ...] = ()
    """Of a pointer to a function that returns nothing."""


@dataclass(frozen=True)
class Field:
    """A member of a structure, or a parameter of a function."""

    name: str
    type: CType

    @property
    def is_output(self) -> bool:
        """Whether the function writes through this parameter."""
        return self.name.startswith(("out_", "inout_"))


@dataclass(frozen=True)
class Function:
    """One function of a group's table."""

    group: str
    name: str
    parameters: tuple[Field, ...]
    requirement: str
    """The id, "HAL-MEM-01"."""
    text: str
    """The requirement's text on one line, without the id."""
    optional: bool
    """Whether a library may leave this function out; true for all members of an optional group."""
    since: str
    """The version of the ABI that brought it, "1.0"."""
    before_init: str
    """CALL: refused before init, after shutdown and in a forked child; RELEASE: then OK and without effect;
    ANYTIME: works before init."""

    @property
    def qualified(self) -> str:
        """The name that messages use: "memory.allocate"."""
        return f"{self.group}.{self.name}"


@dataclass(frozen=True)
class Requirement:
    """A numbered sentence of the header that a conformance test checks."""

    id: str
    function: str
    """"memory.allocate", "flagos_hal_query", or "" for the rules that hold for all."""
    text: str
    optional: bool
    """Whether a library may lack it: an optional member, or any member of an optional group."""
    since: str

    @property
    def sentence(self) -> str:
        """The first sentence of the text."""
        match = re.match(r".*?\.(?= [A-Z`]|$)", self.text)
        return match.group() if match else self.text


@dataclass(frozen=True)
class Header:
    """The whole header."""

    path: Path
    abi: tuple[int, int]
    constants: dict[str, int]
    """Every number by its full name: FLAGOS_HAL_COPY_HOST_TO_DEVICE, FLAGOS_HAL_ABI_MINOR."""
    statuses: dict[str, tuple[int, str]]
    """Number and text by short name, in the order of hal_status.def."""
    opaque: tuple[str, ...]
    structures: dict[str, tuple[Field, ...]]
    """Plain structures; the tables are not among them."""
    groups: dict[str, tuple[Function, ...]]
    """Functions by group, groups in the order of flagos_hal_api, members in the order of the table."""
    optional_groups: tuple[str, ...]
    requirements: dict[str, Requirement]

    def function(self, qualified: str) -> Function:
        """Return the function called "group.name". Raises: KeyError."""
        group, _, name = qualified.partition(".")
        for function in self.groups[group]:
            if function.name == name:
                return function
        raise KeyError(qualified)

    def functions(self) -> tuple[Function, ...]:
        """Return all functions of all groups."""
        return tuple(function for group in self.groups.values() for function in group)


def include_dir() -> Path:
    """Return the directory that holds flagos/hal.h: the package's own, or in a source tree the one beside
    src/."""
    here = Path(__file__).resolve().parent
    for candidate in (here / "include", here.parents[1] / "include"):
        if (candidate / "flagos" / "hal.h").is_file():
            return candidate
    raise FileNotFoundError(
        f"flagos: hal.h is missing; looked in {here / 'include'} and {here.parents[1] / 'include'}"
    )


@functools.cache
def header() -> Header:
    """Return the contents of the installed hal.h; parsed once."""
    return parse(include_dir() / "flagos" / "hal.h")


def parse(path: Path) -> Header:
    """Read a hal.h and the hal_status.def beside it. Raises: ValueError for C beyond the subset that the
    header keeps to."""
    source = path.read_text(encoding="utf-8")
    statuses = _statuses(path.with_name("hal_status.def").read_text(encoding="utf-8"))
    code = _without_comments(source)
    status_entries = "".join(
        f"FLAGOS_HAL_STATUS_{name} = {number},\n" for name, (number, _) in statuses.items()
    )
    code = re.sub(
        r'^\s*#include "flagos/hal_status\.def"\n', lambda _: status_entries, code, flags=re.MULTILINE
    )
    constants = _constants(code)
    optional_groups, members = _members(path.with_name("hal_members.def").read_text(encoding="utf-8"))
    structures: dict[str, tuple[Field, ...]] = {}
    tables: dict[str, tuple[Function, ...]] = {}
    order: list[str] = []
    for match in re.finditer(r"typedef struct (\w+) \{(.*?)\n\} (\w+);", source, re.DOTALL):
        name, body = match.group(1), match.group(2)
        if name == "flagos_hal_api":
            pairs = re.findall(r"const flagos_hal_(\w+)_api\* (\w+);", _without_comments(body))
            order = [pair[1] for pair in pairs if pair[0] == pair[1]]
        elif name.endswith("_api"):
            group = name.removeprefix("flagos_hal_").removesuffix("_api")
            tables[group] = _functions(group, body, members)
        else:
            structures[name] = tuple(_field(text, constants) for text in _statements(_without_comments(body)))
    if sorted(order) != sorted(tables):
        raise ValueError(f"{path}: flagos_hal_api names {order}, the tables are {list(tables)}")
    declared = {function.qualified for functions in tables.values() for function in functions}
    if declared != set(members):
        raise ValueError(f"{path} and hal_members.def differ in {', '.join(sorted(declared ^ set(members)))}")
    return Header(
        path=path,
        abi=(constants["FLAGOS_HAL_ABI_MAJOR"], constants["FLAGOS_HAL_ABI_MINOR"]),
        constants=constants,
        statuses=statuses,
        opaque=tuple(re.findall(r"typedef struct (\w+) \1;", code)),
        structures=structures,
        groups={group: tables[group] for group in order},
        optional_groups=optional_groups,
        requirements=_requirements(source, tables),
    )


def _statuses(source: str) -> dict[str, tuple[int, str]]:
    entries = re.findall(r'^FLAGOS_HAL_STATUS\((\w+), (\d+), "([^"]*)"\)$', source, re.MULTILINE)
    return {name: (int(number), text) for name, number, text in entries}


@dataclass(frozen=True)
class _Member:
    need: str
    since: int
    before_init: str
    requirement: str
    parameters: str


def _members(source: str) -> tuple[tuple[str, ...], dict[str, _Member]]:
    groups = re.findall(r"^FLAGOS_HAL_GROUP\((\w+), (REQUIRED|OPTIONAL)\)$", source, re.MULTILINE)
    pattern = r"^FLAGOS_HAL_MEMBER\((\w+), (\w+), (\w+), (\d+), (\w+),\s*\"([^\"]*)\",\s*\"([^\"]*)\"\)$"
    members = {
        f"{group}.{name}": _Member(need, int(since), before_init, identifier, parameters)
        for group, name, need, since, before_init, identifier, parameters in re.findall(
            pattern, source, re.MULTILINE
        )
    }
    return tuple(group for group, need in groups if need == "OPTIONAL"), members


def _without_comments(source: str) -> str:
    return re.sub(r"/\*.*?\*/", " ", source, flags=re.DOTALL)


def _statements(body: str) -> list[str]:
    return [" ".join(part.split()) for part in body.split(";") if part.strip()]


def _constants(code: str) -> dict[str, int]:
    constants = {
        name: int(value, 0)
        for name, value in re.findall(r"^#define (FLAGOS_HAL_\w+) \(?(-?\w+?)u?\)?\s*$", code, re.MULTILINE)
        if re.fullmatch(r"-?(0x)?[0-9a-fA-F]+", value)
    }
    for body in re.findall(r"enum(?: \w+)? \{(.*?)\}", code, re.DOTALL):
        following = 0
        lines = (line for line in body.splitlines() if not line.lstrip().startswith("#"))
        for entry in " ".join(lines).split(","):
            name, _, expression = (part.strip() for part in entry.partition("="))
            if not name:
                continue
            if expression:
                shift = re.fullmatch(r"(\d+)u? << (\d+)", expression)
                following = int(shift.group(1)) << int(shift.group(2)) if shift else int(expression)
            constants[name] = following
            following += 1
    return constants


def _type(text: str) -> CType:
    callback = re.fullmatch(r"void \(\*\w*\)\((.*)\)", text)
    if callback:
        return CType("function", 1, 0, tuple(_parameter(part).type for part in callback.group(1).split(",")))
    bare = text.replace("const ", "").replace("*", " ").split()
    if len(bare) != 1:
        raise ValueError(f"hal.h: cannot read the type {text!r}")
    return CType(bare[0], text.count("*"))


def _field(text: str, constants: dict[str, int]) -> Field:
    match = re.fullmatch(r"(.+?[ *])(\w+)(?:\[(\w+)\])?", text)
    if match is None:
        raise ValueError(f"hal.h: cannot read the member {text!r}")
    size = match.group(3)
    count = 0 if size is None else int(size) if size.isdigit() else constants[size]
    base = _type(match.group(1).strip())
    return Field(match.group(2), CType(base.base, base.pointers, count))


def _parameter(text: str) -> Field:
    text = " ".join(text.split())
    callback = re.fullmatch(r"void \(\*(\w+)\)\(.*\)", text)
    if callback:
        return Field(callback.group(1), _type(text))
    return _field(text, {})


def _split_parameters(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def _functions(group: str, body: str, members: dict[str, _Member]) -> tuple[Function, ...]:
    functions = []
    pattern = r"/\*(.*?)\*/\s*flagos_hal_status \(\*(\w+)\)\((.*?)\);"
    for match in re.finditer(pattern, body[body.index("size_t struct_size;") :], re.DOTALL):
        # The comment nearest to the function: one that describes struct_size may stand before it.
        comment = match.group(1).rpartition("/*")[2]
        identifier, text = _requirement_text(comment)
        declared = match.group(3).strip()
        parameters = (
            () if declared == "void" else tuple(_parameter(part) for part in _split_parameters(declared))
        )
        function = match.group(2)
        member = members[f"{group}.{function}"]
        names = ", ".join(parameter.name for parameter in parameters)
        if (member.requirement, member.parameters) != (identifier, names):
            raise ValueError(
                f"hal_members.def: {group}.{function} has another id or other parameters than in hal.h"
            )
        functions.append(
            Function(
                group=group,
                name=function,
                parameters=parameters,
                requirement=identifier,
                text=text,
                optional=member.need == "OPTIONAL",
                since=f"1.{member.since}",
                before_init=member.before_init,
            )
        )
    if len(functions) != _without_comments(body).count("flagos_hal_status (*"):
        raise ValueError(f"hal.h: a function of group {group} lacks its requirement")
    return tuple(functions)


def _requirement_text(comment: str) -> tuple[str, str]:
    words = " ".join(re.sub(r"^\s*\*", "", comment, flags=re.MULTILINE).split())
    match = re.fullmatch(r"(HAL-[A-Z]{3}-\d\d)\. (.*)", words)
    if match is None:
        raise ValueError(f"hal.h: no requirement id at the start of {words[:60]!r}")
    return match.group(1), match.group(2)


def _requirements(source: str, tables: dict[str, tuple[Function, ...]]) -> dict[str, Requirement]:
    found: dict[str, Requirement] = {}
    top = source[: source.index("*/")]
    for identifier, text in re.findall(
        r"^ \* (GEN-\d\d)  (.*?)(?=^ \* GEN-|^ \*$|\Z)", top, re.DOTALL | re.MULTILINE
    ):
        words = " ".join(re.sub(r"^ \*", "", text, flags=re.MULTILINE).split())
        found[identifier] = Requirement(identifier, "", words, False, "1.0")
    query = re.search(r"/\* (HAL-QRY-\d\d\..*?)\*/", source, re.DOTALL)
    if query is not None:
        identifier, text = _requirement_text(query.group(1))
        found[identifier] = Requirement(identifier, "flagos_hal_query", text, False, "1.0")
    for functions in tables.values():
        for function in functions:
            found[function.requirement] = Requirement(
                id=function.requirement,
                function=function.qualified,
                text=function.text,
                optional=function.optional,
                since=function.since,
            )
    return found
