"""What holds for every vendor package; the file is the same in all of them."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
MODULE = next((PACKAGE / "src").glob("torch_fl_*")).name
VENDOR = MODULE.removeprefix("torch_fl_")


def run(code: str) -> str:
    """Return what a fresh interpreter with this package on its path prints."""
    path = f"import sys; sys.path.insert(0, {str(PACKAGE / 'src')!r}); "
    done = subprocess.run([sys.executable, "-W", "error", "-c", path + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_description_is_made_without_torch_and_names_this_vendor() -> None:
    spec = f"import {MODULE}; spec = {MODULE}.backend(); "
    assert run(spec + "print(spec.name, 'torch' in sys.modules, spec.library.name)").split() == [
        VENDOR,
        "False",
        f"libflagos_hal_{VENDOR}.so",
    ]


def test_a_package_without_a_library_says_so_and_one_with_sources_does_not() -> None:
    code = f"import {MODULE}; print(repr({MODULE}.backend().unavailable_reason))"
    reason = run(code).strip()
    if (PACKAGE / "csrc").exists():
        assert reason == "None"
    else:
        assert "torch-fl-" + VENDOR in reason
        assert "HAL library" in reason


def test_the_device_nodes_to_look_for_are_absolute() -> None:
    code = f"import {MODULE}; print('\\n'.join({MODULE}.backend().probe_paths))"
    paths = run(code).split()
    assert paths
    assert all(path.startswith("/dev/") for path in paths)


def test_the_entry_point_is_the_function_that_describes_the_backend() -> None:
    text = (PACKAGE / "pyproject.toml").read_text(encoding="utf-8")
    assert f'[project.entry-points."torch_fl.backends"]\n{VENDOR} = "{MODULE}:backend"\n' in text
    entry = importlib.metadata.EntryPoint(VENDOR, f"{MODULE}:backend", "torch_fl.backends")
    assert entry.module == MODULE
