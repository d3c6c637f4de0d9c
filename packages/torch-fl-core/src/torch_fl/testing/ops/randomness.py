"""What can be asked of an operator that draws random numbers: reproducible by seed, different without,
distributed like the reference's."""

from __future__ import annotations

import torch

from torch_fl.testing.ops.attempt import Attempt, Call, Config, Function, attempt
from torch_fl.testing.ops.compare import compare_results, on_host, two_samples_differ
from torch_fl.testing.ops.mirror import has_plain_storage, tensors_in

_SEEDS = 12
# Whole channels share one draw: their numbers are too few to compare distributions by.
_CORRELATED = ("dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout")
_ENOUGH = 512  # numbers below which a comparison of distributions says nothing


def _numbers(outcome: Attempt) -> torch.Tensor:
    """Return the first tensor of a result as real numbers on CPU."""
    tensors = [tensor for tensor in tensors_in(outcome.result) if has_plain_storage(tensor)]
    if not tensors:
        return torch.empty(0, dtype=torch.float64)
    values = on_host(tensors[0])
    if values.dtype == torch.complex32:
        values = values.to(torch.complex64)
    if values.is_complex():
        values = torch.view_as_real(values)
    return values.double().reshape(-1)


def complaints(
    name: str, function: Function, call: Call, ours: Attempt, theirs: Attempt, config: Config
) -> list[str]:
    """Return complaints about a random call that was already made once, with the configured seed, on both
    devices."""
    again = attempt(function, call, config.device, config.seed)
    if again.error is not None:
        return [f"the second call raises {type(again.error).__name__}: {again.error}"]
    found = compare_results(
        on_cpu(again),
        on_cpu(ours),
        (),
        (),
        device=torch.device("cpu"),
        exact=True,
        what="second call with the same seed (reference: the first)",
    )
    if found:
        return found
    mine, reference = [_numbers(ours)], [_numbers(theirs)]
    if not 0 < mine[0].numel() <= 100_000:
        return []
    for step in range(1, _SEEDS):
        mine.append(_numbers(attempt(function, call, config.device, config.seed + step)))
        reference.append(_numbers(attempt(function, call, config.reference, config.seed + step)))
    all_equal = all(torch.equal(mine[0], other) for other in mine[1:])
    if all_equal and not any(torch.equal(reference[0], other) for other in reference[1:]):
        return [f"{_SEEDS} seeds give one result; on the reference each gives another"]
    pooled, theirs_pooled = torch.cat(mine), torch.cat(reference)
    pooled, theirs_pooled = pooled[pooled.isfinite()], theirs_pooled[theirs_pooled.isfinite()]
    if min(pooled.numel(), theirs_pooled.numel()) < _ENOUGH or name.endswith(_CORRELATED):
        return []
    difference = two_samples_differ(pooled, theirs_pooled)
    return [difference] if difference else []


def on_cpu(outcome: Attempt) -> list[torch.Tensor]:
    """Return the tensors of a result on CPU."""
    return [on_host(tensor) for tensor in tensors_in(outcome.result)]
