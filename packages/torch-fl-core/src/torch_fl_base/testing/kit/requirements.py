"""The table of the HAL's requirements and their tests, docs/hal/requirements.md, made from hal.h and the kit.

`python -m torch_fl_base.testing.kit.requirements [--check] FILE` writes the file, or says that it is out of
date.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from torch_fl_base._hal_header import Requirement, header
from torch_fl_base.testing.kit.catalogue import coverage

_HEAD = """\
<!-- Made from hal.h, hal_members.def and the conformance kit by `nox -s gen`. Do not edit. -->

# Requirements of HAL ABI {abi}

What a HAL library must do, and the conformance tests that check it. The full text of each requirement stands
in [hal.h](../../packages/torch-fl-core/include/flagos/hal.h). A library is tested with
`torch-fl-conformance <backend or library.so>`; `--filter <id or test>` chooses.

{count} requirements, {tests} tests. Tests ask for capabilities: where a library lacks one, they are skipped
and say what is missing.
"""

_GROUPS = {"": "Rules for the whole interface", "flagos_hal_query": "The entry point"}


def render() -> str:
    """Return the page."""
    known = header()
    tests = coverage()
    number = len({name for names in tests.values() for name in names})
    abi = f"{known.abi[0]}.{known.abi[1]}"
    parts = [_HEAD.format(abi=abi, count=len(known.requirements), tests=number)]
    section = None
    for entry in known.requirements.values():
        title = _section(entry)
        if title != section:
            section = title
            parts.append(f"\n## {title}\n")
            parts.append("| id | function | requirement | since | tests |\n|---|---|---|---|---|")
        parts.append(_row(entry, tests[entry.id]))
    return "\n".join(parts) + "\n"


def _section(entry: Requirement) -> str:
    group = entry.function.partition(".")[0]
    if group in _GROUPS:
        return _GROUPS[group]
    return f"Group {group} ({'optional' if group in header().optional_groups else 'required'})"


def _row(entry: Requirement, tests: list[str]) -> str:
    # Cells of a table must stay on one line and must not contain its separator.
    sentence = entry.sentence.replace("|", "\\|").replace("<", "&lt;")
    group = entry.function.partition(".")[0]
    function = f"`{entry.function}`" if entry.function else ""
    if entry.optional and group not in header().optional_groups:
        function += " (optional)"
    names = "<br>".join(f"`{name.removeprefix('test_')}`" for name in dict.fromkeys(tests)) or "none"
    return f"| {entry.id} | {function} | {sentence} | {entry.since} | {names} |"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page, or with --check compare.

    Returns: 0, or 1 if the file is out of date or a requirement has no test.
    """
    parser = argparse.ArgumentParser(
        description="Make docs/hal/requirements.md from hal.h and the conformance kit."
    )
    parser.add_argument("file", type=Path)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail if the file is out of date"
    )
    options = parser.parse_args(argv)
    untested = [identifier for identifier, names in coverage().items() if not names]
    if untested:
        print(f"without a test: {', '.join(untested)}", file=sys.stderr)
        return 1
    text = render()
    if options.check:
        current = options.file.read_text(encoding="utf-8") if options.file.is_file() else ""
        if current != text:
            print(f"{options.file} is out of date: run it without --check", file=sys.stderr)
            return 1
        return 0
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
