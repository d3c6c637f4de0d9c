"""The variables of the reference HAL: what they do, and what is said of values that are not allowed."""

from __future__ import annotations

import os

import pytest

from torch_fl_base._hal import Hal
from torch_fl_base._hal_types import new_structure

BAD = {
    "DEVICES": ["-1", "65", "two", "1.5", "0x2"],
    "MEMORY": ["0", "-1", "4GB", "lots", "1.5GiB", "GiB", "99999999999TiB", "65TiB"],
    "MEMORY_FAULT": ["2", "maybe"],
    "IPC": ["2", "shared"],
    "FAIL": [
        "memory.alocate",
        "allocate",
        "memory.allocate:0",
        "memory.allocate:x",
        "memory.allocate:+",
        "memory.allocate:1:2",
        "memory.allocate=NO_SUCH",
        "memory.allocate=OK",
        "memory.allocate=NOT_READY",
        "memory.allocate=UNKNOWN=UNKNOWN",
        "memory.allocate,",
        "work.event",
        "device.lost",
        "device.lost:2",
        "device.lost:0=UNKNOWN",
        "system.last_error",
    ],
    "LATENCY": [
        "copy",
        "copy:",
        "copy:fast",
        "copy:-1",
        "copy:1.5",
        "memory.cpy:5",
        "other:5",
        "copy:60000001",
        "copy:1:2",
    ],
}


@pytest.mark.reference(init=False)
def test_bad_values_are_refused_with_variable_and_value(hal: Hal) -> None:
    for name, values in BAD.items():
        variable = f"FLAGOS_REFERENCE_{name}"
        for value in values:
            os.environ[variable] = value
            assert hal.call("system.init").status == "UNKNOWN", f"{variable}={value}"
            message = hal.last_error().message
            assert message.startswith(f"{variable} is '{value}': "), message
            assert len(message) > len(f"{variable} is '{value}': ") + 10  # and what is allowed
            assert hal.call("device.count").status == "NOT_INITIALIZED"
        del os.environ[variable]
    hal.system.init()


@pytest.mark.reference(init=False)
def test_memory_is_read_with_units(hal: Hal) -> None:
    for text, size in {
        "1": 1,
        "1000": 1000,
        "3KiB": 3 << 10,
        "512mib": 512 << 20,
        "2 GiB": 2 << 30,
        " 1TiB ": 1 << 40,
        "64B": 64,
        "": 4 << 30,
    }.items():
        os.environ["FLAGOS_REFERENCE_MEMORY"] = text
        hal.system.init()
        assert hal.device.memory_info(0) == (size, size), text
        assert hal.device.properties(1).total_memory == size
        hal.system.shutdown()


@pytest.mark.reference(init=False)
def test_the_number_of_devices_follows_every_init(hal: Hal) -> None:
    for count in (2, 64, 1, 0, 3):
        os.environ["FLAGOS_REFERENCE_DEVICES"] = str(count)
        hal.system.init()
        assert hal.device.count() == count
        assert hal.call("device.health", count).status == "INVALID_DEVICE"
        assert hal.call("device.set_current", 0).status == ("OK" if count else "INVALID_DEVICE")
        if count == 64:
            hal.device.set_current(63)
        else:
            assert hal.device.get_current() == 0
        hal.system.shutdown()


@pytest.mark.reference
def test_describes_itself_truthfully(hal: Hal) -> None:
    info = hal.system.info()
    assert info.vendor == b"reference"
    assert (info.sdk_version, info.driver_version, info.sdk_path) == (b"", b"", b"")
    properties = hal.device.properties(0)
    assert properties.name == b"flagos reference device"
    assert properties.total_memory == 4 << 30
    assert properties.dtypes == (1 << 22) - 1
    assert properties.is_integrated == 1
    assert properties.multiprocessor_count == properties.warp_size == properties.capability_major == -1


@pytest.mark.reference
def test_writes_no_more_than_the_caller_knows(hal: Hal) -> None:
    import ctypes

    properties = new_structure("flagos_hal_device_properties")
    ctypes.memset(ctypes.addressof(properties), 0xAA, ctypes.sizeof(properties))
    properties.struct_size = 64
    assert hal.raw.device.properties(0, ctypes.byref(properties)) == 0
    raw = ctypes.string_at(ctypes.addressof(properties), ctypes.sizeof(properties))
    assert raw[64:] == b"\xaa" * (len(raw) - 64)
    assert properties.name.startswith(b"flagos reference device")
