"""The process in which one test of the reference HAL runs (see conftest.py)."""

from __future__ import annotations

import importlib.util
import json
import sys

from torch_fl_base._hal import load


def main() -> None:
    order = json.loads(sys.argv[1])
    spec = importlib.util.spec_from_file_location("reference_tests", order["file"])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    hal = load("reference", order["library"])
    if order["initialise"]:
        hal.system.init()
    getattr(module, order["function"])(hal, **order["parameters"])


if __name__ == "__main__":
    main()
