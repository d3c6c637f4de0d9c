"""Fork: a child that uses the device is told to use spawn; a child that does not is left alone; the parent
lives on."""

from __future__ import annotations

import torch

from torch_fl.testing.device.support import exported, run_quietly

_FORK = """
import os, sys, torch, torch_fl
{before}
pid = os.fork()
if pid == 0:
    try:
{child}
    except RuntimeError as error:
        print("child:", str(error).splitlines()[0], flush=True)
        os._exit(0)
    except BaseException as error:
        print("other:", repr(error), flush=True)
        os._exit(1)
    print("child: fine", flush=True)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
{after}
print("parent: fine")
"""


def _forked(before: str, child: str, after: str = "") -> list[str]:
    indented = "\n".join("        " + line for line in child.splitlines())
    return run_quietly(_FORK.format(before=before, child=indented, after=after)).splitlines()


def test_child_that_uses_the_device_is_told_to_spawn(device: torch.device) -> None:
    lines = _forked("kept = torch.ones(3, device='flagos')", "torch.ones(2, device='flagos')")
    assert lines[0].startswith("child: ")
    assert "fork" in lines[0].lower()
    assert "spawn" in lines[0]
    assert lines[-1] == "parent: fine"


def test_every_way_into_the_device_is_guarded_in_the_child(device: torch.device) -> None:
    printed = run_quietly(
        """
        import os, torch, torch_fl
        kept = torch.ones(3, device="flagos")
        uses = ["kept.add_(1)", "kept.cpu()", "kept.sum().item()", "kept.view(3, 1) + 1"]
        uses += ["torch.flagos.synchronize()"]
        uses += ["torch.flagos.Stream()", "torch.flagos.mem_get_info()", "torch.ones(2).to('flagos')"]
        uses += ["torch.ones(2, device='flagos')", "torch.rand(2, device='flagos')"]
        for use in uses:
            pid = os.fork()
            if pid == 0:
                try:
                    exec(use)
                except RuntimeError as error:
                    os._exit(0 if "spawn" in str(error) else 1)
                os._exit(2)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if status:
                print(use, "raises something else" if status == 1 else f"is not refused ({status})")
        """
    )
    assert printed == ""


def test_child_that_does_not_use_the_device_is_left_alone(device: torch.device) -> None:
    child = "assert torch.ones(3).sum().item() == 3.0\ndel kept\nimport gc; gc.collect()"
    assert _forked("kept = torch.ones(3, device='flagos')", child) == ["child: fine", "parent: fine"]


def test_child_may_use_the_device_where_the_parent_has_not(device: torch.device) -> None:
    lines = _forked("", "assert torch.ones(2, device='flagos').sum().item() == 2.0")
    assert lines == ["child: fine", "parent: fine"]


def test_parent_works_on_after_a_fork(device: torch.device) -> None:
    after = "assert (kept + kept).sum().item() == 6.0; torch.flagos.synchronize()"
    assert _forked("kept = torch.ones(3, device='flagos')", "pass", after)[-1] == "parent: fine"


def test_child_ends_normally_with_inherited_tensors(device: torch.device) -> None:
    printed = run_quietly(
        """
        import os, sys, torch, torch_fl
        kept = torch.ones(3, device="flagos")
        pid = os.fork()
        if pid == 0:
            sys.exit(0)  # runs destructors and exit handlers, unlike os._exit
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        print(kept.sum().item())
        """
    )
    assert printed.strip() == "3.0"


__all__ = exported(globals())
