"""The models of the benchmarks on a GPU, at a tiny size and without one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
import torch

from benchmarks.qwen3 import Cache, Qwen3, Shape, build, generate

Run = Callable[..., subprocess.CompletedProcess[str]]

TINY = Shape(
    vocabulary=97,
    width=32,
    layers=3,
    heads=4,
    key_value_heads=2,
    head_width=16,
    feed_width=48,
    dtype=torch.float32,
)
TOKENS = torch.randint(TINY.vocabulary, (2, 9), generator=torch.Generator().manual_seed(1))

_PRELUDE = """
import dataclasses
import torch, torch_fl
from benchmarks import cuda_training, qwen3

def shape(dtype):
    return dataclasses.replace(qwen3.@tiny@, dtype=dtype)

def results(device, dtype):
    model = qwen3.build("cpu", shape(dtype)).to(device)
    tokens = torch.randint(97, (2, 9), generator=torch.Generator().manual_seed(1)).to(device)
    scores = model(tokens)
    torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens.flatten()).backward()
    found = [scores, *(parameter.grad for parameter in model.parameters()), qwen3.generate(model, tokens, 5)]
    assert {result.device.type for result in found} == {device}
    return [result.cpu() for result in found]
""".replace("@tiny@", repr(TINY))


def test_qwen3_has_the_public_number_of_parameters() -> None:
    with torch.device("meta"):
        model = Qwen3()
    assert sum(parameter.numel() for parameter in model.parameters()) == 596_049_920
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert model.angles.dtype == torch.float32


def test_the_cache_changes_no_score() -> None:
    model, cache = build("cpu", TINY), Cache()
    with torch.no_grad():
        whole = model(TOKENS)
        parts = [model(TOKENS[:, :4], cache)]
        parts += [model(TOKENS[:, place : place + 1], cache) for place in range(4, TOKENS.shape[1])]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)
    assert cache.length == TOKENS.shape[1]


def test_several_tokens_after_a_filled_cache_are_refused() -> None:
    model, cache = build("cpu", TINY), Cache()
    model(TOKENS, cache)
    with pytest.raises(ValueError, match="2 tokens at a time, with 9 in the cache"):
        model(TOKENS[:, :2], cache)


def test_generation_takes_the_likeliest_token_each_time() -> None:
    model, wanted = build("cpu", TINY), TOKENS
    with torch.no_grad():
        for _ in range(6):
            wanted = torch.cat((wanted, model(wanted)[:, -1].argmax(-1, keepdim=True)), dim=1)
    assert torch.equal(generate(model, TOKENS, 6), wanted)


def test_generation_ends_when_all_sequences_have_ended() -> None:
    model = build("cpu", TINY)
    first = generate(model, TOKENS, 1)[:, -1].tolist()
    assert first[0] != first[1]
    one = generate(model, TOKENS, 5, end=first[0])
    assert set(one[0, 9:].tolist()) == {first[0]}
    assert one[1, 9] == first[1]
    assert generate(model, TOKENS[:1], 5, end=first[0]).shape == (1, 10)


def test_qwen3_on_flagos_gives_what_it_gives_on_cpu(python: Run) -> None:
    python(
        _PRELUDE
        + """
for dtype in (torch.float32, torch.bfloat16):
    torch.testing.assert_close(results("flagos", dtype), results("cpu", dtype))
"""
    )


def test_training_of_qwen3_runs_on_flagos(python: Run) -> None:
    python(
        _PRELUDE
        + """
make, options = cuda_training.MODELS["Qwen3-0.6B"]
assert make is qwen3.build
tiny = lambda device: qwen3.build(device, shape(torch.bfloat16))
cuda_training.MODELS["tiny"] = (tiny, options)
answer = cuda_training.train("tiny", "flagos", 2, 8)
assert answer["ms"] > 0 and answer["reserved"] > 0, answer
assert answer["losses"][-1] < answer["losses"][0], answer
"""
    )


def test_what_trains_natively_imports_nothing_of_torch_fl(python: Run) -> None:
    python(
        """
import sys
import benchmarks.cuda_training
assert [name for name in sys.modules if name.startswith("torch_fl")] == []
""",
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )
