"""Runs jobs in worker processes: hands them out, watches for crashes and time-outs, starts a worker anew
after one."""

from __future__ import annotations

import collections
import contextlib
import json
import mmap
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from torch_fl.testing.ops.attempt import Config
from torch_fl.testing.ops.database import Job
from torch_fl.testing.ops.worker import PHASES

_START_SECONDS = 300.0


@dataclass(frozen=True)
class Entry:
    """The outcome of one check of one operator with one data type.

    Status is one of pass, fail, crash, timeout, skip; expected failures are applied later.
    """

    op: str
    dtype: str
    check: str
    status: str
    message: str = ""
    calls: int = 0
    seconds: float = 0.0


class _Worker:
    """One worker process and the job it is busy with."""

    def __init__(self, config: Config, folder: Path, index: int) -> None:
        self._config = config
        self._mark_path = folder / f"mark{index}"
        self._mark_path.write_bytes(bytes(mmap.PAGESIZE))
        self._log_path = folder / f"log{index}"
        self.job: Job | None = None
        self.check: str | None = None
        self.remaining: list[str] = []
        self.deadline = 0.0
        self.start()

    def start(self) -> None:
        """Start the process; it says `ready` when it has loaded the database."""
        reading, writing = os.pipe()
        self._log = open(self._log_path, "wb")  # noqa: SIM115  (lives as long as the process)
        arguments = ["worker", "--reply-fd", str(writing), "--mark", str(self._mark_path)]
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "torch_fl.testing.ops",
                *arguments,
                "--config",
                json.dumps(asdict(self._config)),
            ],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(writing,),
            text=True,
        )
        os.close(writing)
        self.replies = reading
        self.buffer = b""
        self.ready = False
        self.deadline = time.monotonic() + _START_SECONDS

    def give(self, job: Job) -> None:
        """Hand a job to the worker, which must be idle."""
        self.job, self.remaining = job, list(job.checks)
        assert self.process.stdin is not None
        # It may have died idle: the reading end tells, and the job is handed out again.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(
                json.dumps({"op": job.op, "dtype": job.dtype, "checks": job.checks}) + "\n"
            )
            self.process.stdin.flush()

    def phase(self) -> str:
        """Return what the process was doing last."""
        return PHASES[self._mark_path.read_bytes()[0]]

    def last_words(self) -> str:
        """Return the end of what the process printed."""
        text = self._log_path.read_bytes()[-3000:].decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        telling = [
            line for line in lines if "terminate called" in line or "what():" in line or "Fatal" in line
        ]
        return " / ".join((telling or lines)[-3:])[:400]

    def stop(self, *, kill: bool = True) -> int:
        """End the process and return its exit status."""
        if self.replies < 0:
            return self.process.wait()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0 if kill else 10)  # it has closed its pipe: let it end in its own way
        if self.process.poll() is None:
            self.process.kill()
        status = self.process.wait()
        os.close(self.replies)
        self.replies = -1
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        self._log.close()
        return status


class WorkersDoNotStart(RuntimeError):
    """A worker died before it could run anything; the message has what it printed."""


def _signal_name(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


class Runner:
    """Runs jobs and reports each entry as it ends.

    Args:
        config: how to compare.
        workers: how many processes.
        timeout: seconds one check may take.
        on_entry: called in the caller's thread with every outcome.
    """

    def __init__(
        self, config: Config, workers: int, timeout: float, on_entry: Callable[[Entry], None]
    ) -> None:
        self._config = config
        self._count = workers
        self._timeout = timeout
        self._on_entry = on_entry

    def run(self, jobs: list[Job]) -> None:
        """Run all jobs. Raises WorkersDoNotStart if a fresh worker dies; KeyboardInterrupt ends the workers
        first."""
        waiting = collections.deque(jobs)
        with tempfile.TemporaryDirectory(prefix="torch_fl_ops_") as folder:
            count = max(1, min(self._count, len(jobs)))
            workers = [_Worker(self._config, Path(folder), index) for index in range(count)]
            try:
                self._loop(workers, waiting)
            finally:
                for worker in workers:
                    worker.stop()

    def _loop(self, workers: list[_Worker], waiting: collections.deque[Job]) -> None:
        selector = selectors.DefaultSelector()
        for worker in workers:
            selector.register(worker.replies, selectors.EVENT_READ, worker)
        while waiting or any(worker.job for worker in workers):
            for worker in workers:
                if worker.ready and worker.job is None and waiting:
                    worker.give(waiting.popleft())
                    worker.deadline = time.monotonic() + self._timeout
            busy = [worker.deadline for worker in workers if worker.job or not worker.ready]
            pause = max(0.0, min(busy) - time.monotonic()) if busy else 1.0
            for key, _ in selector.select(pause):
                self._read(key.data, selector, waiting)
            now = time.monotonic()
            for worker in workers:
                if (worker.job or not worker.ready) and now > worker.deadline:
                    self._lost(worker, selector, waiting, timed_out=True)

    def _read(
        self, worker: _Worker, selector: selectors.BaseSelector, waiting: collections.deque[Job]
    ) -> None:
        chunk = os.read(worker.replies, 1 << 16)
        if not chunk:
            self._lost(worker, selector, waiting, timed_out=False)
            return
        worker.buffer += chunk
        *lines, worker.buffer = worker.buffer.split(b"\n")
        for line in lines:
            message = json.loads(line)
            worker.deadline = time.monotonic() + self._timeout
            if "ready" in message:
                worker.ready = True
            elif "begin" in message:
                worker.check = message["begin"]
            elif "end" in message:
                assert worker.job is not None
                worker.remaining.remove(message["end"])
                worker.check = None
                self._on_entry(
                    Entry(
                        worker.job.op,
                        worker.job.dtype,
                        message["end"],
                        message["status"],
                        message["message"],
                        message["calls"],
                        message["seconds"],
                    )
                )
            elif "done" in message:
                worker.job = None

    def _lost(
        self,
        worker: _Worker,
        selector: selectors.BaseSelector,
        waiting: collections.deque[Job],
        *,
        timed_out: bool,
    ) -> None:
        """Record a crash or time-out as the outcome of the check that ran, and go on with the rest in a new
        process."""
        selector.unregister(worker.replies)
        status = worker.stop(kill=timed_out)
        words, phase, job = worker.last_words(), worker.phase(), worker.job
        if not worker.ready:
            what = (
                "did not get ready in time"
                if timed_out
                else f"ended with {_signal_name(status)} before its first check"
            )
            raise WorkersDoNotStart(f"a worker {what}. It printed: {words or 'nothing'}")
        if job is not None:
            check = worker.check or (worker.remaining[0] if worker.remaining else None)
            if check is not None:
                worker.remaining.remove(check)
                if phase == "reference":
                    kind, text = "skip", f"the reference itself {'hangs' if timed_out else 'crashes'} here"
                elif timed_out:
                    kind, text = "timeout", f"no end after {self._timeout:g} s ({phase})"
                else:
                    kind, text = "crash", f"{_signal_name(status)} ({phase}): {words}"
                self._on_entry(Entry(job.op, job.dtype, check, kind, text))
            if worker.remaining:
                waiting.appendleft(Job(job.op, job.dtype, tuple(worker.remaining)))
        worker.job = worker.check = None
        worker.start()
        selector.register(worker.replies, selectors.EVENT_READ, worker)
