"""When `import torch` claims the device: the decision, on machines that are made up here."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch  # noqa: F401  (in sys.modules, as it is when torch calls the autoload)

from torch_fl_base import BackendError, autoload
from torch_fl_base.autoload import TorchFacts

CPU = TorchFacts("2.13.0+cpu")
CUDA = TorchFacts("2.13.0+cu130", cuda="13.0")
VENDOR = TorchFacts("2.8.0+metax3.2", cuda="11.6")
HIP = TorchFacts("2.13.0+rocm7.0", hip="7.0.1")
XPU = TorchFacts("2.13.0+xpu", xpu="20250200")
NPU = TorchFacts("2.13.0+cpu", owner="npu")
MPS = TorchFacts("2.13.0", mps=True)

CASES = [
    ("cpu build", CPU, {}, [], True, "no accelerator of its own"),
    ("cpu build on a machine with a GPU", CPU, {}, ["/dev/nvidia[0-9]*"], True, "no accelerator"),
    ("cuda build without a GPU", CUDA, {}, [], True, "no accelerator"),
    ("cuda build with a GPU", CUDA, {}, ["/dev/nvidia[0-9]*"], False, "cuda 13.0 and /dev/nvidia"),
    ("cuda build, only the control node", CUDA, {}, ["/dev/nvidiactl"], False, "/dev/nvidiactl exists"),
    ("cuda build under WSL", CUDA, {}, ["/dev/dxg"], False, "/dev/dxg exists"),
    (
        "cuda build, GPUs hidden",
        CUDA,
        {"CUDA_VISIBLE_DEVICES": ""},
        ["/dev/nvidiactl"],
        True,
        "no accelerator",
    ),
    (
        "cuda build, GPUs hidden by -1",
        CUDA,
        {"CUDA_VISIBLE_DEVICES": "-1"},
        ["/dev/nvidiactl"],
        True,
        "no accelerator",
    ),
    ("cuda build, one GPU visible", CUDA, {"CUDA_VISIBLE_DEVICES": "3"}, ["/dev/nvidiactl"], False, "exists"),
    ("vendor's torch with its device", VENDOR, {}, ["/dev/mxcd"], False, "/dev/mxcd exists"),
    ("stock cuda torch with a vendor's device", CUDA, {}, ["/dev/mxcd"], True, "no accelerator"),
    ("hip build with its device", HIP, {}, ["/dev/kfd"], False, "hip 7.0.1 and /dev/kfd"),
    ("hip build, devices hidden", HIP, {"ROCR_VISIBLE_DEVICES": ""}, ["/dev/kfd"], True, "no accelerator"),
    ("xpu build with a render node", XPU, {}, ["/dev/dri/renderD*"], False, "xpu"),
    ("xpu build without", XPU, {}, [], True, "no accelerator"),
    ("mps build", MPS, {}, [], False, "mps"),
    ("switched off", CPU, {"FLAGOS_AUTOLOAD": "0"}, [], False, "FLAGOS_AUTOLOAD=0"),
    ("switched on", CUDA, {"FLAGOS_AUTOLOAD": "1"}, ["/dev/nvidiactl"], True, "FLAGOS_AUTOLOAD=1"),
    ("another plugin holds the slot", NPU, {}, [], False, "'npu' of another plugin"),
    (
        "another plugin, though switched on",
        NPU,
        {"FLAGOS_AUTOLOAD": "1"},
        [],
        False,
        "'npu' of another plugin",
    ),
]


@pytest.mark.parametrize(
    ("facts", "environ", "nodes", "claim", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_decision(
    facts: TorchFacts, environ: dict[str, str], nodes: list[str], claim: bool, words: str
) -> None:
    decision = autoload.decide(
        facts, environ, exists=nodes.__contains__, plugins=list, probe_paths=lambda: ["/dev/mxcd"]
    )
    assert decision.claim is claim
    assert words in decision.reason


def test_other_plugin_that_torch_will_load_is_left_the_slot() -> None:
    decision = autoload.decide(CPU, {}, lambda pattern: False, lambda: ["torch_npu"])
    assert not decision.claim
    assert decision.reason == "other device plugins of torch are installed (torch_npu)"


def test_plugin_that_is_imported_by_hand_is_left_the_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert autoload.other_plugins() == []
    (tmp_path / "torch_directml.py").write_text("raise SystemExit('must not be imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert autoload.other_plugins() == ["torch_directml"]


def test_bad_value_is_an_error_of_the_decision() -> None:
    with pytest.raises(BackendError, match="FLAGOS_AUTOLOAD='perhaps'"):
        autoload.decide(CPU, {"FLAGOS_AUTOLOAD": "perhaps"})


def test_own_entry_is_no_other_plugin() -> None:
    assert not [name for name in autoload.other_plugins() if "torch_fl" in name]


@pytest.mark.parametrize("broken", [SimpleNamespace(), None], ids=["no version", "no torch"])
def test_autoload_never_raises_and_keeps_the_reason(
    broken: object, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", broken)
    monkeypatch.setattr(autoload, "last", None)
    monkeypatch.setattr(autoload, "failure", None)
    autoload.autoload()
    assert isinstance(autoload.failure, AttributeError)
    assert autoload.last is not None
    assert not autoload.last.claim
    assert "AttributeError" in autoload.last.reason
    assert capfd.readouterr() == ("", "")


def test_autoload_keeps_the_message_of_a_bad_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoload, "last", None)
    monkeypatch.setattr(autoload, "failure", None)
    monkeypatch.setenv("FLAGOS_AUTOLOAD", "perhaps")
    autoload.autoload()
    assert isinstance(autoload.failure, BackendError)
    assert "FLAGOS_AUTOLOAD='perhaps'" in str(autoload.failure)


def test_a_bad_autoload_variable_is_told_by_the_first_use(run: Any) -> None:
    program = """
    import torch
    from torch_fl_base.autoload import autoload; autoload()
    print("imported")
    torch.ones(1, device="flagos")
    """
    done = run(program, FLAGOS_AUTOLOAD="perhaps")
    assert done.stdout == "imported\n"
    assert "FLAGOS_AUTOLOAD='perhaps'" in done.stderr
