"""The process that runs entries. It says what it begins and ends, so that a crash costs one entry."""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import torch

from torch_fl.testing.ops.attempt import Config, DeviceLost, summary
from torch_fl.testing.ops.checks import Report, Subject, run_check
from torch_fl.testing.ops.database import database, dtype_of

# One byte of shared memory: what the worker was doing when it died.
PHASES = ("samples", "reference", "device")


def _load_device(device: str) -> None:
    device_type = torch.device(device).type
    if device_type == "cpu":
        return
    if device_type == "flagos":
        import torch_fl  # noqa: F401  (claims the device)
    torch.empty(1, device=device)


def _run_job(job: dict[str, Any], config: Config, mark: mmap.mmap, replies: TextIO) -> None:
    def say(**message: Any) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    def phase(name: str) -> None:
        mark[0] = PHASES.index(name)

    subject = Subject(database()[job["op"]], dtype_of(job["dtype"]), config, phase)
    for check in job["checks"]:
        say(begin=check)
        started = time.perf_counter()
        try:
            report = run_check(subject, check)
        except (KeyboardInterrupt, SystemExit):
            raise
        except DeviceLost as error:
            # Only a fresh process goes on; to the runner this one crashed.
            print(f"the device takes no more work: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        except BaseException as error:  # noqa: BLE001  A fault of the kit or of PyTorch's sample makers; reported, not hidden.
            report = Report("fail", f"the check itself raises {summary(error)}")
        say(
            end=check,
            status=report.status,
            message=report.message,
            calls=report.calls,
            seconds=round(time.perf_counter() - started, 4),
        )
    say(done=True)


def serve(reply_fd: int, mark_path: Path, config: Config) -> None:
    """Read jobs as JSON lines from stdin until it closes; write what happens to `reply_fd`.

    Args:
        reply_fd: a pipe's writing end, inherited. Standard output and error stay free for what operators
            print.
        mark_path: a file of one page, shared with the parent.
        config: how to compare.
    """
    faulthandler.enable(file=sys.stderr, all_threads=False)
    torch.set_num_threads(1)
    torch.set_warn_always(True)
    # Where CUDA computes: as exactly as the type allows. CPU may be the reference.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    with (
        open(mark_path, "r+b") as mark_file,
        mmap.mmap(mark_file.fileno(), 0) as mark,
        os.fdopen(reply_fd, "w", encoding="utf-8") as replies,
    ):
        _load_device(config.device)
        _load_device(config.reference)
        database()
        replies.write(json.dumps({"ready": True}) + "\n")
        replies.flush()
        for line in sys.stdin:
            _run_job(json.loads(line), config, mark, replies)
