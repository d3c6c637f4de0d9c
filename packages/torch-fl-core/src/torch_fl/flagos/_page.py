"""The page docs/device-module.md, made from the docstrings of torch.flagos and the table of what it lacks."""

from __future__ import annotations

import inspect

import torch_fl

from ._missing import MISSING

_HEAD = """\
# torch.flagos

Made from the docstrings by `nox -s gen`; do not edit. `torch.flagos` offers for the device `flagos` what
`torch.cuda` offers for its own, with the same names and arguments; `help(torch.flagos.<name>)` tells all of
each. `torch.accelerator` answers the same. `torch_fl.flagos` is the same module.
"""

_GROUPS = (
    ("Devices", "_device"),
    ("Streams and events", "streams"),
    ("Memory", "memory"),
    ("Random numbers", "random"),
)


def page() -> str:
    """Return the text of docs/device-module.md."""
    module = torch_fl.flagos
    parts = [_HEAD]
    names = [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]
    for title, group in _GROUPS:
        rows = [_row(name, getattr(module, name)) for name in names if _home(getattr(module, name)) == group]
        parts.append(f"\n## {title}\n\n| name | what it is |\n|---|---|\n" + "".join(rows))
    legacy = sorted(name for name in vars(module) if name.endswith(("Tensor", "Storage")))
    parts.append(
        "\n## Other names\n\n"
        "- `torch.flagos.amp`: `autocast`, `GradScaler`, `custom_fwd`, `custom_bwd` as in torch.amp.\n"
        "- `OutOfMemoryError`: the one of torch. `BackendError`: a RuntimeError. `has_half`: true.\n"
        f"- The old types: {', '.join(f'`{name}`' for name in legacy)}.\n"
    )
    missing = "".join(f"| `{name}` | {reason} |\n" for name, reason in sorted(MISSING.items()))
    parts.append(f"\n## What torch.cuda has and torch.flagos lacks\n\n| name | why |\n|---|---|\n{missing}")
    return "".join(parts)


def _home(value: object) -> str:
    owner = value if hasattr(value, "__module__") else type(value)
    return str(owner.__module__).rpartition(".")[2]


def _row(name: str, value: object) -> str:
    arguments = ""
    if callable(value):
        function = value.__new__ if "__new__" in vars(value) else value
        parameters = [p for p in inspect.signature(function).parameters if p not in ("cls", "self")]
        arguments = f"({', '.join(parameters)})"
    summary = (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    return f"| `{name}{arguments}` | {summary} |\n"
