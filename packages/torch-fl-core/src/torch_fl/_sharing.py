"""The refusal, in words, to share device memory between processes; registered when the device is claimed.

torch's own reducer of storages fails for a flagos storage with "_share_fd_: only available on CPU". Storages
of every other device go to it as before.
"""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from torch_fl_base.autoload import DEVICE

REFUSAL = (
    "flagos: device memory is not shared between processes yet. Send tensor.cpu(), or have copies sent: "
    "torch_fl.compat.multiprocessing.send_copies()."
)


def install() -> None:
    """Register the reducer in place of torch's, which it calls for other devices."""
    original = ForkingPickler._extra_reducers.get(torch.UntypedStorage)  # type: ignore[attr-defined]
    if original is None:  # torch.multiprocessing was left out of this build
        return

    def reduce_storage(storage: torch.UntypedStorage) -> Any:
        if storage.device.type == DEVICE:
            raise RuntimeError(REFUSAL)
        return original(storage)

    ForkingPickler.register(torch.UntypedStorage, reduce_storage)
