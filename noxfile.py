"""The sessions of the repository: `nox -s demo`, `nox -s tests`, and the parts of them. `nox --list` shows
all.

All sessions share one environment per torch (`.nox/torch-fl-…`): torch is large, and what one session built
the next one uses. It is made at first use and brought up to date when its inputs change; with nothing changed
a session starts at once.

Arguments after `--` go to the session. Of these, all sessions understand `--torch <version>` (also
TORCH_FL_TORCH; see tools/torch_choice.py) and `--allow-cuda` (TORCH_FL_ALLOW_CUDA=1).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import nox
from nox.command import CommandFailed

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from tools import torch_choice, wheels  # noqa: E402  (nox runs this file by path: the root is not on sys.path)

CACHE = ROOT / ".cache"
CORE = ROOT / "packages" / "torch-fl-core"
PACKAGES = sorted(p.parent for p in (ROOT / "packages").glob("torch-fl-*/pyproject.toml"))
PYTHON_TAG = f"py{sys.version_info[0]}.{sys.version_info[1]}"
#: The torch minors that core is made for, oldest first.
MINORS = ["2.10", "2.11", "2.12", "2.13", "2.14", "2.15"]

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["lint", "types", "unit", "abi", "conformance"]
nox.options.error_on_external_run = True


# --- the environment --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Environment:
    """A virtual environment with torch, the tools, and (unless `core` is None) the present core."""

    session: nox.Session
    place: Path
    torch: str
    arguments: tuple[str, ...]
    """The session's arguments, without those that chose the environment."""
    core: str | None = None

    @property
    def python(self) -> str:
        """Path of its Python."""
        return str(self.place / "bin" / "python")

    def run(self, *command: str | Path, env: dict[str, str] | None = None, silent: bool = False) -> str:
        """Run a command of this environment in the repository's root; returns what it printed, if
        `silent`.
        """
        variables = {
            "PATH": f"{self.place / 'bin'}:{os.environ['PATH']}",
            "VIRTUAL_ENV": str(self.place),
            **(env or {}),
        }
        own = (
            self.place / "bin" / str(command[0])
        )  # nox itself would look on the PATH that it was started with
        program = str(own) if own.exists() else str(command[0])
        out = self.session.run(program, *map(str, command[1:]), env=variables, external=True, silent=silent)
        return out if isinstance(out, str) else ""

    def python_module(self, *command: str | Path, env: dict[str, str] | None = None) -> None:
        """Run `python -m <command>`."""
        self.run(self.python, "-m", *command, env=env)


def parse(arguments: Sequence[str]) -> tuple[str | None, bool, tuple[str, ...]]:
    """Split a session's arguments into: the torch asked for, whether CUDA builds are allowed, and the
    rest.
    """
    asked = os.environ.get("TORCH_FL_TORCH") or None
    allow = os.environ.get("TORCH_FL_ALLOW_CUDA") == "1"
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--torch":
            asked = next(words, None)
        elif word.startswith("--torch="):
            asked = word.partition("=")[2]
        elif word == "--allow-cuda":
            allow = True
        else:
            rest.append(word)
    return asked, allow, tuple(rest)


def environment(
    session: nox.Session, *, core: bool = True, asked: str | None = None, place: Path | None = None
) -> Environment:
    """Return the environment of this session's torch, made or brought up to date first.

    Args:
        core: also build and install torch-fl-core as it is now.
        asked: a torch instead of the session's own.
        place: a folder instead of the shared one (for environments that are thrown away).
    Raises: NoTorchError, only where `place` is given; else a torch that is not to be had ends the session.
    """
    started = time.monotonic()
    from_arguments, allow_cuda, rest = parse(session.posargs)
    asked = asked or from_arguments
    name = "torch-fl" if asked is None else "torch-fl-" + hashlib.sha256(asked.encode()).hexdigest()[:8]
    shared = ROOT / ".nox" / f"{name}-{PYTHON_TAG}"
    place = place or shared
    python = place / "bin" / "python"
    stamp = place / "torch_fl.json"
    wanted = {
        "asked": asked,
        "tools": (ROOT / "requirements-dev.txt").read_text(),
        "interpreter": sys.version,
    }
    state = json.loads(stamp.read_text()) if stamp.exists() else {}
    if not python.exists() or any(state.get(key) != value for key, value in wanted.items()):
        stamp.unlink(missing_ok=True)
        session.run(sys.executable, "-m", "virtualenv", "--quiet", "--clear", str(place), external=True)
        try:
            version = get_torch(session, python, asked, allow_cuda)
        except torch_choice.NoTorchError as error:
            if place is not shared:
                raise
            session.error(str(error))
        pip = [str(python), "-m", "pip", "install", "--quiet", "-r", "requirements-dev.txt"]
        session.run(*pip, f"torch=={version}", external=True)
        state = {**wanted, "torch": version, "core": None}
        stamp.write_text(json.dumps(state))
    env = Environment(session, place, state["torch"], rest)
    if core:
        key, wheel = core_wheel(env)
        if state.get("core") != key:
            install(env, wheel)
            stamp.write_text(json.dumps({**state, "core": key}))
        env = dataclasses.replace(env, core=key)
    session.log(f"{place.relative_to(ROOT)}, torch {env.torch}: ready in {time.monotonic() - started:.1f} s")
    return env


