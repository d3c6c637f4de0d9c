"""Running checks in several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

JOIN_LIMIT_S = 30.0
"""How long a thread may take, and a meeting of threads."""


def together(functions: Sequence[Callable[[], None]]) -> None:
    """Run functions in threads of their own, all starting at one moment; raise the first failure of any."""
    barrier = threading.Barrier(len(functions))
    failures: list[BaseException] = []

    def run(function: Callable[[], None]) -> None:
        try:
            barrier.wait()
            function()
        except BaseException as error:  # noqa: BLE001 - raised again below, in the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(JOIN_LIMIT_S)
    if failures:
        raise failures[0]
    if any(thread.is_alive() for thread in threads):
        raise AssertionError(f"a thread did not end within {JOIN_LIMIT_S:.0f} s")
