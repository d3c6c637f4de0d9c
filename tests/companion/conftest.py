"""What the companion's tests share: the stand-in's library, and programs that run with it loaded."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
Evaluate = Callable[..., Any]

# `torch_fl` is not imported, and torch's autoload is off: a program that wants it imports it afterwards.
_PRELUDE = """\
import gc, json
import torch, standin
standin.load()

def caught(function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None
"""

_POSTLUDE = "\nprint('\\n@answer', json.dumps(answer), flush=True)\n"


@pytest.fixture(scope="session")
def standin_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in's library, built once for all test processes of a run; kept in STANDIN_CACHE if set."""
    spec = importlib.util.spec_from_file_location("standin_build", HERE / "standin_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not module.compiler():
        pytest.skip("needs a C++ compiler: neither g++ nor c++ is on the path")
    base = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        base = base.parent  # of all workers
    given = os.environ.get("STANDIN_CACHE")
    library: Path = module.build(Path(given) if given else base / "standin")
    return library


@pytest.fixture
def evaluate(standin_library: Path) -> Evaluate:
    """A function that runs a program (in parts) in a new Python with the stand-in loaded and returns its
    variable `answer`, by JSON.

    It must succeed and, without `prints`, print nothing to stderr, where faults of the stand-in go. Other
    keyword arguments are environment variables; FLAGOS_ and STANDIN_ ones of the caller are taken away.
    """

    def run(*parts: str, prints: bool = False, **variables: str) -> Any:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("FLAGOS_", "STANDIN_"))}
        search = [str(HERE), *filter(None, [kept.get("PYTHONPATH")])]
        kept |= {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": os.pathsep.join(search)}
        done = subprocess.run(
            [sys.executable, "-c", _PRELUDE + "".join(map(textwrap.dedent, parts)) + _POSTLUDE],
            env={**kept, "STANDIN_LIBRARY": str(standin_library), **variables},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert not done.stderr.strip() or prints, f"it printed: {done.stderr}"
        _, marker, answer = done.stdout.rpartition("\n@answer ")
        assert marker, done.stdout + done.stderr
        return json.loads(answer)

    return run
