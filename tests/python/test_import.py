"""What importing does and does not do: `import torch` with core installed, and `import torch_fl`."""

from __future__ import annotations

from typing import Any

import pytest

# Stands in for the entry point where core is not installed by pip: the same call, at the same place.
AUTOLOAD = "from torch_fl_base.autoload import autoload; autoload()"


def test_import_torch_claims_quietly_and_starts_nothing(evaluate: Any) -> None:
    answer = evaluate(
        f"""
        import os, pathlib, sys, threading
        before = dict(os.environ)
        import torch
        {AUTOLOAD}
        answer = {{
            "torch_fl": "torch_fl" in sys.modules,
            "claimed": torch._C._get_privateuse1_backend_name(),
            "available": [torch.flagos.is_available(), torch.accelerator.is_available()],
            "count": [torch.flagos.device_count(), torch.accelerator.device_count()],
            "activated": torch.flagos.is_initialized(),
            "environment": dict(os.environ) == before,
            "libraries": "libflagos_hal" in pathlib.Path("/proc/self/maps").read_text(),
            "threads": threading.active_count(),
            "tasks": len(os.listdir("/proc/self/task")),
        }}
        """,
        OMP_NUM_THREADS="1",
    )
    assert answer == {
        "torch_fl": False,
        "claimed": "flagos",
        "available": [False, False],
        "count": [0, 0],
        "activated": False,
        "environment": True,
        "libraries": False,
        "threads": 1,
        "tasks": answer["tasks"],
    }


def test_first_tensor_makes_the_reference_backend_join(evaluate: Any) -> None:
    answer = evaluate(
        f"""
        import torch
        {AUTOLOAD}
        before = torch.flagos.device_count()
        tensor = torch.ones(2, device="flagos")
        answer = [before, torch.flagos.device_count(), str(tensor.device), torch.flagos.is_available()]
        """
    )
    assert answer == [0, 2, "flagos:0", True]


@pytest.mark.parametrize(
    "first",
    [
        "torch.ones(2, device='flagos')",
        "torch.tril_indices(3, 3, device='flagos')",  # has no kernel by hand: the fallback comes first
        "torch.ops.aten.tril_indices(3, 3, device=torch.device('flagos'))",  # not by lazy_init
        "torch._efficientzerotensor(2, device='flagos')",
        "torch.tensor([1.0]).to('flagos')",
    ],
)
def test_operators_are_registered_when_a_device_is_first_used(first: str, evaluate: Any) -> None:
    answer = evaluate(
        f"""
        import torch
        {AUTOLOAD}
        has = lambda: torch._C._dispatch_has_kernel_for_dispatch_key("aten::add.Tensor", "PrivateUse1")
        before = has()
        tensor = {first}
        total = (tensor + tensor).cpu()
        answer = [before, has(), str(tensor.device), torch.equal(total, tensor.cpu() * 2)]
        """
    )
    assert answer == [False, True, "flagos:0", True]


def test_first_uses_in_many_threads_register_operators_once(evaluate: Any) -> None:
    answer = evaluate(
        f"""
        import concurrent.futures, threading, torch
        {AUTOLOAD}
        gate = threading.Barrier(8)
        def use(i):
            gate.wait()
            return float((torch.full((64,), float(i), device="flagos") + i).mean())
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            sums = list(pool.map(use, range(8)))
        answer = sums
        """
    )
    assert answer == [2.0 * i for i in range(8)]


@pytest.mark.parametrize("first", ["import torch, torch_fl", "import torch_fl, torch"])
def test_import_torch_fl_makes_devices_count_in_either_order(first: str, evaluate: Any) -> None:
    answer = evaluate(
        f"""
        {first}
        same = torch_fl.flagos is torch.flagos
        answer = [torch.flagos.is_available(), torch.accelerator.device_count(), same]
        """
    )
    assert answer == [True, 2, True]


def test_autoload_switched_off_leaves_torch_alone(evaluate: Any) -> None:
    answer = evaluate(
        f"""
        import sys, torch
        {AUTOLOAD}
        from torch_fl_base import autoload
        answer = [
            torch._C._get_privateuse1_backend_name(), hasattr(torch, "flagos"), "torch_fl._C" in sys.modules,
            autoload.last.reason, torch.Tensor.__dlpack_device__.__module__,
        ]
        """,
        FLAGOS_AUTOLOAD="0",
    )
    assert answer == ["privateuseone", False, False, "FLAGOS_AUTOLOAD=0", "torch._tensor"]


def test_bad_variable_does_not_break_import_torch_and_is_told_at_first_use(evaluate: Any) -> None:
    answer = evaluate(
        f"""
        import torch
        {AUTOLOAD}
        try:
            torch.ones(1, device="flagos")
        except RuntimeError as error:
            answer = str(error)
        """,
        FLAGOS_BACKENDS="refrence",
    )
    assert "no backend 'refrence' is installed. Did you mean 'reference'?" in answer


def test_bad_variable_is_an_error_of_import_torch_fl(run: Any) -> None:
    done = run("import torch_fl", FLAGOS_ALLOCATOR="fast", FLAGOS_AUTOLOAD="0")
    assert done.returncode == 1
    assert (
        "BackendError: flagos: environment variable FLAGOS_ALLOCATOR='fast' is not understood" in done.stderr
    )


