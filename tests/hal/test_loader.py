"""Opening HAL libraries: what is refused, in which words, and what older and newer libraries get.

Core's loader (through libflagos_hal_layers.so) and the one in Python answer alike.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from hal_native import PRIVATE_COPY, SOURCES, VALIDATE, Layers, OpenError, Workshop, in_own_process

from torch_fl_base._hal import HalError, HalLoadError, load

pytestmark = pytest.mark.needs_compiler


@dataclass(frozen=True)
class Refusal:
    """An arrangement of negotiable.c that must be refused."""

    options: tuple[str, ...]
    kind: str
    text: tuple[str, ...]
    """What the message has in it."""


def arranged(statements: str, kind: str, *text: str, extra: tuple[str, ...] = ()) -> Refusal:
    return Refusal((f"-DARRANGE={statements}", *extra), kind, text)


MISMATCH = "-DANSWER=FLAGOS_HAL_STATUS_ABI_MISMATCH"
REFUSED = {
    "other major": arranged("API.abi_major=2;", "AbiRefused", "speaks HAL ABI 2.0", "speaks 1.0", "Install"),
    "major that it refuses itself": arranged(
        "API.abi_major=3;API.abi_minor=4;", "AbiRefused", "HAL ABI 3.4", extra=(MISMATCH,)
    ),
    "mismatch without a version": Refusal((MISMATCH, "-DTABLES=0"), "AbiRefused", ("unknown version",)),
    "mismatch with a garbage table": arranged(
        "API.struct_size=3;", "AbiRefused", "unknown version", extra=(MISMATCH,)
    ),
    "failing query": Refusal(
        ("-DANSWER=FLAGOS_HAL_STATUS_UNKNOWN",), "BadTable", ("flagos_hal_query returned UNKNOWN (15)",)
    ),
    "query with an odd status": Refusal(("-DANSWER=77",), "BadTable", ("returned ? (77)",)),
    "null tables": Refusal(("-DTABLES=0",), "BadTable", ("returned OK and no tables",)),
    "size 0": arranged("API.struct_size=0;", "BadTable", "struct_size is 0, expected 16 to 65536"),
    "size below the header": arranged("API.struct_size=8;", "BadTable", "struct_size is 8"),
    "absurd size": arranged("API.struct_size=(size_t)-1;", "BadTable", "struct_size is 18446744073709551615"),
    "odd size": arranged("API.struct_size=61;", "BadTable", "struct_size is 61, expected a multiple of 8"),
    "misaligned tables": Refusal(
        ("-DTABLES=(const flagos_hal_api*)((char*)&API+4)",), "BadTable", ("misaligned pointer",)
    ),
    "group of size 0": arranged("MEMORY.struct_size=0;", "BadTable", "group 'memory'", "struct_size is 0"),
    "group of nothing but its size": arranged("EVENT.struct_size=8;", "BadTable", "group 'event'", "is 8"),
    "group of absurd size": arranged("MEMORY.struct_size=1u<<20;", "BadTable", "struct_size is 1048576"),
    "group of odd size": arranged("MEMORY.struct_size=33;", "BadTable", "is 33, expected a multiple of 8"),
    "optional group of bad size": arranged("API.host=&HOST;HOST.struct_size=3;", "BadTable", "group 'host'"),
    "misaligned group": arranged(
        "API.memory=(const flagos_hal_memory_api*)((char*)&MEMORY+4);", "BadTable", "'memory'", "misaligned"
    ),
    "all faulty groups at once": arranged(
        "API.stream=0;API.event=0;MEMORY.struct_size=0;",
        "BadTable",
        "the required group 'stream' is null",
        "the required group 'event' is null",
        "group 'memory'",
    ),
    "null required members": arranged(
        "MEMORY.copy=0;EVENT.record=0;",
        "BadTable",
        "lacks required functions of HAL ABI 1.0: memory.copy (HAL-MEM-03), event.record (HAL-EVT-03)",
    ),
    "table that ends before required members": arranged(
        "EVENT.struct_size=40;", "BadTable", "event.synchronize (HAL-EVT-05), event.elapsed (HAL-EVT-06)"
    ),
    "api that ends before a required group": arranged(
        "API.struct_size=48;", "BadTable", "the required group 'event' is null"
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_broken_library_is_refused_in_words(workshop: Workshop, layers: Layers, case: Refusal) -> None:
    path = workshop.library("negotiable.c", *case.options)
    with pytest.raises(OpenError) as refused:
        layers.open(path)
    message = str(refused.value)
    assert refused.value.kind == case.kind, message
    for part in ("flagos: backend 'tested'", str(path), "python -m torch_fl.doctor", *case.text):
        assert part in message
    with pytest.raises(HalLoadError) as mirrored:
        load("tested", path)
    assert (mirrored.value.kind, str(mirrored.value)) == (case.kind, message)


def elf_of(workshop: Workshop) -> bytes:
    return workshop.library("negotiable.c").read_bytes()


def broken_file(kind: str, folder: Path, workshop: Workshop) -> Path:
    """Return a path at which there is no shared library of this machine."""
    path = folder / "libbroken.so"
    if kind == "missing":
        return path
    if kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    elif kind == "text":
        path.write_text("INPUT(libother.so)\n", encoding="utf-8")
    elif kind == "cut off in the header":
        path.write_bytes(elf_of(workshop)[:40])
    elif kind == "cut off behind the header":
        path.write_bytes(elf_of(workshop)[:600])
    elif kind == "other machine":
        elf = bytearray(elf_of(workshop))
        elf[18:20] = (40).to_bytes(2, "little")  # EM_ARM
        path.write_bytes(elf)
    elif kind == "object file":
        subprocess.run(["cc", "-c", "-x", "c", "-", "-o", str(path)], input=b"int x;", check=True)
    elif kind == "library without the symbol":
        return workshop.library("int other(void);\nint other(void) { return 0; }\n")
    elif kind == "library whose dependency is gone":
        needed = folder / "libgone_dependency.so"
        subprocess.run(
            ["cc", "-shared", "-x", "c", "-", "-o", str(needed)],
            input=b"int gone(void){return 0;}",
            check=True,
        )
        code = b"int gone(void); int use(void); int use(void) { return gone(); }"
        options = ["-shared", "-fPIC", "-x", "c", "-", "-o", str(path), f"-L{folder}", "-lgone_dependency"]
        subprocess.run(["cc", *options], input=code, check=True)
        needed.unlink()
    elif kind == "library with an undefined function":
        code = "int nowhere(void);\nint use(void);\nint use(void) { return nowhere(); }\n"
        return workshop.library(code, "-Wl,--unresolved-symbols=ignore-all")
    return path


FILES = {
    "missing": ("NotFound", "there is no HAL library at"),
    "folder": ("NotALibrary", "is not a file"),
    "empty": ("NotALibrary", "is empty"),
    "text": ("NotALibrary", "is not an ELF shared library"),
    "cut off in the header": ("NotALibrary", "it ends within the ELF header"),
    "cut off behind the header": ("NotALibrary", "is cut off: it has 600 bytes of at least"),
    "other machine": ("NotALibrary", "is built for 32-bit ARM, this process is"),
    "object file": ("NotALibrary", "is an ELF file but not a shared library"),
    "library without the symbol": ("NoEntryPoint", "does not export flagos_hal_query"),
    "library whose dependency is gone": ("NotFound", "libgone_dependency.so"),
    "library with an undefined function": ("NotALibrary", "nowhere"),
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("flags", [0, PRIVATE_COPY], ids=["plain", "private copy"])
def test_file_that_is_no_hal_library_is_refused_in_words(
    workshop: Workshop, layers: Layers, tmp_path: Path, kind: str, flags: int
) -> None:
    path = broken_file(kind, tmp_path, workshop)
    expected, text = FILES[kind]
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OpenError) as refused:
        layers.open(path, flags)
    assert refused.value.kind == expected, str(refused.value)
    assert text in str(refused.value)
    assert str(path) in str(refused.value) or flags
    assert len(os.listdir("/proc/self/fd")) == before  # nothing of the attempt stays open
    if not flags:
        with pytest.raises(HalLoadError) as mirrored:
            load("tested", path)
        assert (mirrored.value.kind, str(mirrored.value)) == (expected, str(refused.value))


def test_empty_path_is_refused(layers: Layers) -> None:
    with pytest.raises(OpenError, match="no path of a HAL library was given") as refused:
        layers.open("")
    assert refused.value.kind == "NotFound"


def test_refused_library_is_unloaded(workshop: Workshop, layers: Layers) -> None:
    path = workshop.library("negotiable.c", "-DARRANGE=API.abi_major=9;")
    with pytest.raises(OpenError):
        layers.open(path)
    assert str(path) not in Path("/proc/self/maps").read_text()


# -------------------------------------------------------------------------- libraries of other minors ----

OPTIONAL_CUT = (
    "-DARRANGE=STREAM.struct_size-=sizeof(void*);API.struct_size=__builtin_offsetof(flagos_hal_api,host);"
)
NEWER = "-DARRANGE=API.abi_minor=7;MEMORY.struct_size+=24;EVENT.struct_size+=8;API.struct_size+=16;"


def test_library_of_a_later_minor_with_more_members_loads(workshop: Workshop, layers: Layers) -> None:
    hal = layers.open(workshop.library("negotiable.c", NEWER))
    assert hal.abi == (1, 7)
    hal.system.init()
    assert hal.device.count() == 1


def test_library_that_ends_before_optional_members_gets_stubs(workshop: Workshop, layers: Layers) -> None:
    hal = layers.open(workshop.library("negotiable.c", OPTIONAL_CUT))
    stream = hal.stream.default_stream(0)
    called = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called.append)
    address = ctypes.cast(function, ctypes.c_void_p)
    assert hal.call("stream.host_callback", stream, address, None).status == "UNSUPPORTED"
    assert hal.last_error().status == "UNSUPPORTED"
    assert hal.last_error().function == "stream.host_callback"
    assert "does not have this function (HAL-STR-10)" in hal.last_error().message
    assert not called
    assert not hal.has("host")


def test_null_optional_members_get_stubs_and_the_rest_of_the_group_works(
    workshop: Workshop, layers: Layers
) -> None:
    hal = layers.open(workshop.library("negotiable.c", "-DARRANGE=API.host=&HOST;HOST.register_range=0;"))
    assert hal.has("host")
    with pytest.raises(HalError, match="UNSUPPORTED"):
        hal.host.register_range(4096, 4096)
    hal.host.release(None)


def run_check(workshop: Workshop, library: Path, major: int, minor: int, oldest: int) -> str:
    program = workshop.program("negotiation_check.cpp")
    command = [str(program), str(library), str(major), str(minor), str(oldest)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_later_core_takes_an_older_minor_and_refuses_what_is_too_old(workshop: Workshop) -> None:
    library = workshop.library("negotiable.c", "-DARRANGE=API.abi_minor=2;")
    optional = run_check(workshop, library, 1, 5, 2)
    assert optional.startswith("ok 1.2 host.allocate host.release")
    refused = run_check(workshop, library, 1, 5, 3)
    assert refused.startswith("refused 3 ")
    assert "speaks HAL ABI 1.2, this torch-fl-core speaks 1.5 (back to 1.3)" in refused
    assert run_check(workshop, library, 2, 0, 0).startswith("refused 3 ")


# --------------------------------------------------------------------------------- several libraries ----


def test_same_order_gives_the_same_tables_and_other_layers_others(workshop: Workshop, layers: Layers) -> None:
    path = workshop.library("negotiable.c")
    assert layers.address(path) == layers.address(path)
    assert layers.address(path, VALIDATE) not in (layers.address(path), 0)


def test_without_layers_the_library_s_own_functions_are_handed_out(
    workshop: Workshop, layers: Layers
) -> None:
    path = workshop.library("negotiable.c")
    plain, own = layers.open(path), load("tested", path)
    for name in ("memory.allocate", "memory.copy_async", "event.record", "stream.wait_event", "device.count"):
        theirs = ctypes.cast(own.function(name), ctypes.c_void_p).value  # type: ignore[arg-type]
        assert ctypes.cast(plain.function(name), ctypes.c_void_p).value == theirs, name  # type: ignore[arg-type]


def test_private_copies_are_independent(workshop: Workshop, layers: Layers) -> None:
    path = workshop.library("support_hal.cpp", "-Wl,-z,now")
    first, second = layers.open(path, PRIVATE_COPY), layers.open(path, PRIVATE_COPY)
    first.system.init()
    assert first.device.count() == 2
    with pytest.raises(HalError, match="NOT_INITIALIZED"):
        second.device.count()
    first.system.shutdown()


CROWD = """
import sys
from hal_native import *
layers = Layers(Path(sys.argv[1]))
for number in range(16):
    layers.open(sys.argv[2], name=f"backend{number}")
try:
    layers.open(sys.argv[2], name="one too many")
except OpenError as error:
    print(error.kind, error)
print(layers.open(sys.argv[2], name="backend3").abi)
"""


def test_seventeenth_library_is_refused_and_the_others_stay(workshop: Workshop, layers: Layers) -> None:
    printed = in_own_process(CROWD, layers.path, workshop.library("negotiable.c"))
    assert "InitFailed flagos: backend 'one too many': 16 HAL libraries are open" in printed
    assert printed.endswith("(1, 0)\n")


def test_sources_of_the_tests_are_all_used() -> None:
    users = [*Path(__file__).parent.glob("*.py"), *SOURCES.glob("*.c*")]
    used = "".join(path.read_text(encoding="utf-8") for path in users)
    assert not [path.name for path in SOURCES.iterdir() if path.name not in used]
