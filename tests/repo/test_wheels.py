"""The wheels: what is in them, and what happens where they are installed."""

from __future__ import annotations

import email
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.new_vendor import vendor_packages

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def vendor_wheels(build_wheel: Callable[[Path], Path]) -> dict[str, Path]:
    """All vendor wheels, by vendor."""
    return {package.name.removeprefix("torch-fl-"): build_wheel(package) for package in vendor_packages()}


@pytest.fixture(scope="module")
def with_all_vendors(
    vendor_wheels: dict[str, Path],
    install_wheel: Callable[[Path, Path], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    """The environment variables under which all vendor packages are installed beside core."""
    site = tmp_path_factory.mktemp("site")
    for wheel in vendor_wheels.values():
        install_wheel(wheel, site)
    return {"PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}"}


def core_files() -> list[importlib.metadata.PackagePath]:
    files = importlib.metadata.files("torch-fl-core")
    if not files or not any(str(file).endswith(".so") for file in files):
        pytest.skip("core is not installed from a wheel here (an editable or in-place build)")
    return files


def test_core_brings_its_libraries_and_the_headers_and_no_sources() -> None:
    names = [str(file) for file in core_files()]
    for wanted in (
        r"torch_fl/_C\.cpython-.*\.so",
        r"torch_fl/lib/libtorch_fl\.so",
        r"torch_fl_base/lib/libflagos_hal_reference\.so",
        r"torch_fl_base/include/flagos/hal\.h",
        r"torch_fl_base/include/flagos/hal_support/exports\.map",
        r"torch_fl_base/compatibility\.json",
        r"torch_fl/py\.typed",
        r"torch_fl_base/py\.typed",
        r"torch_fl/_C\.pyi",
    ):
        assert any(re.fullmatch(wanted, name) for name in names), wanted
    assert not [name for name in names if name.endswith((".cpp", ".o", "CMakeLists.txt"))]
    assert {name.partition("/")[0] for name in names if name.endswith(".py")} == {"torch_fl", "torch_fl_base"}


def test_core_is_at_most_25_megabytes() -> None:
    size = sum(Path(str(file.locate())).stat().st_size for file in core_files())
    assert size <= 25e6, f"{size / 1e6:.1f} MB unpacked"


def test_core_is_named_for_its_torch_and_pins_it(python: Run) -> None:
    torch_version = python("import torch; print(torch.__version__)").stdout
    minor = ".".join(torch_version.split(".")[:2])
    assert importlib.metadata.version("torch-fl-core").startswith(minor + ".")
    requires = importlib.metadata.requires("torch-fl-core") or []
    assert f"torch=={minor}.*" in requires


def test_cores_libraries_remember_no_folder_they_were_built_in() -> None:
    for file in core_files():
        if str(file).endswith(".so"):
            dynamic = subprocess.run(
                ["readelf", "-d", str(file.locate())], capture_output=True, text=True, check=True
            ).stdout
            paths = re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic)
            assert set(paths) <= {"$ORIGIN", "$ORIGIN/lib"}, f"{file}: {paths}"
            assert "cuda" not in dynamic


def test_cores_torch_libraries_share_the_cxx_library_with_torch() -> None:
    libraries = [f for f in core_files() if re.search(r"torch_fl/(lib/libtorch_fl|_C\.).*\.so$", str(f))]
    assert len(libraries) == 2
    for file in libraries:
        dynamic = subprocess.run(
            ["readelf", "-d", str(file.locate())], capture_output=True, text=True, check=True
        ).stdout
        assert "libstdc++.so.6" in dynamic
        defined = subprocess.run(
            ["nm", "-DC", "--defined-only", str(file.locate())], capture_output=True, text=True, check=True
        ).stdout
        assert not re.search(r" [TtW] std::(ostream|basic_ostream<.*>)::_M_insert", defined)


def test_the_reference_library_exports_one_symbol_and_needs_no_torch() -> None:
    from torch_fl_base.reference import backend

    library = str(backend().library)
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    assert [line.split()[-1] for line in symbols.splitlines()] == ["flagos_hal_query"]
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "torch" not in needed
    assert "c10" not in needed


def has_library(vendor: str) -> bool:
    """Return whether a vendor's package has a HAL library yet."""
    return (ROOT / "packages" / f"torch-fl-{vendor}" / "csrc").exists()


def test_every_vendor_package_makes_one_wheel_with_its_entry_point(vendor_wheels: dict[str, Path]) -> None:
    assert len(vendor_wheels) == 9
    for vendor, wheel in vendor_wheels.items():
        library = has_library(vendor)
        platform = re.sub(r"[-.]", "_", sysconfig.get_platform()) if library else "any"
        assert wheel.name == f"torch_fl_{vendor}-0.1.0-py3-none-{platform}.whl"
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            info = f"torch_fl_{vendor}-0.1.0.dist-info"
            metadata = email.message_from_string(archive.read(f"{info}/METADATA").decode())
            entries = archive.read(f"{info}/entry_points.txt").decode()
            record = json.loads(archive.read(f"torch_fl_{vendor}/compatibility.json"))
        assert (f"torch_fl_{vendor}/libflagos_hal_{vendor}.so" in names) is library
        assert not [name for name in names if name.endswith((".cpp", ".hpp")) or "fake" in name]
        assert metadata.get_all("Requires-Dist") == ["torch-fl-core>=2.10"]
        assert f"[torch_fl.backends]\n{vendor} = torch_fl_{vendor}:backend" in entries
        assert f"{info}/licenses/LICENSE" in names
        wanted = {"package": f"torch-fl-{vendor}", "hal_abi": [1, 0], "library": library}
        assert record == {**record, **wanted}


@pytest.mark.parametrize("vendor", ["metax", "nvidia"])
def test_a_vendors_source_distribution_builds_alone(vendor: str, run: Run, tmp_path: Path) -> None:
    package = ROOT / "packages" / f"torch-fl-{vendor}"
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path, cwd=package)
    (archive,) = tmp_path.glob("*.tar.gz")
    run("tar", "-xzf", archive, "-C", tmp_path)
    (unpacked,) = (p for p in tmp_path.iterdir() if p.is_dir())
    assert (unpacked / "include" / "flagos" / "hal.h").exists()
    recorded = json.loads((unpacked / "compatibility.json").read_text())
    hidden = {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1"}
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=unpacked, env=hidden)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as built:
        record = json.loads(built.read(f"torch_fl_{vendor}/compatibility.json"))
    assert record["headers_sha256"] == recorded["headers_sha256"]
    assert record["library"] is has_library(vendor)


