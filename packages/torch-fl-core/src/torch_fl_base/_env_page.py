"""The page docs/env.md, made from the table of variables: `python -m torch_fl_base._env_page <file>
[--check]`."""

from __future__ import annotations

import sys
from pathlib import Path

from torch_fl_base._env import VARIABLES

_HEAD = """\
# Environment variables

Made from `torch_fl_base/_env.py` by `nox -s gen`; do not edit. A variable that is unset or empty has its
default. A value that is not allowed is an error at `import torch_fl`, or at the first use of the device where
`import torch` made it known; `python -m torch_fl.doctor` lists all of them, and names that look misspelt.

| variable | type | default | allowed | what it does |
|---|---|---|---|---|
"""


def page() -> str:
    """Return the text of docs/env.md."""
    rows = [
        f"| `{v.name}` | {v.kind} | {v.shown_default} | {v.allowed} | {v.sentence}"
        f"{'' if v.reader == 'core' else f' Read by {v.reader} when it is opened.'} |\n"
        for v in VARIABLES
    ]
    return _HEAD + "".join(rows)


def main(arguments: list[str]) -> int:
    """Write the page, or with --check compare it; 1 and one line if it differs."""
    check = "--check" in arguments
    paths = [Path(argument) for argument in arguments if argument != "--check"]
    if len(paths) != 1:
        print("usage: python -m torch_fl_base._env_page <docs/env.md> [--check]", file=sys.stderr)
        return 2
    if not check:
        paths[0].write_text(page(), encoding="utf-8")
        return 0
    if paths[0].is_file() and paths[0].read_text(encoding="utf-8") == page():
        return 0
    print(f"{paths[0]} differs from the table in torch_fl_base/_env.py: run nox -s gen", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
