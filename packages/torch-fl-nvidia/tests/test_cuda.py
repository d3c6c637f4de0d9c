"""What is CUDA's own: copies that return early, errors that stay, whose library it is; and training."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.skipif(
    os.environ.get("TORCH_FL_NVIDIA_REAL") == "1", reason="about the fake of CUDA's runtime"
)

_HAL = """
import ctypes, json, os
from torch_fl_base import _hal
fake = ctypes.CDLL(os.environ["TORCH_FL_NVIDIA_FAKE"], mode=ctypes.RTLD_GLOBAL)
hal = _hal.load("nvidia", os.environ["TORCH_FL_NVIDIA_HAL"])
hal.system.init()
"""


def evaluate(program: str, prelude: str = _HAL, **variables: str) -> Any:
    """Run a program in a new Python and return its variable `answer`."""
    text = textwrap.dedent(prelude) + textwrap.dedent(program) + "\nprint(json.dumps(answer))"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAGOS_")}
    command = [sys.executable, "-W", "error", "-c", text]
    done = subprocess.run(command, env={**kept, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("what", ["from pageable memory", "within the device", "fill"])
def test_blocking_calls_are_over_when_they_return(what: str) -> None:
    # CUDA's own return early; a stream that does not wait for the default one would read what was before.
    matches = evaluate(
        f"""
        what, size = {what!r}, 4096
        target, source = hal.memory.allocate(0, size), hal.memory.allocate(0, size)
        stream, back = hal.stream.create(0, None), hal.host.allocate(size)
        hal.memory.fill(0, target, 1, size)
        hal.memory.fill(0, source, 7, size)
        buffer = ctypes.create_string_buffer(bytes([7]) * size, size)
        if what == "from pageable memory":
            hal.memory.copy(0, target, ctypes.addressof(buffer), size, 1)
        elif what == "within the device":
            hal.memory.copy(0, target, source, size, 3)
        else:
            hal.memory.fill(0, target, 7, size)
        hal.memory.copy_async(stream, back, target, size, 2)
        hal.stream.synchronize(stream)
        answer = ctypes.string_at(back, size) == bytes([7]) * size
        """,
        FLAGOS_REFERENCE_LATENCY="copy:20000,fill:20000",
    )
    assert matches


def test_no_error_is_left_for_others_to_find() -> None:
    answer = evaluate(
        """
        stream, event = hal.stream.create(0, None), hal.event.create(0, 1)
        pointer = hal.memory.allocate(0, 1 << 20)
        hal.memory.fill_async(stream, pointer, 1, 1 << 20)
        hal.event.record(event, stream)
        seen = {hal.call("stream.query", stream).status, hal.call("event.query", event).status}
        hal.stream.synchronize(stream)
        hal.peer.enable(0, 1), hal.peer.enable(0, 1), hal.peer.disable(0, 1), hal.peer.disable(0, 1)
        refused = hal.call("memory.allocate", 0, 1 << 50).status
        answer = [sorted(seen), refused, fake.fake_untaken_errors(), fake.cudaGetLastError()]
        """,
        FLAGOS_REFERENCE_LATENCY="fill:50000",
    )
    assert answer == [["NOT_READY"], "OUT_OF_MEMORY", 0, 0]


def test_failures_carry_cudas_number_name_and_text() -> None:
    message, code, name = evaluate(
        """
        hal.call("memory.allocate", 0, 1 << 50)
        error = hal.last_error()
        answer = [error.message, error.vendor_code, error.vendor_name]
        """
    )
    assert message == "cudaMalloc failed: out of memory"
    assert (code, name) == (2, "cudaErrorMemoryAllocation")


def test_properties_are_read_from_the_structure_and_the_attributes() -> None:
    answer = evaluate(
        """
        told, info = hal.device.properties(1), hal.system.info()
        text = lambda value: value.decode() if isinstance(value, bytes) else value
        answer = [text(told.name), text(told.arch), text(told.pci_bus_id), told.total_memory,
                  told.capability_major, told.multiprocessor_count, bytes(told.uuid).hex(),
                  text(info.sdk_version), bool(told.dtypes >> 12 & 1)]
        """
    )
    assert answer == ["NVIDIA Fake 1", "sm_90", "0000:02:00.0", 4 << 30, 9, 132, "41" * 16, "13.0", True]


def test_a_library_of_another_vendor_is_refused_with_the_reason(tmp_path: Path) -> None:
    # As on a machine of a vendor whose runtime has CUDA's names: its own library lies beside it.
    library = tmp_path / "lib64" / "libcudart.so.13"
    library.parent.mkdir()
    fake = Path(os.environ["TORCH_FL_NVIDIA_FAKE"])
    shutil.copy2(fake, library)
    shutil.copy2(fake.with_name("libfake_device.so"), library.parent)
    (library.parent / "libhggcrt.so").touch()
    status, said = evaluate(
        """
        status = hal.call("system.init").status
        counted = hal.device.count() if status == "OK" else 0
        answer = [status, hal.device.properties(0).name.decode() if counted else hal.last_error().message]
        """,
        prelude="""
        import json, os
        from torch_fl_base import _hal
        hal = _hal.load("nvidia", os.environ["TORCH_FL_NVIDIA_HAL"])
        """,
        LD_LIBRARY_PATH=str(library.parent),
        CUDA_HOME="/nowhere",
    )
    if status == "OK" or "driver" in said:  # CUDA itself is on this machine, and came next
        assert "Fake" not in said
    else:
        assert f"{library} (another vendor's: {library.parent}/libhggcrt.so lies beside it)" in said


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as installed."""
    folder = tmp_path_factory.mktemp("site")
    module = folder / "torch_fl_nvidia"
    shutil.copytree(PACKAGE / "src" / "torch_fl_nvidia", module)
    shutil.copy2(os.environ["TORCH_FL_NVIDIA_HAL"], module)
    record = folder / "torch_fl_nvidia-0.1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-fl-nvidia\nVersion: 0.1.0\n")
    (record / "entry_points.txt").write_text("[torch_fl.backends]\nnvidia = torch_fl_nvidia:backend\n")
    return folder


_TORCH = """
import ctypes, json, os
ctypes.CDLL(os.environ["TORCH_FL_NVIDIA_FAKE"], mode=ctypes.RTLD_GLOBAL)
import torch, torch_fl
"""


def test_training_beside_the_reference_backend_in_one_process(site: Path) -> None:
    answer = evaluate(
        """
        def train(device):
            torch.manual_seed(0)
            layers = [torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1)]
            model = torch.nn.Sequential(*layers).to(device)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            inputs = torch.linspace(-1, 1, 256).reshape(32, 8).to(device)
            losses = []
            for _ in range(5):
                optimizer.zero_grad()
                loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            return losses
        names = [torch.flagos.get_device_properties(i).backend for i in range(torch.flagos.device_count())]
        there = torch.arange(100_000, device="flagos:0")
        moved = there.to("flagos:2")
        answer = [names, train("flagos:0"), train("flagos:2"), train("cpu"), str(moved.device),
                  torch.equal(moved.cpu(), there.cpu())]
        """,
        prelude=_TORCH,
        PYTHONPATH=str(site),
        FLAGOS_BACKENDS="nvidia,reference",
        FLAGOS_FALLBACK="allow",  # the fake has no kernels: every operator runs on the host
    )
    names, nvidia, reference, cpu, device, equal = answer
    assert names == ["nvidia", "nvidia", "reference", "reference"]
    assert nvidia == pytest.approx(cpu, rel=1e-5)
    assert reference == pytest.approx(cpu, rel=1e-5)
    assert (device, equal) == ("flagos:2", True)
