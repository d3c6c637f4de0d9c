"""Compiles the HAL library and the fake of CUDA's runtime that its tests run on.

With TORCH_FL_NVIDIA_REAL=1 the tests use the runtime and the GPUs of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_sdk import build

PACKAGE = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Name them to quirks.py, which every process of the kit reads."""
    folder = tmp_path_factory.mktemp("nvidia")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TORCH_FL_NVIDIA_HAL", str(build.hal_library(PACKAGE, folder)))
        if os.environ.get("TORCH_FL_NVIDIA_REAL") != "1":
            environment.setenv(
                "TORCH_FL_NVIDIA_FAKE", str(build.fake_sdk(PACKAGE, "libcudart.so.13", folder))
            )
        yield