def get_torch(session: nox.Session, python: Path, asked: str | None, allow_cuda: bool) -> str:
    """Install torch into the environment of `python` and return its version. The one place where torch is
    fetched.

    Raises: NoTorchError.
    """
    choice = torch_choice.choose(asked, torch_choice.pip_report(python), allow_cuda=allow_cuda)
    session.log(f"torch {choice.version}: {choice.reason}")
    session.run(str(python), "-m", "pip", "install", "--quiet", *choice.arguments, external=True)
    return choice.version


def core_wheel(env: Environment) -> tuple[str, Path]:
    """Return the key and the wheel of core as it is now, for the environment's torch; built if no such wheel
    is kept.
    """
    try:
        toolchain = wheels.toolchain_facts(dict(os.environ))
    except FileNotFoundError as error:
        env.session.error(str(error))
    key = wheels.content_key(CORE, [env.torch, *toolchain])

    def build(folder: Path) -> None:
        started = time.monotonic()
        # Kept: only what changed is compiled again. Inside the package and with paths relative to the
        # repository, so that ccache knows a file in a fresh clone.
        objects = CORE / "build" / f"{env.torch}-{PYTHON_TAG}"
        variables = {"TORCH_FL_BUILD_DIR": str(objects), "CCACHE_BASEDIR": str(ROOT)}
        pip = [env.python, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
        env.run(*pip, "-w", folder, CORE, env=variables)
        env.session.log(f"core built in {time.monotonic() - started:.0f} s")

    wheel, kept = wheels.cached_wheel(CACHE / "wheels" / key, build)
    env.session.log(
        f"core {wheel.name}, {wheel.stat().st_size / 2**20:.1f} MiB{', kept from before' if kept else ''}"
    )
    return key, wheel


def install(env: Environment, wheel: Path) -> None:
    """Install a wheel over whatever version is there; its requirements are installed already."""
    env.run(env.python, "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", str(wheel))


def chosen_packages(arguments: Sequence[str]) -> list[Path]:
    """Return the packages named in the arguments ("core", "metax" or the full name); all if none is."""
    names = [a for a in arguments if not a.startswith("-")]
    by_name = {p.name: p for p in PACKAGES} | {p.name.removeprefix("torch-fl-"): p for p in PACKAGES}
    unknown = [n for n in names if n not in by_name]
    if unknown:
        raise SystemExit(
            f"no such package: {', '.join(unknown)}. There are: {', '.join(p.name for p in PACKAGES)}"
        )
    return [by_name[n] for n in names] or PACKAGES


# --- what users run ---------------------------------------------------------------------------------------


@nox.session(python=False)
def demo(session: nox.Session) -> None:
    """Train a small GPT on `flagos` and on `cpu` side by side and compare them. `-- --help`: options."""
    env = environment(session)
    env.python_module("demo.train", *env.arguments)


@nox.session(python=False)
def tests(session: nox.Session) -> None:
    """Run everything that CI runs, building first. `-- <pytest arguments>` narrows the pytest part."""
    env = environment(session)
    failed: list[str] = []
    for part in (run_lint, run_types, run_gen, run_changelog, run_conformance):
        try:
            part(env)
        except CommandFailed:
            failed.append(part.__name__.removeprefix("run_"))
    # pytest comes last: its summary is what a reader of the log looks for. By file, since what a file's tests
    # compile they compile once.
    together = ["-n", str(min(os.cpu_count() or 1, 4)), "--dist", "loadfile", "tests", "packages"]
    try:
        env.python_module("pytest", *(env.arguments or together))
    except CommandFailed:
        failed.append("pytest")
    if failed:
        session.error(f"failed: {', '.join(failed)}")


# --- checks of sources ------------------------------------------------------------------------------------


def python_sources() -> list[str]:
    """Return the Python folders and files of the repository that the checks look at."""
    return ["noxfile.py", "run.py", "tools", "demo", "benchmarks", "tests", "packages"]


def cpp_sources() -> list[str]:
    """Return the C and C++ files of the repository, without the frozen headers."""
    made = {"build", ".nox", ".cache", "abi"}
    suffixes = {".h", ".hpp", ".cpp", ".c"}
    found: list[str] = []
    for folder, names, files in os.walk(ROOT):
        names[:] = [n for n in names if n not in made and not (Path(folder) / n).is_symlink()]
        found += [str(Path(folder, f).relative_to(ROOT)) for f in files if Path(f).suffix in suffixes]
    return sorted(found)


def run_lint(env: Environment, fix: bool = False) -> None:
    """Check (or mend) the style of Python and C++."""
    present = [p for p in python_sources() if (ROOT / p).exists()]
    env.run("ruff", "check", "--quiet", *(["--fix"] if fix else []), *present)
    env.run("ruff", "format", "--quiet", *([] if fix else ["--check"]), *present)
    env.run("clang-format", *(["-i"] if fix else ["--dry-run", "-Werror"]), *cpp_sources())


def run_types(env: Environment) -> None:
    """Check the types of everything that is installed or run by users."""
    targets = [str(p / "src") for p in PACKAGES] + ["noxfile.py", "run.py", "tools", "demo"]
    env.python_module("mypy", *[t for t in targets if (ROOT / t).exists()])


def run_gen(env: Environment) -> None:
    """Compare the generated pages and tables with what their generators make now."""
    env.python_module("tools.gen", "--check")


def run_changelog(env: Environment) -> None:
    """Check the change fragments of all packages."""
    env.python_module("tools.changes", "--check")


def run_conformance(env: Environment) -> None:
    """Run the HAL kit on the reference backend."""
    env.run("torch-fl-conformance", "reference")


def run_ops(env: Environment) -> None:
    """Run the part of the operator kit that is CI's, with device memory in the host's reach and out of it."""
    for fault in ("0", "1"):
        env.python_module(
            "torch_fl.testing.ops", "run", "--slice", "ci", env={"FLAGOS_REFERENCE_MEMORY_FAULT": fault}
        )


@nox.session(python=False)
def lint(session: nox.Session) -> None:
    """Check style: ruff, ruff format, clang-format. `-- --fix` mends what can be mended."""
    env = environment(session, core=False)
    run_lint(env, fix="--fix" in env.arguments)


@nox.session(python=False)
def types(session: nox.Session) -> None:
    """Check types: mypy, strict, on all Python that users install or run."""
    run_types(environment(session))


@nox.session(python=False)
def gen(session: nox.Session) -> None:
    """Make the generated pages (environment table, requirement ids, …). `-- --check` only compares."""
    env = environment(session)
    env.python_module("tools.gen", *env.arguments)


@nox.session(python=False)
def changelog(session: nox.Session) -> None:
    """Check the change fragments; `-- --draft <package>` prints the next section of its CHANGELOG."""
    env = environment(session, core=False)
    env.python_module("tools.changes", *(env.arguments or ["--check"]))


@nox.session(python=False)
def docs(session: nox.Session) -> None:
    """Check the documentation: links, included samples, generated pages, commands that exist."""
    env = environment(session)
    run_gen(env)
    env.python_module("pytest", "tests/repo/test_docs.py", *env.arguments)


# --- tests, in parts --------------------------------------------------------------------------------------


@nox.session(python=False)
def unit(session: nox.Session) -> None:
    """Run the tests of packages: all, or `-- <package>…` (core, metax, …); options go to pytest."""
    env = environment(session)
    folders: list[str] = []
    for package in chosen_packages(env.arguments):
        core_tests = ["tests/hal", "tests/runtime", "tests/python", "tests/ops", "tests/device"]
        folders += core_tests if package == CORE else [str(package / "tests")]
    options = [a for a in env.arguments if a.startswith("-")]
    env.python_module("pytest", *[f for f in folders if (ROOT / f).exists()], *options)


@nox.session(python=False)
def abi(session: nox.Session) -> None:
    """Check the HAL ABI: C99 and C++17, layout, frozen headers both ways, exports."""
    env = environment(session)
    files = [f"tests/hal/test_{name}.py" for name in ("abi", "loader", "hal_mirror", "support")]
    env.python_module("pytest", *files, *env.arguments)


@nox.session(python=False)
def headers(session: nox.Session) -> None:
    """Compile core without precompiled headers, warnings as errors: each file names what it uses."""
    env = environment(session, core=False)
    folder = CACHE / "build" / f"headers-{env.torch}-{PYTHON_TAG}"
    options = ["-DFLAGOS_PCH=OFF", "-DFLAGOS_WERROR=ON", f"-DFLAGOS_PYTHON={env.python}"]
    env.run("cmake", "-S", str(CORE), "-B", str(folder), "-G", "Ninja", *options)
    env.run("cmake", "--build", str(folder), "--", "-k", "0", *env.arguments)


@nox.session(python=False)
def conformance(session: nox.Session) -> None:
    """Run the HAL conformance kit on the reference backend, or `-- <backend or library>`."""
    env = environment(session)
    if env.arguments:
        env.run("torch-fl-conformance", *env.arguments)
    else:
        run_conformance(env)


@nox.session(python=False)
def ops(session: nox.Session) -> None:
    """Run the operator kit (OpInfo database against CPU): CI's part, or as `-- run --help` says."""
    env = environment(session)
    if env.arguments:
        env.python_module("torch_fl.testing.ops", *env.arguments)
    else:
        run_ops(env)


@nox.session(python=False)
def bench(session: nox.Session) -> None:
    """Run the benchmarks and compare them with their targets: see benchmarks/README.md."""
    env = environment(session)
    env.python_module("benchmarks.run", *env.arguments)


@nox.session(python=False)
def gpu(session: nox.Session) -> None:
    """Build, test and measure on a machine with a GPU: `-- --output <folder> [part…]`, see tools/gpu.py.

    Where nox is missing, `python3 tools/gpu.py` does the same with the Python that runs it.
    """
    env = environment(session, core=False)
    env.python_module("tools.gpu", *env.arguments)


@nox.session(python=False)
def sanitize(session: nox.Session) -> None:
    """Run HAL kit and stress tests under AddressSanitizer and ThreadSanitizer. `-- address`: one of them."""
    env = environment(session)
    env.python_module("tools.sanitize", *env.arguments)


@nox.session(python=False)
def integration(session: nox.Session) -> None:
    """Run the tests of the repository: demo, wheels, documentation, a vendor made from the template."""
    env = environment(session)
    env.python_module("pytest", "tests/repo", *env.arguments)


@nox.session(python=False)
def minors(session: nox.Session) -> None:
    """Build core for other torch minors and smoke-test it, in environments that are thrown away.

    `-- 2.10 2.12`: these; none: all. Where only CUDA builds are to be had, `--allow-cuda` takes them
    (gigabytes each).
    """
    _, _, arguments = parse(session.posargs)
    wanted = [a for a in arguments if not a.startswith("-")] or MINORS
    outcome: dict[str, str] = {}
    for minor in wanted:
        place = ROOT / ".nox" / f"minor-{minor}-{PYTHON_TAG}"
        try:
            env = environment(session, asked=minor, place=place)
            env.run(env.python, "tests/smoke.py")
            outcome[minor] = f"passed (torch {env.torch})"
        except CommandFailed:
            outcome[minor] = "FAILED"
        except torch_choice.NoTorchError as error:
            outcome[minor] = f"FAILED: {error}"
        finally:
            if "--keep" not in arguments:
                shutil.rmtree(place, ignore_errors=True)
    for minor, result in outcome.items():
        session.log(f"torch {minor}: {result}")
    if any(result.startswith("FAILED") for result in outcome.values()):
        session.error("not all minors passed")


# --- packages ---------------------------------------------------------------------------------------------


@nox.session(python=False)
def build(session: nox.Session) -> None:
    """Build the wheels of packages into dist/: all, or `-- <package>…`."""
    env = environment(session, core=False)
    (ROOT / "dist").mkdir(exist_ok=True)
    for package in chosen_packages(env.arguments):
        wheel = core_wheel(env)[1] if package == CORE else vendor_wheel(env, package)
        shutil.copy2(wheel, ROOT / "dist")
        session.log(f"dist/{wheel.name}")


def vendor_wheel(env: Environment, package: Path) -> Path:
    """Return the wheel of a vendor's package as it is now."""
    headers = wheels.content_key(CORE / "include", [])  # a vendor's wheel is built against them
    key = wheels.content_key(package, [PYTHON_TAG, headers])

    def build(folder: Path) -> None:
        pip = [env.python, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
        env.run(*pip, "-w", folder, package)

    return wheels.cached_wheel(CACHE / "wheels" / key, build)[0]


@nox.session(python=False)
def wheelcheck(session: nox.Session) -> None:
    """Check the wheels: content, tags, size, installs side by side, and that `import torch` stays quiet."""
    env = environment(session)
    env.python_module("pytest", "tests/repo/test_wheels.py", *env.arguments)


@nox.session(python=False)
def new(session: nox.Session) -> None:
    """Make a vendor's package from packages/_template: `-- <vendor>`, a lower-case name."""
    _, _, arguments = parse(session.posargs)
    session.run(sys.executable, "-m", "tools.new_vendor", *arguments, external=True)
