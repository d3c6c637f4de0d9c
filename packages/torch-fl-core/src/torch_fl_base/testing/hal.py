"""The HAL level of the conformance kit: what a HAL library must do, by the requirements of hal.h. Needs no
torch.

In a vendor's tests, beside a `quirks.py` that defines QUIRKS (see `torch_fl_base.testing.quirks`):

    from torch_fl_base.testing.hal import *  # noqa: F403

Or from the command line: `torch-fl-conformance <backend or library.so> [--json FILE] [--filter PATTERN]`.
A test's name carries the requirement it checks: test_str_07_… is HAL-STR-07, test_gen_03_… is GEN-03.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch_fl_base.testing.kit.catalogue import MODULES, every_test
from torch_fl_base.testing.kit.checks import marks, requirement
from torch_fl_base.testing.kit.child import Target, run_isolated
from torch_fl_base.testing.kit.describe import describe
from torch_fl_base.testing.kit.quirks import Exemption, Quirks, load_quirks
from torch_fl_base.testing.kit.runner import Report, main, run

__all__ = ["Exemption", "Quirks", "Report", "load_quirks", "main", "run"]

try:
    import pytest
except ImportError:  # the command line says so; Quirks and Report serve without it
    pytest = None  # type: ignore[assignment]

if pytest is not None:
    from torch_fl_base._hal import Hal
    from torch_fl_base.testing.kit.bench import Bench

    @pytest.fixture(scope="module")
    def conformance_target(request: pytest.FixtureRequest) -> Target:
        """What is tested: by the command line, or by quirks.py beside the test module."""
        ordered = request.config.getoption("--flagos-target", None)
        if ordered is not None:
            target = Target.from_json(ordered)
        else:
            file = Path(request.module.__file__).with_name("quirks.py")
            quirks = load_quirks(file)
            if quirks.library is None:
                pytest.fail(f"{file}: QUIRKS names no library")
            target = Target(str(quirks.library), str(file))
        unavailable = run_isolated(target, describe.__module__, describe.__name__, {})["unavailable"]
        if unavailable:
            pytest.skip(f"the library's runtime is unavailable: {unavailable}")
        return target

    @pytest.fixture(scope="module")
    def conformance_hal(conformance_target: Target) -> Iterator[Hal]:
        """The library, initialised for the tests that share a process."""
        hal = conformance_target.open()
        hal.system.init()
        yield hal
        hal.system.shutdown()

    @pytest.fixture
    def bench(conformance_hal: Hal, conformance_target: Target) -> Iterator[Bench]:
        """A work bench whose things are given back after the test."""
        bench = Bench(conformance_hal, conformance_target.quirks())
        yield bench
        bench.close()

    @pytest.fixture(autouse=True)
    def conformance_exemptions(request: pytest.FixtureRequest, conformance_target: Target) -> None:
        """Skip what the hardware cannot do; expect to fail what does not work yet."""
        original = getattr(request.function, "conformance_of", None)
        if original is None:
            return  # a test of the vendor's own in the same module
        requirements = (requirement(original.__name__), *marks(original).also)
        quirks = conformance_target.quirks()
        for exemption in quirks.unsupported:
            if exemption.covers(request.node.name, requirements):
                pytest.skip(f"unsupported: {exemption.reason} {exemption.issue}".rstrip())
        for exemption in quirks.expected_failures:
            if exemption.covers(request.node.name, requirements):
                reason = f"{exemption.reason} ({exemption.issue})"
                request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))

    def test_kit_every_exemption_covers_a_test(conformance_target: Target) -> None:
        """An exemption that covers nothing is a mistake in its pattern, or is out of date."""
        quirks = conformance_target.quirks()
        names = [
            (name, (requirement(function.__name__), *marks(function).also))
            for function in every_test()
            for name in (function.__name__, *(f"{function.__name__}[{case}]" for case in marks(function).ids))
        ]
        idle = [
            exemption.pattern
            for exemption in (*quirks.unsupported, *quirks.expected_failures)
            if not any(exemption.covers(name, requirements) for name, requirements in names)
        ]
        assert not idle, f"quirks: no test is covered by {', '.join(idle)}"

    def _for_pytest(function: Callable[..., None]) -> Callable[..., None]:
        mark = marks(function)
        first = "conformance_target" if mark.isolated else "bench"

        def test(**given: Any) -> None:
            case = {name: given[name] for name in mark.names}
            if mark.isolated:
                run_isolated(given[first], function.__module__, function.__name__, case)
            else:
                function(given[first], **case)

        functools.update_wrapper(test, function)
        del test.__dict__["__wrapped__"]
        names = (first, *mark.names)
        kind = inspect.Parameter.KEYWORD_ONLY
        test.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, kind) for name in names]
        )
        test.conformance_of = function  # type: ignore[attr-defined]
        if mark.names:
            values = [case if len(mark.names) > 1 else case[0] for case in mark.cases]
            parametrised: Callable[..., None] = pytest.mark.parametrize(
                ",".join(mark.names), values, ids=mark.ids
            )(test)
            return parametrised
        return test

    def _collect() -> None:
        for module in MODULES:
            for name, function in vars(importlib.import_module(module)).items():
                if name.startswith("test_"):
                    globals()[name] = _for_pytest(function)
                    __all__.append(name)

    _collect()
    __all__ += ["bench", "conformance_exemptions", "conformance_hal", "conformance_target"]
    __all__ += ["test_kit_every_exemption_covers_a_test"]
