"""The `torch.backends` entry point: makes the device known at `import torch`, where that can do no harm.

Once the device is claimed it is *the* accelerator of the process, and training on an accelerator of torch's
own breaks inside the autograd engine. So it is claimed only where torch has none that could be used, found
out without opening any driver: what torch was built for, device nodes, and visible-devices variables. In
doubt it is not claimed, and `import torch_fl` is the explicit act.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch_fl_base import _entries, _env, _native, _vendors
from torch_fl_base.spec import BackendError

GROUP = "torch.backends"
OURS = "torch_fl_base."
DEVICE = "flagos"
_UNCLAIMED = "privateuseone"


class Decision(NamedTuple):
    """Whether the device is claimed at `import torch`, and why."""

    claim: bool
    reason: str


class TorchFacts(NamedTuple):
    """What this torch was built for, known without asking a driver."""

    version: str
    cuda: str | None = None
    hip: str | None = None
    xpu: str | None = None
    mps: bool = False
    owner: str = _UNCLAIMED
    """Name of the device that holds PrivateUse1."""


class _Own(NamedTuple):
    """One kind of accelerator that torch itself can be built for, and the cheap signs of its hardware."""

    kind: str
    nodes: tuple[str, ...]
    hidden_by: tuple[str, ...]
    """Variables that hide all devices when set to nothing or to a negative index."""


_OWN = (
    _Own(
        "cuda",
        ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvgpu*", "/dev/nvhost-gpu", "/dev/dxg"),
        ("CUDA_VISIBLE_DEVICES",),
    ),
    _Own(
        "hip",
        ("/dev/kfd", "/dev/dxg"),
        ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    ),
    _Own("xpu", ("/dev/dri/renderD*", "/dev/dxg"), ()),
)

# Local version labels of the builds that PyTorch itself publishes. Any other label on a build "for CUDA" may
# be a chip vendor's torch, whose devices have other nodes.
_STOCK_LABEL = r"|cpu|cu\d+|rocm[\d.]+|xpu"


def decide(
    facts: TorchFacts,
    environ: Mapping[str, str] | None = None,
    exists: Callable[[str], bool] = lambda pattern: bool(glob.glob(pattern)),
    plugins: Callable[[], list[str]] | None = None,
    probe_paths: Callable[[], list[str]] | None = None,
) -> Decision:
    """Return the decision for this torch on this machine. Opens no driver, changes nothing.

    Args:
        facts: what torch was built for.
        environ: read instead of os.environ.
        exists: whether any file matches a glob pattern.
        plugins: names the other packages that torch would load as device plugins.
        probe_paths: device nodes of the installed backends.
    Raises: BackendError if FLAGOS_AUTOLOAD holds a bad value.
    """
    if facts.owner not in (_UNCLAIMED, DEVICE):
        return Decision(False, f"the device {facts.owner!r} of another plugin holds PrivateUse1")
    wish = _env.AUTOLOAD.read(environ)
    if wish is not None:
        return Decision(wish, f"FLAGOS_AUTOLOAD={1 if wish else 0}")
    others = (plugins or other_plugins)()
    if others:
        return Decision(False, f"other device plugins of torch are installed ({', '.join(others)})")
    if facts.mps:
        return Decision(False, "torch was built for mps")
    own = own_accelerator(facts, environ, exists, probe_paths)
    return Decision(own is None, own or "torch has no accelerator of its own here")


def own_accelerator(
    facts: TorchFacts,
    environ: Mapping[str, str] | None = None,
    exists: Callable[[str], bool] = lambda pattern: bool(glob.glob(pattern)),
    probe_paths: Callable[[], list[str]] | None = None,
) -> str | None:
    """Return what speaks for an accelerator that torch itself can use here, None if nothing does.

    Arguments as for `decide`; opens no driver.
    """
    for own in _OWN:
        version = getattr(facts, own.kind)
        if version is None:
            continue
        hidden = _hiding(own, environ)
        sign = next((node for node in own.nodes if exists(node)), None)
        if sign is None and not re.fullmatch(_STOCK_LABEL, facts.version.partition("+")[2]):
            sign = next((node for node in (probe_paths or _probe_paths)() if exists(node)), None)
        if sign is not None and hidden is None:
            return f"torch was built for {own.kind} {version} and {sign} exists"
    return None


def _hiding(own: _Own, environ: Mapping[str, str] | None) -> str | None:
    environ = os.environ if environ is None else environ
    for name in own.hidden_by:
        value = environ.get(name)
        if value is not None and (not value.strip() or value.strip().startswith("-")):
            return name
    return None


def other_plugins() -> list[str]:
    """Return the other installed packages that want PrivateUse1, by module name.

    Those are the ones whose `torch.backends` entry torch calls, and known ones that are imported by hand: if
    they found the slot taken, their import would fail.
    """
    modules = {entry.value.partition(":")[0] for entry in _entries.of_group(GROUP)}
    found = {module for module in modules if not module.startswith(OURS)}
    found.update(name for name in _vendors.OTHER_PLUGINS if importlib.util.find_spec(name) is not None)
    return sorted(found)


def _probe_paths() -> list[str]:
    from torch_fl_base import discovery

    records = discovery.discover(environ={}, exists=lambda pattern: True)
    return [path for record in records if record.spec for path in record.spec.probe_paths]


def facts_of(torch: Any) -> TorchFacts:
    """Return the facts of an imported, or importing, torch."""
    version = torch.version
    return TorchFacts(
        version=str(torch.__version__),
        cuda=getattr(version, "cuda", None),
        hip=getattr(version, "hip", None),
        xpu=getattr(version, "xpu", None),
        mps=bool(getattr(torch._C, "_has_mps", False)),
        owner=torch._C._get_privateuse1_backend_name(),
    )


last: Decision | None = None
"""What autoload decided in this process; None if torch did not call it."""
failure: BaseException | None = None
"""What went wrong in it, kept for the doctor, the report and the first use."""


def autoload() -> None:
    """Claim the device if `decide` says so. Called by torch at the end of its import; never raises, never
    prints.

    An exception from here would break `import torch` for everything else in the environment, so it is kept
    instead.
    """
    global last, failure
    try:
        facts = facts_of(sys.modules["torch"])
        try:
            last = decide(facts)
        except BackendError as error:
            # A bad FLAGOS_AUTOLOAD counts as none here; the first use of the device tells it.
            failure = error
            last = decide(facts, {k: v for k, v in os.environ.items() if k != _env.AUTOLOAD.name})
        if last.claim:
            _native.load_part("torch_fl._claim").claim(explicit=False)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (see above)
        failure = error
        last = Decision(
            False, str(error) if isinstance(error, BackendError) else f"{type(error).__name__}: {error}"
        )
