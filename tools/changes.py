"""The change fragments of the packages: `changes/<issue>[-<word>].<kind>.md`, one line each.

python -m tools.changes --check          all fragments are well formed, and every package has a CHANGELOG
python -m tools.changes --draft core     the section that a release of this package would add to its CHANGELOG
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("added", "changed", "fixed", "removed", "deprecated")
_NAME = re.compile(rf"(\d+)(-[a-z0-9-]+)?\.({'|'.join(KINDS)})\.md")
#: Words that begin a description of what was done, not an imperative.
_PAST = re.compile(r"[A-Z][a-z]+(ed|s|ing)\b")
_NOT_PAST = {"Embed", "Pass", "Process", "Bring", "Need", "Address", "Express", "Focus", "Compress"}


@dataclass(frozen=True)
class Fragment:
    """One change of a package."""

    issue: int
    kind: str
    text: str


def packages(root: Path = ROOT) -> list[Path]:
    """Return the folders of all packages."""
    return sorted(p.parent for p in (root / "packages").glob("torch-fl-*/pyproject.toml"))


def fragments(package: Path) -> tuple[list[Fragment], list[str]]:
    """Return the fragments of a package, and one complaint per fragment that is not well formed."""
    found: list[Fragment] = []
    complaints: list[str] = []
    for file in sorted((package / "changes").glob("*")):
        if file.name == "README.md":
            continue
        where = f"{package.name}/changes/{file.name}"
        name = _NAME.fullmatch(file.name)
        if name is None:
            complaints.append(f"{where}: the name is not <issue>.<{'|'.join(KINDS)}>.md")
            continue
        text = file.read_text(encoding="utf-8")
        line = text.strip()
        first = line.partition(" ")[0]
        if not line or "\n" in line or not text.endswith("\n"):
            complaints.append(f"{where}: it must have exactly one line")
        elif not line[0].isupper() or (_PAST.match(line) and first not in _NOT_PAST):
            complaints.append(f"{where}: write it in the imperative (“Add …”, not {first!r})")
        else:
            found.append(Fragment(int(name[1]), name[3], line))
    return found, complaints


def check(root: Path = ROOT) -> list[str]:
    """Return all complaints about all packages."""
    complaints: list[str] = []
    for package in packages(root):
        complaints += fragments(package)[1]
        if not (package / "CHANGELOG.md").exists():
            complaints.append(f"{package.name}: there is no CHANGELOG.md")
    return complaints


def draft(package: Path) -> str:
    """Return the section for a package's CHANGELOG that its fragments make."""
    found, complaints = fragments(package)
    if complaints:
        raise SystemExit("\n".join(complaints))
    lines = ["## <version>, <date>", ""]
    for kind in KINDS:
        entries = [f for f in found if f.kind == kind]
        if entries:
            lines += [f"### {kind.capitalize()}", ""]
            lines += [f"- {f.text.rstrip('.')} (issue {f.issue})." for f in entries] + [""]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="nox -s changelog --", description="Check or use the change fragments."
    )
    parser.add_argument(
        "--check", action="store_true", help="complain about fragments that are not well formed"
    )
    parser.add_argument(
        "--draft", metavar="PACKAGE", help="print the next section of this package's CHANGELOG"
    )
    options = parser.parse_args(arguments)
    if options.draft:
        by_name = {p.name.removeprefix("torch-fl-"): p for p in packages()}
        package = by_name.get(options.draft.removeprefix("torch-fl-"))
        if package is None:
            parser.error(f"no package {options.draft!r}; there are: {', '.join(by_name)}")
        print(draft(package))
        return 0
    complaints = check()
    print("\n".join(complaints) or "all change fragments are well formed")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
