"""flagos/hal_support: the helpers of vendor libraries, and a library made of nothing else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hal_native import INCLUDE, QUIET, SOURCES, VALIDATE, Layers, Workshop

from torch_fl_base._hal import HalError, load

pytestmark = pytest.mark.needs_compiler
SECTIONS = re.findall(r'\{"([\w ]+)", \w+\}', (SOURCES / "support_check.cpp").read_text(encoding="utf-8"))
EXPORTS = f"-Wl,--version-script={INCLUDE / 'flagos' / 'hal_support' / 'exports.map'}"


@pytest.mark.parametrize("section", SECTIONS)
def test_support_keeps_its_word(workshop: Workshop, section: str) -> None:
    done = subprocess.run(
        [str(workshop.program("support_check.cpp")), section],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def library(workshop: Workshop) -> Path:
    return workshop.library("support_hal.cpp", EXPORTS)


def test_library_made_with_the_support_works_under_validation(library: Path, layers: Layers) -> None:
    hal = layers.open(library, VALIDATE | QUIET)
    hal.system.init()
    pointer = hal.memory.allocate(1, 1000)
    stream = hal.stream.create(1, None)
    start, end = hal.event.create(1, 1), hal.event.create(1, 1)
    pinned = hal.memory.allocate(0, 16)
    hal.event.record(start, stream)
    hal.memory.fill_async(stream, pointer, 7, 1000)
    hal.memory.copy_async(stream, pinned, pointer, 16, 2)
    hal.event.record(end, stream)
    hal.stream.synchronize(stream)
    assert hal.event.elapsed(start, end) >= 0
    assert hal.memory.pointer_info(pointer).device == 1
    with pytest.raises(HalError, match="OUT_OF_MEMORY"):
        hal.memory.allocate(0, 1 << 40)
    for function, handle in {"event.destroy": start, "stream.destroy": stream}.items():
        hal.call(function, handle)
    hal.event.destroy(end)
    hal.memory.release(1, pointer)
    hal.memory.release(0, pinned)
    assert layers.violations(hal) == 0
    hal.system.shutdown()
    assert layers.violations(hal) == 0


def test_library_made_with_the_support_says_why_it_refuses(library: Path) -> None:
    hal = load("example", library, private_copy=True)
    with pytest.raises(HalError, match=r"NOT_INITIALIZED .*system\.init has not been called"):
        hal.device.count()
    hal.system.init()
    with pytest.raises(HalError, match="there is no device 2; the library has 2"):
        hal.memory.allocate(2, 1)
    with pytest.raises(HalError, match="is not the start of a live allocation of device 0"):
        hal.memory.release(0, 4096)
    with pytest.raises(HalError, match="0x1000 is not a live stream"):
        hal.stream.query(4096)
    hal.system.shutdown()


def test_export_of_a_library_made_with_the_support_is_one_symbol(library: Path) -> None:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    )
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == ["flagos_hal_query"]


def test_library_made_with_the_support_is_short() -> None:
    code = [
        line
        for line in (SOURCES / "support_hal.cpp").read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.strip().startswith("//")
    ]
    assert len(code) <= 100  # a quarter of what a vendor may need to the first tensor is left for its SDK
