"""What the kit must know of the reference backend: how its faults are injected. It is excused from
nothing."""

from __future__ import annotations

from torch_fl_base.testing.kit.quirks import Quirks


def _inject(function: str, nth: int) -> dict[str, str]:
    return {"FLAGOS_REFERENCE_FAIL": f"{function}:{nth}"}


def _fail_work(nth: int) -> dict[str, str]:
    return {"FLAGOS_REFERENCE_FAIL": f"work.fill:{nth}"}


def _lose_device(device: int) -> dict[str, str]:
    del device  # the test copies on the device that is to be lost before it copies on others
    return {"FLAGOS_REFERENCE_FAIL": "memory.copy:1=DEVICE_LOST"}


QUIRKS = Quirks(name="reference", inject=_inject, fail_work=_fail_work, lose_device=_lose_device)