def test_other_owner_of_the_slot_is_named(run: Any) -> None:
    done = run(
        """
        import sys, types, torch
        torch.utils.rename_privateuse1_backend("npu")
        module = types.ModuleType("torch_npu.npu")
        module.__file__ = "/site-packages/torch_npu/npu/__init__.py"
        torch._register_device_module("npu", module)
        sys.modules["torch_npu"] = types.ModuleType("torch_npu")
        import torch_fl
        """,
        FLAGOS_AUTOLOAD="0",
    )
    assert done.returncode == 1
    message = done.stderr.strip().splitlines()[-1]
    assert "the device 'npu'" in message
    assert "/site-packages/torch_npu/npu/__init__.py" in message
    assert "brought by the package torch_npu" in message
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in message


def test_other_owner_of_the_slot_is_left_alone_by_the_autoload(evaluate: Any) -> None:
    answer = evaluate(
        f"""
        import torch
        torch.utils.rename_privateuse1_backend("npu")
        {AUTOLOAD}
        from torch_fl_base import autoload
        answer = [torch._C._get_privateuse1_backend_name(), autoload.last.reason]
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert answer == ["npu", "the device 'npu' of another plugin holds PrivateUse1"]


# Core as if it had been built for torch 2.9, which no environment of ours has; any attempt to load C++ fails
# the program.
OTHER_MINOR = """
from torch_fl_base import _build, _native, autoload
info = _build.BuildInfo(torch="2.9", core="2.9.3", abi=(1, 0), python="3.11")
_native.build_info = lambda: info
_native.importlib.util.module_from_spec = None
"""
BUILT_FOR = "flagos: this torch-fl-core (2.9.3) was built for torch 2.9, but torch 2."


def test_other_torch_minor_is_told_before_any_symbol_is_needed(run: Any) -> None:
    done = run(OTHER_MINOR + "import torch_fl", FLAGOS_AUTOLOAD="0")
    assert done.returncode == 1
    assert BUILT_FOR in done.stderr.strip().splitlines()[-1]
    assert 'pip install "torch-fl-core==2.' in done.stderr.strip().splitlines()[-1]


def test_other_torch_minor_does_not_break_import_torch(evaluate: Any) -> None:
    answer = evaluate(
        OTHER_MINOR.replace(
            "module_from_spec = None", "module_from_spec  # loads the Python part of the claim"
        )
        + "import torch\nautoload.autoload()\nanswer = autoload.last.reason",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert answer.startswith(BUILT_FOR)


def test_import_torch_fl_without_torch_is_one_sentence(run: Any) -> None:
    done = run("import sys; sys.modules['torch'] = None; import torch_fl")
    assert done.returncode == 1
    assert (
        'ImportError: flagos: torch is not installed; pip install "torch=='
        in done.stderr.strip().splitlines()[-1]
    )


def test_base_package_imports_neither_torch_nor_torch_fl(evaluate: Any) -> None:
    answer = evaluate(
        """
        import sys
        import torch_fl_base
        from torch_fl_base import _env, autoload, discovery, doctor, preflight
        discovery.discover()
        answer = sorted({"torch", "torch_fl", "numpy", "typer", "rich"} & set(sys.modules))
        """
    )
    assert answer == []


def test_use_of_device_after_exit_began_does_not_crash(run: Any) -> None:
    done = run(
        """
        import torch, torch_fl
        kept = [torch.ones(1 << 20, device=f"flagos:{i % 2}") for i in range(8)]
        stream = torch.flagos.Stream()
        event = stream.record_event()
        with torch.flagos.stream(stream):
            for tensor in kept:
                tensor.copy_(torch.ones(1 << 20).pin_memory(), non_blocking=True)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_bad_variable_found_by_the_autoload_is_an_error_of_import_torch_fl_until_it_is_right(
    run: Any,
) -> None:
    done = run(
        f"""
        import os, torch
        {AUTOLOAD}
        from torch_fl_base import BackendError
        try:
            import torch_fl
        except BackendError as error:
            assert "refrence" in str(error)
            os.environ["FLAGOS_BACKENDS"] = "reference"
            import torch_fl
            assert torch.flagos.device_count() == 2
        else:
            raise SystemExit("no error")
        """,
        FLAGOS_BACKENDS="refrence",
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_log_variable_shows_what_was_found(run: Any) -> None:
    done = run("import torch_fl", FLAGOS_LOG="backends=info")
    assert done.returncode == 0
    assert "torch_fl.backends INFO: reference" in done.stderr


def test_claim_changes_nothing_of_torch_but_dlpack(evaluate: Any) -> None:
    answer = evaluate(
        f"""
        import sys, torch, torch.nn, torch.optim, torch.utils.data
        def members():
            seen = {{}}
            owners = [torch, torch.Tensor, torch.nn.Module, torch.nn.Parameter, torch.optim.Optimizer]
            owners += [torch.storage, torch.UntypedStorage, torch.TypedStorage, torch.serialization]
            owners += [torch.accelerator, torch.cuda, torch.random]
            for owner in owners:
                seen.update({{(owner.__name__, name): id(value) for name, value in vars(owner).items()}})
            return seen
        before = members()
        {AUTOLOAD}
        after = members()
        changed = [f"{{o}}.{{n}}" for (o, n), value in before.items() if after.get((o, n)) != value]
        added = [f"{{o}}.{{n}}" for (o, n) in after if (o, n) not in before]
        answer = [sorted(changed), sorted(name for name in added if "flagos" not in name)]
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert answer[0] == ["Tensor.__dlpack__", "Tensor.__dlpack_device__"]
    assert answer[1] == []
