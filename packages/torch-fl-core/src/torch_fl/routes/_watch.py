"""Reading route tables again when they change."""

from __future__ import annotations

import threading
from pathlib import Path

from torch_fl_base import _log
from torch_fl_base.routes.store import store
from torch_fl_base.spec import BackendError


class Watch:
    """A thread that reads all route tables again when one of them changes; `stop` or leaving `with` ends it.

    A table with a fault is logged (`torch_fl.routes`), and the routes stay as they were.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._ended = threading.Event()
        self._seen = _stamps()
        self._thread = threading.Thread(target=self._run, name="torch_fl.routes.watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a second call does nothing."""
        self._ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            stamps = _stamps()
            if stamps == self._seen:
                continue
            try:
                store().reload()
                _log.logger("routes").info("route tables have changed and are in effect")
            except BackendError as error:
                _log.logger("routes").error("route tables have changed, but are not used: %s", error)
            # What changed since `stamps` were taken is to be seen by the next look.
            self._seen = {path: stamps.get(path, stamp) for path, stamp in _stamps().items()}


def watch(interval: float = 1.0) -> Watch:
    """Read all route tables again whenever one of them changes, looked at every `interval` seconds.

    Raises: RouteError if the tables have faults now; ValueError for an interval that is not positive.
    """
    if interval <= 0:
        raise ValueError(f"flagos: the interval of watch is in seconds and positive, not {interval}")
    return Watch(interval)


def _stamps() -> dict[Path, tuple[int, int] | None]:
    """Return time and size of every table; None for one that is gone."""
    stamps: dict[Path, tuple[int, int] | None] = {}
    for path in store().files():
        try:
            status = path.stat()
        except OSError:
            stamps[path] = None
        else:
            stamps[path] = (status.st_mtime_ns, status.st_size)
    return stamps
