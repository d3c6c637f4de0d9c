"""The op level of the conformance kit: every operator of PyTorch's OpInfo database on a device, compared with
CPU.

Use it from the command line: `python -m torch_fl.testing.ops run|report|docs`.
"""

from torch_fl.testing.ops.attempt import Config
from torch_fl.testing.ops.database import Job, all_jobs, ci_jobs, select
from torch_fl.testing.ops.runner import Entry, Runner

__all__ = ["Config", "Entry", "Job", "Runner", "all_jobs", "ci_jobs", "select"]
