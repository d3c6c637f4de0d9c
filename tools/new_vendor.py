"""Makes a vendor's package from packages/_template, and checks that the packages still agree with it.

python -m tools.new_vendor <vendor> [--to <folder>] [--description <sentence>]
python -m tools.new_vendor --check
"""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "packages" / "_template"

#: What must be equal in every vendor package; `{vendor}` is its name. The rest of a package is its own.
EQUAL = (
    "LICENSE",
    "changes/README.md",
    "hatch_build.py",
    "pyproject.toml",
    "src/torch_fl_{vendor}/py.typed",
    "tests/test_package.py",
)
#: Likewise, in packages that have a HAL library.
EQUAL_WITH_LIBRARY = ("CMakeLists.txt", "tests/test_hal.py")


class VendorNameError(SystemExit):
    """The name cannot be a vendor's; the text says why."""


def checked_name(vendor: str) -> str:
    """Return the name if it can be a backend's, a module's and a distribution's. Raises: VendorNameError."""
    if not re.fullmatch(r"[a-z][a-z0-9]*", vendor) or keyword.iskeyword(vendor):
        raise VendorNameError(
            f"{vendor!r} is no vendor's name: use lower-case letters and digits, a letter first"
        )
    if vendor in ("core", "reference"):
        raise VendorNameError(f"{vendor!r} is taken by torch-fl-core")
    return vendor


def render(text: str, vendor: str, description: str) -> str:
    """Return a template's text, or path, for one vendor."""
    text = text.replace("__vendor__", vendor).replace("__VENDOR__", vendor.upper())
    return text.replace("__description__", description)


def template_files() -> list[Path]:
    """Return the template's files, relative to it."""
    made = {"__pycache__", "build", "dist"}
    files = (p.relative_to(TEMPLATE) for p in TEMPLATE.rglob("*") if p.is_file())
    return sorted(p for p in files if not made & set(p.parts))


def make(vendor: str, folder: Path, description: str) -> list[Path]:
    """Write a package for `vendor` into `folder`, which must not exist; returns the files written."""
    checked_name(vendor)
    if folder.exists():
        raise SystemExit(f"{folder} exists already")
    written: list[Path] = []
    for source in template_files():
        target = folder / render(source.as_posix(), vendor, description)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(
            render((TEMPLATE / source).read_text(encoding="utf-8"), vendor, description), encoding="utf-8"
        )
        written.append(target)
    return written


def description_of(package: Path) -> str:
    """Return the description in a package's pyproject.toml."""
    found = re.search(
        r'^description = "(.*)"$', (package / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    return found[1] if found else ""


def differences(packages: list[Path]) -> list[str]:
    """Return one line per file of a vendor package that should equal the template's and does not."""
    found: list[str] = []
    for package in packages:
        vendor = package.name.removeprefix("torch-fl-")
        names = EQUAL + (EQUAL_WITH_LIBRARY if (package / "csrc").exists() else ())
        for name in names:
            source = TEMPLATE / name.replace("{vendor}", "__vendor__")
            target = package / name.replace("{vendor}", vendor)
            wanted = render(source.read_text(encoding="utf-8"), vendor, description_of(package))
            if not target.exists():
                found.append(f"{target.relative_to(package.parent)} is missing")
            elif target.read_text(encoding="utf-8") != wanted:
                found.append(
                    f"{target.relative_to(package.parent)} differs from the template's {source.name}"
                )
    return found


def vendor_packages(folder: Path = ROOT / "packages") -> list[Path]:
    """Return the folders of the vendor packages."""
    return sorted(
        p.parent for p in folder.glob("torch-fl-*/pyproject.toml") if p.parent.name != "torch-fl-core"
    )


def main(arguments: list[str]) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="nox -s new --", description="Make a vendor's package from the template."
    )
    parser.add_argument("vendor", nargs="?", help="lower-case name of the backend")
    parser.add_argument("--to", type=Path, help="folder of the package (packages/torch-fl-<vendor>)")
    parser.add_argument("--description", help="one sentence for the package's metadata, without a full stop")
    parser.add_argument("--check", action="store_true", help="compare the vendor packages with the template")
    options = parser.parse_args(arguments)
    if options.check:
        found = differences(vendor_packages())
        print("\n".join(found) or "all vendor packages agree with the template")
        return 1 if found else 0
    if options.vendor is None:
        parser.error("name the vendor: nox -s new -- <vendor>")
    vendor = checked_name(options.vendor)
    folder = (options.to or ROOT / "packages" / f"torch-fl-{vendor}").resolve()
    written = make(vendor, folder, options.description or f"The {vendor} backend of torch-fl")
    print(f"{folder}: {len(written)} files. Next, as docs/porting.md tells:")
    print("  1. csrc/symbols.def: the functions of the SDK;  csrc/hal.cpp: how they are called")
    print(f"  2. src/torch_fl_{vendor}/__init__.py: device nodes, aliases")
    print(f"  3. pip install --no-build-isolation {folder}")
    print(f"  4. torch-fl-conformance {vendor} --quirks {folder}/tests/quirks.py")
    print("  nox -s lint -- --fix formats it: how long lines are depends on the name")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
