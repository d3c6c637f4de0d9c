"""HAL-PER-01 to 04."""

from __future__ import annotations

import time

from torch_fl_base.testing.kit.bench import Bench
from torch_fl_base.testing.kit.checks import also, cases, equal, expect, one_of, skip
from torch_fl_base.testing.kit.memory import ODD_SIZES, pattern
from torch_fl_base.testing.kit.subjects import SIZE


def _pairs(bench: Bench) -> list[tuple[int, int]]:
    bench.requires("peer")
    bench.requires_devices(2)
    count = min(int(bench.hal.device.count()), 4)
    return [(one, two) for one in range(count) for two in range(count) if one != two]


def test_per_01_answers_for_every_pair(bench: Bench) -> None:
    bench.requires("peer.can_access")
    bench.requires_devices(1)
    for device in range(bench.hal.device.count()):
        equal(bench.hal.peer.can_access(device, device), 0, "whether a device is its own peer")
    for device, peer in _pairs(bench):
        one_of(bench.hal.peer.can_access(device, peer), [0, 1], f"whether {device} can access {peer}")


def test_per_02_enabling_twice_is_fine(bench: Bench) -> None:
    bench.requires("peer.enable")
    seen = False
    for device, peer in _pairs(bench):
        if not bench.hal.peer.can_access(device, peer):
            continue
        seen = True
        for _ in range(2):
            equal(bench.hal.call("peer.enable", device, peer).status, "OK", f"peer.enable({device}, {peer})")
        bench.hal.peer.disable(device, peer)
    if not seen:
        skip("peer.can_access says 0 for every pair")


def test_per_02_impossible_pairs_are_unsupported(bench: Bench) -> None:
    bench.requires("peer.enable")
    bench.requires_devices(1)
    bench.refuses("UNSUPPORTED", "peer.enable", 0, 0)
    for device, peer in [] if bench.hal.device.count() < 2 else _pairs(bench):
        if not bench.hal.peer.can_access(device, peer):
            bench.refuses("UNSUPPORTED", "peer.enable", device, peer)


def test_per_03_disabling_what_is_not_enabled_is_fine(bench: Bench) -> None:
    bench.requires("peer.disable")
    for device, peer in _pairs(bench):
        for _ in range(2):
            equal(
                bench.hal.call("peer.disable", device, peer).status, "OK", f"peer.disable({device}, {peer})"
            )


def test_per_03_enabled_again_after_disable(bench: Bench) -> None:
    bench.requires("peer.enable")
    bench.requires("peer.disable")
    device, peer = _pairs(bench)[0]
    if not bench.hal.peer.can_access(device, peer):
        skip(f"device {device} cannot address memory of device {peer}")
    for _ in range(3):
        bench.hal.peer.enable(device, peer)
        bench.hal.peer.disable(device, peer)


@cases("size", ODD_SIZES)
def test_per_04_copies_exactly_the_bytes_asked_for(bench: Bench, size: int) -> None:
    bench.requires("peer.copy_async")
    room = size + 16
    for source, target in _pairs(bench):
        for owner in (source, target):
            stream = bench.stream(owner)
            first, second = bench.allocate(room, source), bench.allocate(room, target)
            data = pattern(size, size + source)
            bench.put(first, b"\x00" * 3 + data + b"\x00" * 13, source)
            bench.put(second, b"\xbb" * room, target)
            bench.hal.peer.copy_async(stream, target, second + 5, source, first + 3, size)
            bench.hal.stream.synchronize(stream)
            wanted = b"\xbb" * 5 + data + b"\xbb" * (room - size - 5)
            bench.holds(second, wanted, f"the target of a copy {source} → {target}", target)


@also("HAL-STR-07")
def test_per_04_is_ordered_by_its_stream_and_by_events(bench: Bench) -> None:
    bench.requires("peer.copy_async")
    source, target = _pairs(bench)[0]
    writer, copier = bench.stream(source), bench.stream(target)
    first, second = bench.allocate(SIZE, source), bench.allocate(SIZE, target)
    bench.put(first, b"\x00" * SIZE, source)
    bench.put(second, b"\x00" * SIZE, target)
    ready = bench.event(source)
    gate = bench.gate(writer)
    bench.hal.memory.fill_async(writer, first, 0x71, SIZE)
    bench.hal.event.record(ready, writer)
    bench.hal.stream.wait_event(copier, ready)
    bench.hal.peer.copy_async(copier, target, second, source, first, SIZE)
    bench.still_shut(gate, "peer.copy_async")
    time.sleep(0.05)
    bench.holds(second, b"\x00" * SIZE, "the target of a peer copy that must wait", target)
    gate.open()
    bench.hal.stream.synchronize(copier)
    bench.holds(second, b"\x71" * SIZE, "the target of a peer copy", target)


def test_per_04_wrong_arguments_are_refused(bench: Bench) -> None:
    bench.requires("peer.copy_async")
    source, target = _pairs(bench)[0]
    stream = bench.stream(source)
    first, second = bench.allocate(SIZE, source), bench.allocate(SIZE, target)
    bench.refuses("INVALID_ARGUMENT", "peer.copy_async", stream, target, None, source, first, SIZE)
    bench.refuses("INVALID_ARGUMENT", "peer.copy_async", stream, target, second, source, None, SIZE)
    if bench.hal.device.count() > 2:
        third = bench.stream(2)
        bench.refuses("INVALID_ARGUMENT", "peer.copy_async", third, 1, second, 0, first, SIZE)
    expect(bench.hal.call("stream.query", stream).status == "OK", "the stream after refused copies")
