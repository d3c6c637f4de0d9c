"""Which torch an environment gets: never a build for an accelerator by accident."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tools.torch_choice import CPU_INDEX, NoTorchError, accelerator_of, choose, requirement

CPU = {"version": "2.13.0+cpu", "requires_dist": ["filelock", "sympy"]}
CUDA = {
    "version": "2.13.0",
    "requires_dist": [
        "filelock",
        "nvidia-cublas==13.1; platform_system == 'Linux'",
        "triton==3.7; extra == 'x'",
    ],
}


class Pip:
    """Answers as pip would, and keeps what it was asked."""

    def __init__(self, own: Mapping[str, Any] | None, index: Mapping[str, Any] | None) -> None:
        self.own, self.index = own, index
        self.asked: list[list[str]] = []

    def __call__(self, arguments: Sequence[str]) -> Mapping[str, Any]:
        self.asked.append(list(arguments))
        found = self.index if CPU_INDEX in arguments else self.own
        if found is None:
            raise LookupError("no matching distribution")
        return found


def test_what_pip_takes_is_used_if_it_is_a_cpu_build() -> None:
    pip = Pip(CPU, None)
    choice = choose(None, pip)
    assert choice.arguments == ("torch==2.13.*",)
    assert choice.version == "2.13.0+cpu"
    assert "it is a CPU build" in choice.reason
    assert len(pip.asked) == 1


def test_a_cuda_build_sends_us_to_the_index_of_cpu_builds() -> None:
    choice = choose(None, Pip(CUDA, CPU))
    assert choice.arguments == ("torch==2.13.*", "--index-url", CPU_INDEX)
    assert "nvidia-cublas" in choice.reason


def test_a_cuda_build_is_refused_where_there_is_no_other() -> None:
    with pytest.raises(NoTorchError) as caught:
        choose("2.12", Pip({**CUDA, "version": "2.12.1"}, None))
    for part in ("2.12.1", "nvidia-cublas", CPU_INDEX, "--allow-cuda", "TORCH_FL_ALLOW_CUDA=1"):
        assert part in str(caught.value)


def test_a_cuda_build_is_taken_where_it_was_allowed_and_there_is_no_other() -> None:
    choice = choose("2.12", Pip({**CUDA, "version": "2.12.1"}, None), allow_cuda=True)
    assert choice.arguments == ("torch==2.12.*",)
    assert "allowed" in choice.reason


def test_a_cpu_build_is_preferred_even_where_cuda_is_allowed() -> None:
    assert CPU_INDEX in choose("2.13", Pip(CUDA, CPU), allow_cuda=True).arguments


def test_a_cuda_build_asked_for_by_name_is_taken() -> None:
    choice = choose("2.11.0+cu130", Pip({"version": "2.11.0+cu130"}, None))
    assert choice.arguments == ("torch==2.11.0+cu130",)
    assert "by name" in choice.reason


def test_nothing_found_anywhere_tells_both_places() -> None:
    with pytest.raises(NoTorchError, match=r"pip finds no torch==9\.9.*index of CPU builds"):
        choose("9.9", Pip(None, None))


def test_a_cpu_build_that_pip_does_not_know_comes_from_the_index() -> None:
    assert choose("2.12.0+cpu", Pip(None, {"version": "2.12.0+cpu"})).arguments[0] == "torch==2.12.0+cpu"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, "torch==2.13.*"),
        ("2.12", "torch==2.12.*"),
        ("2.12.1", "torch==2.12.1"),
        ("2.11.0+cu130", "torch==2.11.0+cu130"),
        ("torch>=2.12,<2.14", "torch>=2.12,<2.14"),
        ("/somewhere/torch-2.13.0-cp311.whl", "/somewhere/torch-2.13.0-cp311.whl"),
    ],
)
def test_what_is_asked_for_becomes_a_requirement(asked: str | None, expected: str) -> None:
    assert requirement(asked) == expected


@pytest.mark.parametrize("asked", ["", "latest", "2", "--pre"])
def test_what_is_no_version_is_refused(asked: str) -> None:
    with pytest.raises(NoTorchError, match="expected a version"):
        requirement(asked)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (CPU, None),
        (CUDA, "nvidia-cublas"),
        ({"version": "2.13.0+rocm6.4"}, "+rocm6.4"),
        ({"version": "2.13.0+xpu"}, "+xpu"),
        ({"version": "2.13.0", "requires_dist": ["filelock"]}, None),
        ({"version": "2.13.0", "requires_dist": ["nvidia-nccl; platform_system == 'Windows'"]}, None),
        ({"version": "2.13.0", "requires_dist": ["cuda-bindings"]}, "cuda-bindings"),
    ],
)
def test_a_build_for_an_accelerator_is_known_by_its_version_or_requirements(
    metadata: Mapping[str, Any], expected: str | None
) -> None:
    assert accelerator_of(metadata) == expected
