"""A newcomer's first hour: a package made from the template, an SDK, the first tensor."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools import new_vendor

HERE = Path(__file__).parent
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.needs_compiler


@dataclass(frozen=True)
class Newcomer:
    """The package of the imaginary vendor "acme", installed, and its SDK."""

    package: Path
    wheel: Path
    site: Path
    sdk: Path

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables under which the backend is found and chosen."""
        import os

        path = f"{self.site}:{os.environ.get('PYTHONPATH', '')}"
        own = {"PYTHONPATH": path, "ACME_HOME": str(self.sdk), "FLAGOS_BACKENDS": "acme"}
        # A HAL alone has no kernels: every operator runs on the host, which is told once each.
        return {**own, "FLAGOS_FALLBACK": "allow", **more}


@pytest.fixture(scope="module")
def acme(
    tmp_path_factory: pytest.TempPathFactory,
    build_wheel: Callable[[Path], Path],
    install_wheel: Callable[[Path, Path], None],
) -> Newcomer:
    folder = tmp_path_factory.mktemp("acme")
    package, site, sdk = folder / "torch-fl-acme", folder / "site", folder / "sdk"
    new_vendor.make("acme", package, "The acme backend of torch-fl")
    wheel = build_wheel(package)
    install_wheel(wheel, site)
    (sdk / "lib").mkdir(parents=True)
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler (cc, gcc) for the SDK")
    library = sdk / "lib" / "libacmert.so"
    command = [
        compiler,
        "-std=gnu11",
        "-Wall",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        str(library),
        "acme_sdk/acme_rt.c",
        "-lpthread",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE)
    assert done.returncode == 0, done.stderr
    return Newcomer(package, wheel, site, sdk)


def test_the_hal_of_the_template_has_at_most_250_lines_in_at_most_3_files(acme: Newcomer) -> None:
    files = sorted((acme.package / "csrc").iterdir())
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    assert len(files) <= 3
    assert lines <= 250, f"{lines} lines"


def test_the_wheel_is_for_any_python_on_this_platform_and_carries_the_library(acme: Newcomer) -> None:
    assert "-py3-none-linux_" in acme.wheel.name
    with zipfile.ZipFile(acme.wheel) as archive:
        names = archive.namelist()
        record = json.loads(archive.read("torch_fl_acme/compatibility.json"))
    assert "torch_fl_acme/libflagos_hal_acme.so" in names
    assert not [name for name in names if name.endswith((".cpp", ".def"))]
    assert record["hal_abi"] == [1, 0]
    assert record["library"] is True


def test_the_library_exports_one_symbol_and_needs_no_sdk(acme: Newcomer, run: Run) -> None:
    library = acme.site / "torch_fl_acme" / "libflagos_hal_acme.so"
    exported = [line.split()[-1] for line in run("nm", "-D", "--defined-only", library).stdout.splitlines()]
    assert exported == ["flagos_hal_query"]
    needed = run("readelf", "-d", library).stdout
    assert "libacmert" not in needed
    assert "torch" not in needed


def test_the_first_tensor(acme: Newcomer, python: Run) -> None:
    code = (
        "import torch\n"
        "x = torch.randn(4, 4, device='flagos')\n"
        "assert x.device == torch.device('flagos', 0), x.device\n"
        "y = x.cpu()\n"
        "torch.testing.assert_close((x + 1).cpu(), y + 1)\n"
        "torch.testing.assert_close((x @ x).cpu(), y @ y)\n"
        "other = x.to('flagos:1')\n"
        "assert torch.equal(other.cpu(), y)\n"
        "print(torch.flagos.get_device_name(0), torch.flagos.device_count())\n"
    )
    assert python(code, env=acme.environment()).stdout == "Acme A1 2\n"


def test_training_works(acme: Newcomer, python: Run) -> None:
    code = (
        "import torch\n"
        "torch.manual_seed(0)\n"
        "from torch.nn import GELU, Linear, Sequential\n"
        "model = Sequential(Linear(8, 16), GELU(), Linear(16, 1)).to('flagos')\n"
        "optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)\n"
        "x = torch.randn(64, 8, device='flagos')\n"
        "losses = []\n"
        "for _ in range(60):\n"
        "    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()\n"
        "    optimizer.zero_grad(); loss.backward(); optimizer.step(); losses.append(loss.item())\n"
        "assert losses[-1] < 0.1 * losses[0], losses\n"
    )
    python(code, env=acme.environment())


def test_without_the_sdk_the_backend_says_where_it_looked(acme: Newcomer, python: Run) -> None:
    code = "import torch; torch.randn(4, 4, device='flagos')"
    error = python(code, env=acme.environment(ACME_HOME=""), fails=True).stderr
    for part in (
        "acme",
        "libacmert.so",
        "ACME_HOME is not set",
        "/opt/acme/lib",
        "Install the acme runtime or set ACME_HOME",
    ):
        assert part in error


def test_the_conformance_kit_passes(acme: Newcomer, run: Run) -> None:
    library = acme.site / "torch_fl_acme" / "libflagos_hal_acme.so"
    import sys

    command = (sys.executable, "-m", "torch_fl_base.cli", "conformance", library)
    done = run(*command, env=acme.environment())
    assert "passed" in done.stdout


@pytest.mark.parametrize("name", ["", "Acme", "1st", "torch-fl", "core", "reference", "class"])
def test_what_cannot_be_a_vendors_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=repr(name)):
        new_vendor.make(name, tmp_path / "package", "A backend")
    assert not (tmp_path / "package").exists()


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="exists already"):
        new_vendor.make("acme", tmp_path, "A backend")


def test_the_vendor_packages_agree_with_the_template() -> None:
    packages = new_vendor.vendor_packages()
    assert len(packages) == 9
    assert new_vendor.differences(packages) == []


def test_a_file_that_was_changed_is_found(tmp_path: Path) -> None:
    package = tmp_path / "torch-fl-acme"
    new_vendor.make("acme", package, "A backend")
    assert new_vendor.differences([package]) == []
    (package / "hatch_build.py").write_text("# mine\n", encoding="utf-8")
    (package / "LICENSE").unlink()
    assert new_vendor.differences([package]) == [
        "torch-fl-acme/LICENSE is missing",
        "torch-fl-acme/hatch_build.py differs from the template's hatch_build.py",
    ]
