"""The tools of the sessions: wheels by content, change fragments, generated pages; and the sessions."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import changes, gen, wheels

ROOT = Path(__file__).resolve().parents[2]


def make_package(folder: Path) -> Path:
    package = folder / "package"
    (package / "src" / "name").mkdir(parents=True)
    (package / "pyproject.toml").write_text("[project]\n")
    (package / "src" / "name" / "__init__.py").write_text("x = 1\n")
    return package


def test_the_key_of_a_wheel_follows_sources_and_facts(tmp_path: Path) -> None:
    package = make_package(tmp_path)
    key = wheels.content_key(package, ["torch 2.13.0"])
    assert wheels.content_key(package, ["torch 2.13.0"]) == key
    assert wheels.content_key(package, ["torch 2.13.1"]) != key
    (package / "src" / "name" / "__init__.py").write_text("x = 2\n")
    changed = wheels.content_key(package, ["torch 2.13.0"])
    assert changed != key
    (package / "src" / "name" / "more.py").write_text("")
    assert wheels.content_key(package, ["torch 2.13.0"]) not in (key, changed)


@pytest.mark.parametrize(
    "made", ["build/x.o", "src/name/_C.so", "src/name/__pycache__/a.pyc", "src/n.egg-info/PKG-INFO"]
)
def test_what_builds_leave_behind_does_not_change_the_key(tmp_path: Path, made: str) -> None:
    package = make_package(tmp_path)
    key = wheels.content_key(package, [])
    (package / made).parent.mkdir(parents=True, exist_ok=True)
    (package / made).write_text("made")
    assert wheels.content_key(package, []) == key


def test_a_wheel_is_built_once_for_one_content(tmp_path: Path) -> None:
    calls = []

    def build(folder: Path) -> None:
        calls.append(folder)
        (folder / "name-1.whl").write_text("wheel")

    first, kept = wheels.cached_wheel(tmp_path / "key", build)
    assert (first.read_text(), kept) == ("wheel", False)
    assert wheels.cached_wheel(tmp_path / "key", build) == (first, True)
    assert len(calls) == 1


def test_a_build_that_breaks_off_leaves_nothing_that_is_trusted_later(tmp_path: Path) -> None:
    def breaks(folder: Path) -> None:
        (folder / "half.whl").write_text("half")
        raise KeyboardInterrupt

    def works(folder: Path) -> None:
        (folder / "whole.whl").write_text("whole")

    with pytest.raises(KeyboardInterrupt):
        wheels.cached_wheel(tmp_path / "key", breaks)
    wheel, kept = wheels.cached_wheel(tmp_path / "key", works)
    assert (wheel.name, kept) == ("whole.whl", False)


def test_a_missing_compiler_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no C\\+\\+ compiler: no-such-compiler is not on PATH"):
        wheels.toolchain_facts({"CXX": "no-such-compiler"})


def package_with_fragment(root: Path, name: str, text: str) -> None:
    package = root / "packages" / "torch-fl-acme"
    (package / "changes").mkdir(parents=True)
    (package / "pyproject.toml").write_text("")
    (package / "CHANGELOG.md").write_text("")
    (package / "changes" / name).write_text(text)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("2.added.md", "Add a thing\n", None),
        ("2-thing.fixed.md", "Keep the stream of a copy\n", None),
        ("thing.added.md", "Add a thing\n", "the name is not"),
        ("2.new.md", "Add a thing\n", "the name is not"),
        ("2.added.md", "", "exactly one line"),
        ("2.added.md", "Add a thing", "exactly one line"),
        ("2.added.md", "Add a thing\nand more\n", "exactly one line"),
        ("2.added.md", "added a thing\n", "imperative"),
        ("2.added.md", "Added a thing\n", "imperative"),
        ("2.added.md", "Adds a thing\n", "imperative"),
    ],
)
def test_a_change_is_one_line_in_the_imperative(
    tmp_path: Path, name: str, text: str, complaint: str | None
) -> None:
    package_with_fragment(tmp_path, name, text)
    found = changes.check(tmp_path)
    assert ([] if complaint is None else [complaint in line for line in found]) == [True] * len(found)
    assert bool(found) is (complaint is not None)


def test_a_draft_groups_the_changes_by_kind(tmp_path: Path) -> None:
    package_with_fragment(tmp_path, "2.fixed.md", "Keep a thing\n")
    package = tmp_path / "packages" / "torch-fl-acme"
    (package / "changes" / "3.added.md").write_text("Add a thing\n")
    text = changes.draft(package)
    assert text.index("### Added") < text.index("- Add a thing (issue 3).") < text.index("### Fixed")


def test_the_change_fragments_of_the_repository_are_well_formed() -> None:
    assert changes.check(ROOT) == []


def test_a_page_that_differs_or_is_missing_is_out_of_date(tmp_path: Path) -> None:
    (tmp_path / "same.md").write_text("text")
    (tmp_path / "other.md").write_text("old")
    pages = {"same.md": lambda: "text", "other.md": lambda: "new", "missing.md": lambda: "new"}
    assert gen.outdated(tmp_path, pages) == {"other.md": "new", "missing.md": "new"}


def test_the_generated_pages_are_up_to_date() -> None:
    assert list(gen.outdated(ROOT, gen.PAGES)) == []


def test_every_session_has_a_docstring_and_a_body() -> None:
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    sessions = [
        n
        for n in tree.body
        if isinstance(n, ast.FunctionDef)
        and "session" in ast.dump(n.decorator_list[0] if n.decorator_list else ast.Pass())
    ]
    assert {"demo", "tests", "lint", "types", "unit", "abi", "conformance", "ops", "minors"} <= {
        n.name for n in sessions
    }
    for session in sessions:
        assert ast.get_docstring(session), f"{session.name} says nothing"
        assert len(session.body) > 1, f"{session.name} does nothing"


def run_py(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})


def test_run_py_lists_the_sessions() -> None:
    done = run_py()
    assert done.returncode == 0, done.stderr
    assert "python3 run.py demo" in done.stdout
    assert "Train a small GPT" in done.stdout


def test_run_py_needs_only_the_standard_library_to_start() -> None:
    imported = {
        name.name.partition(".")[0]
        for node in ast.walk(ast.parse((ROOT / "run.py").read_text(encoding="utf-8")))
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert imported <= set(sys.stdlib_module_names)


def test_ci_runs_what_the_readme_calls_the_test_command() -> None:
    assert "python3 run.py tests" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "python3 run.py tests" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize("separator", [[], ["--"]])
def test_run_py_takes_arguments_with_or_without_the_separator(separator: list[str]) -> None:
    done = run_py("new", *separator, "Not-A-Name")
    assert done.returncode != 0
    assert "'Not-A-Name' is no vendor's name" in done.stdout + done.stderr
