"""PyTorch on every accelerator: `import torch_fl` claims the device `flagos`, and holds what has no
torch.cuda counterpart.

The device's own functions are in `torch.flagos`, which is also `torch_fl.flagos`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from torch_fl_base import _native
from torch_fl_base.spec import BackendError, BackendSpec

__all__ = ["BackendError", "BackendSpec", "Report", "flagos", "report"]

if not _native.run_as_doctor(sys.argv, sys.orig_argv):
    from torch_fl._report import Report, report
    from torch_fl._start import bindings as _C  # noqa: F401  (`torch_fl._C`, as if it were imported the usual way)

    if TYPE_CHECKING:
        from torch_fl import flagos  # the same files; at run time they are torch.flagos
    else:
        from torch_fl._start import flagos
