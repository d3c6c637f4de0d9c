"""HAL-DEV-01 to 07."""

from __future__ import annotations

import threading

from torch_fl_base._hal_header import header
from torch_fl_base.testing.kit.bench import Bench, constant
from torch_fl_base.testing.kit.checks import equal, expect, skip
from torch_fl_base.testing.kit.subjects import SIZE
from torch_fl_base.testing.kit.system import check_growth
from torch_fl_base.testing.kit.threads import JOIN_LIMIT_S, together

UNKNOWN = header().constants["FLAGOS_HAL_UNKNOWN"]
LARGE = 16 << 20


def test_dev_01_count_is_constant(bench: Bench) -> None:
    count = bench.hal.device.count()
    expect(count >= 0, f"device.count is {count}")
    together([lambda: equal(bench.hal.device.count(), count, "device.count on another thread")] * 4)


def test_dev_02_set_current_takes_every_device(bench: Bench) -> None:
    before = bench.hal.device.get_current()
    try:
        for device in [*range(bench.hal.device.count()), 0, 0]:
            bench.requires_devices(1)
            bench.hal.device.set_current(device)
            equal(bench.hal.device.get_current(), device, "the current device")
    finally:
        bench.hal.device.set_current(before)


def test_dev_02_refused_device_leaves_the_current_one(bench: Bench) -> None:
    last = bench.last_device
    before = bench.hal.device.get_current()
    bench.hal.device.set_current(last)
    try:
        for wrong in (-1, last + 1):
            bench.refuses("INVALID_DEVICE", "device.set_current", wrong)
            equal(bench.hal.device.get_current(), last, "the current device after a refused set_current")
    finally:
        bench.hal.device.set_current(before)


def test_dev_03_current_device_belongs_to_the_thread(bench: Bench) -> None:
    bench.requires_devices(2)
    count = bench.hal.device.count()
    before = bench.hal.device.get_current()

    everyone = threading.Barrier(8)

    def work(device: int) -> None:
        for _ in range(20):
            bench.hal.device.set_current(device)
            everyone.wait(JOIN_LIMIT_S)  # all have set theirs
            equal(bench.hal.device.get_current(), device, "the thread's current device")
            everyone.wait(JOIN_LIMIT_S)

    together([lambda index=index: work(index % count) for index in range(8)])  # type: ignore[misc]
    equal(bench.hal.device.get_current(), before, "the current device of the thread that set none")


def test_dev_04_properties_are_told_or_unknown(bench: Bench) -> None:
    bench.requires_devices(1)
    for device in range(bench.hal.device.count()):
        properties = bench.hal.device.properties(device)
        raw = bytes(properties)
        cls = type(properties)
        for name in ("name", "arch", "pci_bus_id"):
            member = getattr(cls, name)
            text = raw[member.offset : member.offset + member.size]
            expect(b"\0" in text, f"{name} of device {device} is not null-terminated")
            text.partition(b"\0")[0].decode("utf-8")
        expect(properties.name != b"", f"device {device} has no name")
        expect(properties.total_memory > 0, f"total_memory of device {device} is {properties.total_memory}")
        for name, kind in cls._fields_:
            if name in ("struct_size", "name", "arch", "pci_bus_id", "uuid", "dtypes", "reserved"):
                continue
            value = getattr(properties, name)
            expect(value == UNKNOWN or value >= 0, f"{name} of device {device} is {value} ({kind.__name__})")
        expect(properties.is_integrated in (UNKNOWN, 0, 1), f"is_integrated is {properties.is_integrated}")
        known = max(value for name, value in header().constants.items() if "_DTYPE_" in name)
        expect(properties.dtypes < 1 << (known + 1), f"dtypes {properties.dtypes:#x} has an undefined bit")
        equal(properties.reserved, 0, "the reserved member")


def test_dev_04_writes_no_more_than_struct_size(bench: Bench) -> None:
    bench.requires_devices(1)
    check_growth(bench, "device.properties", "flagos_hal_device_properties", "total_memory", 0)


def test_dev_05_memory_info_follows_allocations(bench: Bench) -> None:
    bench.requires_devices(1)
    for device in range(bench.hal.device.count()):
        # Other processes may allocate meanwhile, so the effect must be seen in one of several attempts.
        for attempt in range(1 if bench.quirks.private_memory else 8):
            free, total = bench.memory_of(device)
            expect(0 < free <= total, f"device {device}: free {free}, total {total}")
            pointer = bench.hal.memory.allocate(device, LARGE)
            less, same_total = bench.memory_of(device)
            bench.hal.memory.release(device, pointer)
            again, _ = bench.memory_of(device)
            equal(same_total, total, f"total memory of device {device}")
            if free - less >= LARGE and again == free:
                break
            if attempt == (0 if bench.quirks.private_memory else 7):
                expect(
                    free - less >= LARGE, f"an allocation of {LARGE} bytes took {free - less} of free memory"
                )
                equal(again, free, "free memory after the release")


def test_dev_05_one_device_does_not_count_for_another(bench: Bench) -> None:
    bench.requires_devices(2)
    if not bench.quirks.private_memory:
        skip("quirks.private_memory is False: other processes use the devices, too")
    before = bench.memory_of(1)
    bench.allocate(LARGE, 0)
    equal(bench.memory_of(1), before, "memory of device 1 while device 0 allocates")


def test_dev_06_synchronize_waits_for_all_streams(bench: Bench) -> None:
    bench.requires_devices(1)
    streams = [bench.stream(), bench.stream(), bench.default_stream()]
    for held in streams:
        gate = bench.gate(held)
        pointer = bench.allocate(SIZE)
        bench.hal.memory.fill_async(held, pointer, 0x44, SIZE)
        gate.open_after(0.25)
        bench.hal.device.synchronize(0)
        expect(gate.is_open, "device.synchronize did not wait for a stream")
        equal(bench.hal.call("stream.query", held).status, "OK", "the stream after device.synchronize")
        bench.holds(pointer, b"\x44" * SIZE, "memory after device.synchronize")


def test_dev_06_synchronize_waits_for_its_own_device_only(bench: Bench) -> None:
    bench.requires_devices(2)
    gate = bench.gate(bench.stream(1))
    bench.hal.device.synchronize(0)
    bench.still_shut(gate, "device.synchronize(0)")


def test_dev_07_health_waits_for_nothing(bench: Bench) -> None:
    bench.requires_devices(1)
    for device in range(bench.hal.device.count()):
        bench.hal.device.health(device)
    gate = bench.gate(bench.stream())
    bench.hal.device.health(0)
    bench.still_shut(gate, "device.health")


def test_dev_07_health_clears_nothing(bench: Bench) -> None:
    bench.requires_devices(1)
    bench.refuses("INVALID_HANDLE", "stream.query", None)
    before = bench.detail()
    bench.hal.device.health(0)
    equal(bench.detail(), before, "the detail after device.health")
    equal(
        bench.hal.call("system.capability", constant("CAP_ALIGNMENT")).status, "OK", "another call afterwards"
    )
