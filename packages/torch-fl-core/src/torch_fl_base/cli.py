"""The command `torch-fl`: doctor, preflight, conformance, routes. Shell completion is typer's.

`torch-fl --install-completion` installs it; `torch-fl-preflight` and `torch-fl-conformance` are short names.
Only `routes list` and `routes explain` import torch_fl.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torch_fl_base import cli_routes as _routes
from torch_fl_base import doctor as _doctor
from torch_fl_base import preflight as _preflight
from torch_fl_base.discovery import State

app = typer.Typer(
    name="torch-fl",
    help="PyTorch's device `flagos`: what an environment can do, before a program runs in it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

app.add_typer(_routes.app, name="routes")

_JSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
_STYLES = {State.SELECTED: "green", State.FAILED: "red", State.ABI_REFUSED: "red"}


def _complete_backend(incomplete: str) -> list[str]:
    from torch_fl_base import discovery

    return [record.name for record in discovery.discover({}) if record.name.startswith(incomplete)]


_BACKEND = Annotated[
    str | None,
    typer.Option(
        "--backend", "-b", help="A backend that must have a device.", autocompletion=_complete_backend
    ),
]


@app.command("doctor")
def doctor_command(as_json: _JSON = False) -> None:
    """Tell what is installed, the state of each backend, and what is wrong.

    Exit status 1: something would stop a program.
    """
    console = Console()
    with console.status("looking at torch and the backends …"):
        diagnosis = _doctor.diagnose()
    if as_json:
        print(json.dumps(diagnosis.as_dict(), indent=2))
    else:
        _print_diagnosis(console, diagnosis)
    raise typer.Exit(1 if diagnosis.problems else 0)


def _print_diagnosis(console: Console, diagnosis: _doctor.Diagnosis) -> None:
    """Print the doctor's text with the backends as a table."""
    before, after = _doctor.text_parts(diagnosis)
    console.print(escape("\n".join(before)), highlight=False)
    table = Table(
        "backend",
        "package",
        "devices",
        "state",
        title="backends, in the order of their devices",
        title_justify="left",
    )
    for backend in diagnosis.backends:
        style = _STYLES.get(State(backend["state"]), "yellow")
        state = escape(backend["state"] + (f": {backend['reason']}" if backend["reason"] else ""))
        package = f"{backend['package'] or ''} {backend['version'] or ''}".strip()
        devices = "\n".join(_doctor.device_lines(backend))
        table.add_row(backend["name"], package, escape(devices), f"[{style}]{state}[/]")
    console.print(table)
    console.print(escape("\n".join(after)), style="" if not diagnosis.problems else "red", highlight=False)


@app.command("preflight")
def preflight_command(
    wheels: Annotated[
        list[Path] | None,
        typer.Argument(help="Wheels to look at, not installed; none: this environment."),
    ] = None,
    backend: _BACKEND = None,
    devices: Annotated[int, typer.Option("--devices", "-n", min=1, help="Devices that must be there.")] = 1,
    as_json: _JSON = False,
) -> None:
    """Check that a job can start here, or that wheels would fit.

    Torch fits core, flagos can be claimed, the backends open, there are enough devices. Exit status 1: no.
    """
    if wheels:
        from torch_fl_base._wheels import check_wheel

        checks = [check for wheel in wheels for check in check_wheel(wheel)]
    else:
        checks = _preflight.check(backend=backend, devices=devices)
    passed = all(check.passed for check in checks)
    if as_json:
        print(json.dumps({"passed": passed, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        console = Console()
        for check in checks:
            mark = "[green]ok  [/]" if check.passed else "[red]FAIL[/]"
            console.print(f"{mark} {escape(check.name)}: {escape(check.found)}", highlight=False)
    raise typer.Exit(0 if passed else 1)


# The kit has its own options and its own help, so that they are the same where typer is missing.
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command("conformance", context_settings=_PASS_ON)
def conformance_command(context: typer.Context) -> None:
    """Run the HAL conformance kit on a backend or a library; `--help` tells the options."""
    from torch_fl_base.testing import hal

    raise typer.Exit(hal.main(context.args))


def _run(arguments: list[str] | None = None) -> Any:
    return app(args=arguments, prog_name="torch-fl")


def main() -> None:
    """Run `torch-fl`."""
    _run()


def preflight() -> None:
    """Run `torch-fl-preflight`."""
    _run(["preflight", *sys.argv[1:]])


def conformance() -> None:
    """Run `torch-fl-conformance`."""
    _run(["conformance", *sys.argv[1:]])


if __name__ == "__main__":
    main()
