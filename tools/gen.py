"""Makes the generated pages, or with --check says which differ from what their sources give now.

`python -m tools.gen [--check]`, in an environment with core installed. Pages made from results of runs
(operators, benchmarks) are not among them: they change only when the runs are repeated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def _from(module: str, function: str) -> Callable[[], str]:
    def make() -> str:
        text = getattr(import_module(module), function)()
        assert isinstance(text, str)
        return text

    return make


#: Page → the function that makes its text.
PAGES: dict[str, Callable[[], str]] = {
    "docs/device-module.md": _from("torch_fl.flagos._page", "page"),
    "docs/env.md": _from("torch_fl_base._env_page", "page"),
    "docs/hal/requirements.md": _from("torch_fl_base.testing.kit.requirements", "render"),
}


def outdated(root: Path, pages: Mapping[str, Callable[[], str]]) -> dict[str, str]:
    """Return the pages that differ from what is made now, with the text they should have."""
    made = {name: make() for name, make in pages.items()}
    return {
        name: text
        for name, text in made.items()
        if not (root / name).is_file() or (root / name).read_text(encoding="utf-8") != text
    }


def main(arguments: list[str]) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="nox -s gen --", description="Make the generated pages.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a page is out of date")
    options = parser.parse_args(arguments)
    stale = outdated(ROOT, PAGES)
    for name, text in stale.items():
        if options.check:
            print(f"{name} is out of date: run nox -s gen", file=sys.stderr)
        else:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(text, encoding="utf-8")
            print(f"{name} made anew")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
