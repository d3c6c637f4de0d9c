"""DataLoader: pinning thread, worker processes started by fork and spawn, moving batches without waiting."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from torch_fl.testing.device.support import exported, run_quietly


class _Squares(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3,), float(index * index)), index


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_pinned_and_move(device: torch.device, workers: int) -> None:
    seen: list[int] = []
    context = "fork" if workers else None
    for values, index in DataLoader(
        _Squares(), batch_size=4, num_workers=workers, pin_memory=True, multiprocessing_context=context
    ):
        assert values.is_pinned()
        assert index.is_pinned()
        mine = values.to(device, non_blocking=True)
        assert mine[:, 0].tolist() == [float(i * i) for i in index.tolist()]
        seen += index.tolist()
    assert seen == list(range(20))


def test_spawned_workers_do_not_open_the_device(device: torch.device) -> None:
    loader = DataLoader(
        _Squares(), batch_size=10, num_workers=1, multiprocessing_context="spawn", pin_memory=True
    )
    assert [values.to(device).sum().item() for values, _ in loader] == [
        3.0 * sum(i * i for i in range(10)),
        3.0 * sum(i * i for i in range(10, 20)),
    ]


def test_forked_workers_after_the_device_was_used(device: torch.device) -> None:
    kept = torch.ones(10, device=device)
    loader = DataLoader(
        TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=2, multiprocessing_context="fork"
    )
    assert [batch[0].to(device).sum().item() for batch in loader] == [6.0, 22.0]
    assert kept.sum().item() == 10.0


def test_random_sampler_on_the_host_is_reproducible(device: torch.device) -> None:
    def order() -> list[float]:
        loader = DataLoader(
            TensorDataset(torch.arange(10.0)), shuffle=True, generator=torch.Generator().manual_seed(3)
        )
        return [batch[0].to(device).item() for batch in loader]

    assert order() == order()


def test_nested_batches_are_pinned(device: torch.device) -> None:
    samples = [{"a": torch.ones(2), "b": [torch.zeros(1), torch.ones(1)]} for _ in range(4)]
    (batch,) = DataLoader(samples, batch_size=4, pin_memory=True)  # type: ignore[arg-type, var-annotated]
    assert batch["a"].is_pinned()
    assert all(tensor.is_pinned() for tensor in batch["b"])


def test_worker_that_uses_the_device_after_fork_is_told(device: torch.device) -> None:
    printed = run_quietly(
        """
        import torch, torch_fl
        from torch.utils.data import DataLoader
        torch.ones(1, device="flagos")
        class Bad(torch.utils.data.Dataset):
            def __len__(self): return 2
            def __getitem__(self, i): return torch.ones(1, device="flagos")
        try:
            list(DataLoader(Bad(), num_workers=1, multiprocessing_context="fork"))
        except RuntimeError as error:
            print("spawn" in str(error))
        """
    )
    assert printed.strip() == "True"


__all__ = exported(globals())
