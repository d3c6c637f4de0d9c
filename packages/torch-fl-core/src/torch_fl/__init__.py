"""PyTorch on every accelerator: `import torch_fl` claims the device `flagos`, and holds what has no
torch.cuda counterpart.

The device's own functions are in `torch.flagos`, which is also `torch_fl.flagos`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from torch_fl_base import _native
from torch_fl_base.spec import BackendError, BackendSpec

if TYPE_CHECKING:
    from torch_fl import _C as _C
    from torch_fl import flagos as flagos
    from torch_fl.report import Report as Report
    from torch_fl.report import report as report

__all__ = ["BackendError", "BackendSpec", "Report", "flagos", "report"]

if not _native.run_as_doctor(sys.argv, sys.orig_argv):
    _C = _native.import_api(__name__)
    from torch_fl.report import Report, report
