"""How large things are: core's wheel and libraries, the template of a HAL in lines."""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures import Figure

METHOD = "Bytes of files as built in this environment; lines of the template without blank ones and comments."
ROOT = Path(__file__).resolve().parent.parent


def _code_lines(path: Path) -> int:
    """Return the lines of a C++ file that are neither blank nor comment."""
    count, inside = 0, False
    for raw in path.read_text(encoding="utf-8").splitlines():
        line = raw.strip()
        if inside or line.startswith("/*"):
            inside = "*/" not in line
        elif line and not line.startswith("//"):
            count += 1
    return count


def measure(*, quick: bool = False) -> list[Figure]:
    """Return sizes; what was not built yet is left out."""
    import torch_fl
    import torch_fl_base

    found = []
    wheels = sorted(ROOT.glob(".cache/wheels/*/torch_fl_core-*.whl"), key=lambda path: path.stat().st_mtime)
    wheels += sorted((ROOT / "dist").glob("torch_fl_core-*.whl"), key=lambda path: path.stat().st_mtime)
    if wheels:
        newest = max(wheels, key=lambda path: path.stat().st_mtime)
        found.append(
            Figure("core wheel", newest.stat().st_size / 1e6, "MB", 25.0, details={"file": newest.name})
        )
    for package in (torch_fl, torch_fl_base):
        assert package.__file__ is not None
        for library in sorted(Path(package.__file__).parent.rglob("*.so")):
            found.append(Figure(library.name.split(".")[0], library.stat().st_size / 1e6, "MB"))
    sources = sorted((ROOT / "packages" / "_template").rglob("csrc/*.[ch]pp"))
    if sources:
        lines = {path.name: _code_lines(path) for path in sources}
        found.append(
            Figure(
                "template's HAL, code",
                sum(lines.values()),
                "lines",
                250.0,
                details={k: f"{v}" for k, v in lines.items()},
            )
        )
    return found
