"""What the kit must know of the reference backend: how its faults are injected. It is excused from nothing."""

from __future__ import annotations

from torch_fl_base.testing.kit.quirks import Quirks


def _inject(function: str, nth: int) -> dict[str, str]:
    return {"FLAGOS_REFERENCE_FAIL": f"{function}:{nth}"}


QUIRKS = Quirks(name="reference", inject=_inject)
