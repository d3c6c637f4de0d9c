"""Runs the kit's tests that match a pattern on one library, in this one process, until the first that fails.

Faster than pytest where hundreds of broken libraries are to be shown to the kit, one after the other.
Arguments: library, patterns parted by blanks. Prints JSON lines: {"started": name}, then {"failed": name,
"message": text} for the first failure, and at the end {"ran": number}. A test that takes the process down has
been started and is not followed by anything.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from torch_fl_base.testing.kit import gate
from torch_fl_base.testing.kit.bench import Bench
from torch_fl_base.testing.kit.catalogue import every_test
from torch_fl_base.testing.kit.checks import Skipped, marks, requirement
from torch_fl_base.testing.kit.child import Target, run_isolated
from torch_fl_base.testing.kit.quirks import Exemption, Quirks


def say(**line: object) -> None:
    print(json.dumps(line), flush=True)


def main() -> None:
    library, *patterns = sys.argv[1:]
    gate.PATIENCE_S = 2.0
    target = Target(library)
    hal = target.open()
    initialised = False
    ran = 0
    for function in every_test():
        mark = marks(function)
        identifiers = (requirement(function.__name__), *mark.also)
        for index, values in enumerate(mark.cases or [()]):
            name = f"{function.__name__}[{mark.ids[index]}]" if mark.cases else function.__name__
            if not any(Exemption(pattern, "chosen", "").covers(name, identifiers) for pattern in patterns):
                continue
            case: dict[str, Any] = dict(zip(mark.names, values, strict=True))
            say(started=name)
            try:
                if mark.isolated:
                    run_isolated(target, function.__module__, function.__name__, case)
                else:
                    if not initialised:
                        hal.system.init()
                        initialised = True
                    bench = Bench(hal, Quirks())
                    try:
                        function(bench, **case)
                    finally:
                        bench.close()
                ran += 1
            except Skipped:
                pass
            except Exception as error:  # noqa: BLE001 - any failure is what the caller waits for
                say(failed=name, message=f"{type(error).__name__}: {error}")
                return
    say(ran=ran)


if __name__ == "__main__":
    main()
    os._exit(0)  # a broken library need not survive what its failed test left behind
