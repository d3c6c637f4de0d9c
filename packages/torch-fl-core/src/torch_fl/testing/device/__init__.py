"""The device level of the conformance kit: a pytest suite, one module per area, for whatever backend holds
the device `flagos`.

A vendor's test file is `from torch_fl.testing.device import *`; one area alone is
`from torch_fl.testing.device.copies import *`. Tests ask for what they need (a second device, a second
backend, delays that can be injected) by fixtures, which skip with what is missing. Nothing names a vendor.
"""

import importlib

import pytest

AREAS = (
    "autocast",
    "autograd",
    "copies",
    "dataloader",
    "devices",
    "dlpack",
    "errors",
    "events",
    "exiting",
    "factories",
    "forking",
    "interop",
    "memory",
    "modules",
    "operators",
    "optimizers",
    "processes",
    "rng",
    "sdpa",
    "serialization",
    "storage",
    "streams",
    "threads",
    "views",
)

pytest.register_assert_rewrite(*(f"{__name__}.{area}" for area in AREAS))

from torch_fl.testing.device.support import FIXTURES  # noqa: E402

globals().update(FIXTURES)
__all__ = [*FIXTURES]


def _collect() -> None:
    """Put every area's tests into this namespace. Raises NameError if two areas use one name."""
    owner: dict[str, str] = {}
    for area in AREAS:
        module = importlib.import_module(f"{__name__}.{area}")
        for name in module.__all__:
            if name in FIXTURES:
                continue
            if name in owner:
                raise NameError(f"{name} is defined by the areas {owner[name]} and {area}")
            owner[name] = area
            globals()[name] = getattr(module, name)
            __all__.append(name)


_collect()
