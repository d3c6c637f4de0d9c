"""The documentation: links lead somewhere, names that it uses exist, samples run."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.new_vendor import template_files

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]
PAGES = sorted(
    p
    for p in [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "packages").glob("torch-fl-*/*.md"),
        *(ROOT / "demo").rglob("*.md"),
    ]
)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    broken = []
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http:", "https:")) and not (page.parent / target).exists():
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_sessions_that_are_named_exist(page: Path) -> None:
    sessions = set(
        re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE)
    )
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"nox -s ([a-z]+)", text)) | set(re.findall(r"run\.py ([a-z]+)", text))
    assert named <= sessions


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_of_the_repository_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:packages|docs|tests|tools|demo|benchmarks)/[\w./-]+)`", text))
    assert [name for name in named if not (ROOT / name).exists() and "acme" not in name] == []


def test_every_page_of_docs_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = [
        p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md") if p.name != "index.md"
    ]
    assert [page for page in pages if f"({page})" not in index] == []


def python_samples() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for number, code in enumerate(
            re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        ):
            found.append((f"{page.relative_to(ROOT)}[{number}]", code))
    return found


@pytest.mark.parametrize(("where", "code"), python_samples(), ids=[where for where, _ in python_samples()])
def test_python_samples_run(where: str, code: str, python: Run) -> None:
    python(code)


def test_states_of_a_backend_are_all_explained() -> None:
    from torch_fl_base.discovery import State

    text = (ROOT / "docs" / "not-loading.md").read_text(encoding="utf-8")
    assert [state.value for state in State if f"| {state.value} |" not in text] == []


def test_the_porting_guide_tells_the_true_size_of_the_template() -> None:
    lines = sum(
        len((ROOT / "packages" / "_template" / file).read_text(encoding="utf-8").splitlines())
        for file in template_files()
        if file.parts[0] == "csrc"
    )
    for page in ("docs/porting.md", "README.md"):
        told = re.search(r"about (\d+) lines", (ROOT / page).read_text(encoding="utf-8"))
        assert told is not None
        assert abs(int(told[1]) - lines) <= 15


def test_core_names_no_vendor_in_its_c_and_cpp() -> None:
    vendors = "nvidia|ascend|hygon|metax|thead|mthreads|musa|enflame|kunlunxin|cann|maca"
    found = []
    for folder in ("csrc", "include"):
        for file in (ROOT / "packages" / "torch-fl-core" / folder).rglob("*"):
            if file.suffix in (".h", ".hpp", ".cpp", ".def"):
                for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                    code = "" if line.lstrip().startswith("*") else re.split(r"//|/\*", line)[0]
                    if re.search(rf"\b({vendors})\b", code, re.IGNORECASE):
                        found.append(f"{file.name}:{number}: {line.strip()}")
    assert found == []
