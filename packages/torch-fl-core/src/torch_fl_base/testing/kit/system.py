"""HAL-QRY-01 and HAL-SYS-01 to 05."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from torch_fl_base._hal_header import header
from torch_fl_base._hal_types import new_structure, structure
from torch_fl_base.testing.kit.bench import DEVICE_TO_HOST, Bench, constant
from torch_fl_base.testing.kit.checks import equal, expect, isolated, one_of, same_bytes, skip
from torch_fl_base.testing.kit.elf import exported_symbols
from torch_fl_base.testing.kit.quirks import Quirks
from torch_fl_base.testing.kit.subjects import SIZE
from torch_fl_base.testing.kit.threads import JOIN_LIMIT_S, together

CAPABILITIES = {
    name.removeprefix("FLAGOS_HAL_CAP_"): number
    for name, number in header().constants.items()
    if name.startswith("FLAGOS_HAL_CAP_") and not name.endswith("_")
}


def _entry(bench: Bench) -> Callable[..., int]:
    if bench.hal.query is None:
        skip("the library was opened through layers, which hide its query")
    return bench.hal.query


def _query(bench: Bench, major: int, minor: int) -> tuple[int, int | None]:
    table = ctypes.c_void_p(0x5A5A)
    status = _entry(bench)(major, minor, ctypes.byref(table))
    return status, table.value


# --- query ----------------------------------------------------------------------------------------------


def test_qry_01_same_tables_at_every_call(bench: Bench) -> None:
    major, minor = header().abi
    status, first = _query(bench, major, minor)
    equal(status, 0, "the status of query")
    expect(first is not None, "query gave no table")
    equal(_query(bench, major, minor), (0, first), "status and table of a second query")


def test_qry_01_newer_minor_of_core_is_served(bench: Bench) -> None:
    major, minor = header().abi
    equal(_query(bench, major, minor + 7)[0], 0, "the status of query by a core with a newer minor")


def test_qry_01_other_major_is_a_mismatch(bench: Bench) -> None:
    major, minor = header().abi
    for other in (major + 1, 0, 2**32 - 1):
        status, table = _query(bench, other, minor)
        equal(status, constant("STATUS_ABI_MISMATCH"), f"the status of query for major {other}")
        expect(table != 0x5A5A, "query with another major did not write its output")
        if table is not None:
            version = (ctypes.c_uint32 * 2).from_address(table + ctypes.sizeof(ctypes.c_size_t))
            equal(version[0], major, "the major in the table given with ABI_MISMATCH")


def test_qry_01_null_output_is_an_invalid_argument(bench: Bench) -> None:
    major, minor = header().abi
    for version in (major, major + 1):
        status = _entry(bench)(version, minor, None)
        equal(status, constant("STATUS_INVALID_ARGUMENT"), "the status of query with a null output")


@isolated()
def test_qry_01_tables_outlive_shutdown(bench: Bench) -> None:
    before = _query(bench, *header().abi)
    bench.hal.system.shutdown()
    equal(_query(bench, *header().abi), before, "status and table of query after shutdown")
    bench.hal.system.init()


def test_qry_01_is_the_one_export(bench: Bench) -> None:
    exported = exported_symbols(bench.hal.path)
    if any(name.startswith(("__asan", "__tsan", "__ubsan")) for name in exported):
        skip("the library is built with a sanitizer, which exports its own symbols")
    equal(exported, ["flagos_hal_query"], "the symbols that the library exports")


# --- init, shutdown -------------------------------------------------------------------------------------


@isolated()
def test_sys_01_second_init_does_nothing(bench: Bench) -> None:
    bench.requires_devices(1)
    pointer = bench.allocate(SIZE)
    bench.put(pointer, b"\x21" * SIZE)
    free = bench.memory_of(0)[0]
    bench.hal.system.init()
    equal(bench.memory_of(0)[0], free, "free memory after a second init")
    bench.holds(pointer, b"\x21" * SIZE, "memory after a second init")
    bench.hal.memory.release(0, pointer)


@isolated(initialised=False)
def test_sys_01_concurrent_inits_wait_for_each_other(bench: Bench) -> None:
    def start() -> None:
        bench.hal.system.init()
        # init has returned here, so the library must be usable, whoever made it so.
        if bench.hal.device.count():
            pointer = bench.hal.memory.allocate(0, SIZE)
            time.sleep(0.2)  # another thread's init, still on its way, must not take it away
            bench.hal.memory.release(0, pointer)

    together([start] * 8)
    bench.hal.system.shutdown()


def _init_fails(quirks: Quirks) -> dict[str, str]:
    return dict(quirks.inject("system.init", 1)) if quirks.inject is not None else {}


@isolated(initialised=False, environment=_init_fails, needs="inject")
def test_sys_01_init_may_be_called_again_after_a_failure(bench: Bench) -> None:
    bench.refuses(("UNAVAILABLE", "UNKNOWN"), "system.init")
    bench.refuses("NOT_INITIALIZED", "device.count")
    for name in _init_fails(bench.quirks):  # the cause goes away
        os.environ.pop(name, None)
    equal(bench.hal.call("system.init").status, "OK", "the status of init after one that failed")
    bench.hal.device.count()
    bench.hal.system.shutdown()


@isolated(initialised=False)
def test_sys_02_shutdown_before_init_and_twice_does_nothing(bench: Bench) -> None:
    equal(bench.hal.call("system.shutdown").status, "OK", "the status of shutdown before init")
    bench.hal.system.init()
    equal(bench.hal.call("system.shutdown").status, "OK", "the status of shutdown")
    equal(bench.hal.call("system.shutdown").status, "OK", "the status of a second shutdown")


@isolated(initialised=False)
def test_sys_02_init_may_follow_shutdown(bench: Bench) -> None:
    frees = []
    for turn in range(5):
        bench.hal.system.init()
        if not bench.hal.device.count():
            skip("needs 1 device, the library has 0")
        frees.append(bench.memory_of(0)[0])
        if turn == 1:  # the first round may leave behind what is opened once
            descriptors = len(os.listdir("/proc/self/fd"))
        pointer = bench.hal.memory.allocate(0, SIZE)
        bench.put(pointer, bytes([turn]) * SIZE)
        bench.holds(pointer, bytes([turn]) * SIZE, f"memory in round {turn}")
        bench.hal.stream.create(0, None)
        bench.hal.event.create(0, 0)
        bench.hal.system.shutdown()  # with memory, a stream and an event left behind
    bench.hal.system.init()
    equal(len(os.listdir("/proc/self/fd")), descriptors, "the number of open files after five rounds")
    bench.hal.system.shutdown()
    if bench.quirks.private_memory:
        equal(len(set(frees)), 1, f"the number of different amounts of free memory ({frees})")


@isolated()
def test_sys_02_shutdown_waits_for_queued_work(bench: Bench) -> None:
    bench.requires_devices(1)
    stream = bench.hal.stream.create(0, None)
    pointer = bench.hal.memory.allocate(0, SIZE)
    target = bench.host(SIZE, b"\x00" * SIZE)
    gate = bench.gate(stream)
    bench.hal.memory.fill_async(stream, pointer, 0x3C, SIZE)
    bench.hal.memory.copy_async(stream, target.address, pointer, SIZE, DEVICE_TO_HOST)
    gate.open_after(0.2)
    bench.hal.system.shutdown()
    expect(gate.is_open, "shutdown did not wait for the work")
    same_bytes(target.read(), b"\x3c" * SIZE, "host memory that queued work was to write before shutdown")
    bench.hal.system.init()


@isolated()
def test_sys_02_process_may_end_without_shutdown(bench: Bench) -> None:
    bench.requires_devices(1)
    stream = bench.hal.stream.create(0, None)
    pointer = bench.hal.memory.allocate(0, 1 << 20)
    for value in range(50):
        bench.hal.memory.fill_async(stream, pointer, value, 1 << 20)
    bench.leaves_initialised = True


# --- info, last_error, capability -----------------------------------------------------------------------


def _check_info(info: Any) -> None:
    for name, _ in info._fields_[1:]:
        value = getattr(info, name)
        expect(value is not None, f"info.{name} is null")
        value.decode("utf-8")
    vendor = info.vendor.decode()
    expect(vendor != "" and vendor == vendor.lower(), f"info.vendor {vendor!r} is no lower-case name")
    expect(info.library_version != b"", "info.library_version is empty")


def test_sys_03_describes_the_library(bench: Bench) -> None:
    _check_info(bench.hal.system.info())


@isolated(initialised=False)
def test_sys_03_works_before_init_and_after_shutdown(bench: Bench) -> None:
    before = bench.hal.system.info()
    _check_info(before)
    vendor, version = before.vendor, before.library_version
    bench.hal.system.init()
    during = bench.hal.system.info()
    _check_info(during)
    sdk = during.sdk_version
    bench.hal.system.shutdown()
    _check_info(bench.hal.system.info())
    _check_info(before)  # strings live as long as the process
    equal((before.vendor, before.library_version), (vendor, version), "the strings given before init")
    equal(during.sdk_version, sdk, "a string given before shutdown")
    equal((during.vendor, during.library_version), (vendor, version), "vendor and version after init")


def test_sys_03_writes_no_more_than_struct_size(bench: Bench) -> None:
    check_growth(bench, "system.info", "flagos_hal_info", "library_version")


def check_growth(bench: Bench, qualified: str, name: str, cut: str, *inputs: Any) -> None:
    """Check that a function writes what a shorter caller knows, all of it and no more, and copes with a
    longer one."""
    cls = structure(name)
    whole = ctypes.sizeof(cls)
    full = new_structure(name)
    equal(bench.hal.function(qualified)(*inputs, ctypes.byref(full)), 0, f"the status of {qualified}")
    for size in (getattr(cls, cut).offset, whole + 64):
        memory = (ctypes.c_uint8 * (whole + 128))(*([0xA5] * (whole + 128)))
        ctypes.c_size_t.from_buffer(memory).value = size
        pointer = ctypes.cast(memory, ctypes.POINTER(cls))
        status = bench.hal.function(qualified)(*inputs, pointer)
        equal(status, 0, f"the status of {qualified} for a caller whose {name} has {size} bytes")
        known = min(size, whole)
        expected = ctypes.string_at(ctypes.addressof(full), whole)[8:known]
        same_bytes(
            bytes(memory[8:known]), expected, f"{name} as written for a caller that knows {size} bytes"
        )
        beyond = bytes(memory[max(known, 8) : size]) if size > whole else b""
        expect(set(beyond) <= {0xA5, 0}, f"{qualified} wrote beyond its own {name}")
        outside = bytes(memory[max(size, 8) :])
        same_bytes(outside, b"\xa5" * len(outside), f"what lies behind {size} bytes of {name}")


def test_sys_04_thread_without_failures_has_status_ok(bench: Bench) -> None:
    def check() -> None:
        detail = bench.detail()
        equal(
            (detail.status, detail.function), ("OK", ""), "status and function of a thread without failures"
        )

    together([check])


def test_sys_04_reading_does_not_clear(bench: Bench) -> None:
    bench.refuses("INVALID_DEVICE", "device.synchronize", -1)
    first = bench.detail()
    equal(bench.detail(), first, "the detail read a second time")
    equal(first.status, "INVALID_DEVICE", "the status in the detail")


def test_sys_04_null_output_leaves_the_detail(bench: Bench) -> None:
    bench.refuses("INVALID_DEVICE", "device.synchronize", -1)
    first = bench.detail()
    status = bench.hal.raw.system.last_error(None)
    equal(status, constant("STATUS_INVALID_ARGUMENT"), "the status of last_error with a null output")
    equal(bench.detail(), first, "the detail after that")


def test_sys_04_detail_belongs_to_the_thread(bench: Bench) -> None:
    everyone = threading.Barrier(8)

    def fail(index: int) -> None:
        for _ in range(20):
            bench.hal.call("device.synchronize", -2 - index)
            everyone.wait(JOIN_LIMIT_S)  # all have failed
            detail = bench.detail()
            found = (detail.status, detail.function)
            equal(found, ("INVALID_DEVICE", "device.synchronize"), f"the detail of thread {index}")
            everyone.wait(JOIN_LIMIT_S)

    def other(index: int) -> None:
        for _ in range(20):
            bench.hal.call("stream.query", None)
            everyone.wait(JOIN_LIMIT_S)
            detail = bench.detail()
            found = (detail.status, detail.function)
            equal(found, ("INVALID_HANDLE", "stream.query"), f"the detail of thread {index}")
            everyone.wait(JOIN_LIMIT_S)

    bench.refuses("INVALID_ARGUMENT", "system.capability", -1)
    own = bench.detail()
    jobs = [lambda index=index: (fail if index % 2 else other)(index) for index in range(8)]
    together(jobs)
    equal(bench.detail(), own, "the detail of a thread while others failed")


def test_sys_04_writes_no_more_than_struct_size(bench: Bench) -> None:
    bench.refuses("INVALID_DEVICE", "device.synchronize", -1)
    check_growth(bench, "system.last_error", "flagos_hal_error", "message")


def test_sys_05_answers_are_constant_and_in_range(bench: Bench) -> None:
    for name, number in CAPABILITIES.items():
        value = bench.hal.system.capability(number)
        equal(bench.hal.system.capability(number), value, f"a second answer for {name}")
    access = [constant("HOST_ACCESS_NONE"), constant("HOST_ACCESS_COHERENT"), constant("HOST_ACCESS_MANAGED")]
    one_of(bench.capability("HOST_ACCESS"), access, "capability HOST_ACCESS")
    alignment = bench.capability("ALIGNMENT")
    expect(
        alignment >= 64 and alignment & (alignment - 1) == 0, f"ALIGNMENT {alignment} is no power of two ≥ 64"
    )
    for name in ("ASYNC_STREAMS", "EVENT_TIMING", "POINTER_INFO"):
        one_of(bench.capability(name), [0, 1], f"capability {name}")
    expect(bench.capability("MAX_STREAMS") >= 0, "MAX_STREAMS is negative")


def test_sys_05_unknown_number_is_an_invalid_argument(bench: Bench) -> None:
    for number in (-1, constant("CAP_COUNT_") + 1000, 2**31 - 1, -(2**31)):
        bench.refuses("INVALID_ARGUMENT", "system.capability", number)