def test_import_torch_stays_quiet_with_everything_installed(
    with_all_vendors: dict[str, str], python: Run
) -> None:
    code = (
        "import os, sys\n"
        "before = dict(os.environ)\n"
        "import torch\n"
        "assert dict(os.environ) == before\n"
        # Their descriptions may be asked for, and nothing else of them.
        "ours = {m for m in sys.modules if m.startswith('torch_fl_') and not m.startswith('torch_fl_base')}\n"
        "assert {m.partition('.')[2] for m in ours} <= {'', '_version'}, ours\n"
        "assert torch.flagos.is_available() is False\n"
        "from pathlib import Path\n"
        "maps = Path('/proc/self/maps').read_text()\n"
        "assert 'libflagos_hal' not in maps, 'a library was opened'\n"
    )
    done = python(code, env=with_all_vendors)
    assert (done.stdout, done.stderr) == ("", "")


def test_every_vendor_is_listed_with_the_reason_why_it_is_not_there(
    with_all_vendors: dict[str, str], run: Run
) -> None:
    done = run(sys.executable, "-m", "torch_fl.doctor", "--json", env=with_all_vendors)
    backends = {backend["name"]: backend for backend in json.loads(done.stdout)["backends"]}
    for package in vendor_packages():
        vendor = package.name.removeprefix("torch-fl-")
        if not has_library(vendor):
            assert backends[vendor]["state"] == "not available"
            assert backends[vendor]["reason"] == f"torch-fl-{vendor} 0.1.0 brings no HAL library yet"
        elif backends[vendor]["state"] != "selected":  # this machine has no such device
            assert backends[vendor]["state"] in ("no device", "SDK missing")
            assert backends[vendor]["reason"]


def test_the_reference_backend_serves_beside_the_vendor_packages(
    with_all_vendors: dict[str, str], python: Run
) -> None:
    code = (
        "import torch; x = torch.ones(3, device='flagos')\n"
        "print(x.sum().item(), torch.flagos.get_device_properties(0).backend)\n"
    )
    assert python(code, env=with_all_vendors).stdout == "3.0 reference\n"


@pytest.mark.parametrize("name", ["metax", "maca"])
def test_naming_a_vendor_without_a_library_is_an_error_with_the_reason(
    with_all_vendors: dict[str, str], python: Run, name: str
) -> None:
    environment = {**with_all_vendors, "FLAGOS_BACKENDS": name}
    error = python("import torch; torch.ones(3, device='flagos')", env=environment, fails=True).stderr
    assert "metax" in error
    assert "torch-fl-metax 0.1.0 brings no HAL library yet" in error


def test_a_build_without_torch_says_how_to_build(run: Run, tmp_path: Path) -> None:
    hidden = tmp_path / "torch.py"
    hidden.write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    build = ROOT / "packages" / "torch-fl-core" / "cmake" / "torch_build.py"
    error = run(
        sys.executable, build, tmp_path / "facts.json", env={"PYTHONPATH": str(tmp_path)}, fails=True
    ).stderr
    assert "pip install --no-build-isolation torch-fl-core" in error
    assert "Traceback" not in error
