"""Which backends are installed, which of them this process may use, in which order, and why not the others.

Reads package metadata and calls the entry points, which only describe. No library is opened here: that is the
runtime's part at first use, and the doctor's in a process of its own.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple, Protocol

from torch_fl_base import _entries, _env, reference
from torch_fl_base._build import BuildInfo, build_info
from torch_fl_base.spec import ENTRY_POINT_GROUP, BackendError, BackendSpec

ABI = (1, 0)
"""HAL ABI of this core where no build recorded one."""


class State(str, Enum):
    """What became of a candidate backend. The values are what reports print."""

    SELECTED = "selected"
    WAITING = "waiting"  # found; opened at the first use
    NO_DEVICE = "no device"
    DISABLED = "disabled"
    UNAVAILABLE = "not available"  # the package says so itself
    SDK_MISSING = "SDK missing"
    ABI_REFUSED = "ABI refused"
    FAILED = "failed"

    def __str__(self) -> str:
        return self.value


class Record(NamedTuple):
    """One candidate backend: an installed one, or one more instance of it that FLAGOS_BACKENDS asks for."""

    name: str
    state: State
    reason: str = ""
    """In words, for every state but selected."""
    spec: BackendSpec | None = None
    """None where the package could not describe itself."""
    private_copy: bool = False
    """A further instance of a library that another record opens."""
    emulated: bool = False
    """Joins only where nothing else has a device; false where FLAGOS_BACKENDS names it."""
    first_device: int = 0
    device_count: int = 0

    def request(self) -> dict[str, Any]:
        """Return what the runtime is told of this candidate; `skip` says why it is not to be opened."""
        request: dict[str, Any] = {
            "name": self.name,
            "path": str(self.spec.library) if self.spec else "",
            "private_copy": self.private_copy,
            "emulated": self.emulated,
            "accelerator": self.spec is not None and not self.spec.emulated,
            "companion": (self.spec.companion if self.spec else None) or "",
        }
        if self.state is not State.WAITING:
            request["skip"] = f"{self.state}: {self.reason}"
        return request

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        data: dict[str, Any] = {
            "name": self.name,
            "state": self.state.value,
            "reason": self.reason,
            "emulated": self.emulated,
        }
        data.update(first_device=self.first_device, device_count=self.device_count)
        spec = self.spec
        data["package"] = spec.distribution if spec else None
        data["version"] = spec.version if spec else None
        data["aliases"] = list(spec.aliases) if spec else []
        data["library"] = str(spec.library) if spec else None
        data["built_for_abi"] = ".".join(map(str, spec.built_for_abi)) if spec else None
        return data


class EntryPointLike(Protocol):
    """The part of importlib.metadata.EntryPoint that is used; tests bring their own."""

    @property
    def name(self) -> str:
        """The backend's name."""

    @property
    def value(self) -> str:
        """Where the function is: "package:function"."""

    def load(self) -> Any:
        """Import and return the function."""


def discover(
    environ: Mapping[str, str] | None = None,
    entries: Iterable[EntryPointLike] | None = None,
    exists: Callable[[str], bool] = lambda pattern: bool(glob.glob(pattern)),
) -> list[Record]:
    """Return one record per candidate, in the order of the devices; those that may be opened are `waiting`.

    Args:
        environ: read instead of os.environ.
        entries: used instead of the installed entry points.
        exists: whether any file matches a glob pattern.
    Raises: BackendError if FLAGOS_BACKENDS is malformed, repeats a name, or names a backend that is not
        installed.
    """
    named = _env.BACKENDS.read(environ)
    candidates = _candidates(list(_entries.of_group(ENTRY_POINT_GROUP) if entries is None else entries))
    if named is None:
        return [_judge(record, exists) for record in candidates]
    chosen = _chosen(named, candidates)
    used = {record.spec.name for record in chosen if record.spec}
    value = ",".join(named)
    rest = [
        record._replace(state=State.DISABLED, reason=f"FLAGOS_BACKENDS={value} does not name it")
        if record.state is State.WAITING
        else record
        for record in candidates
        if record.name not in used and record.name not in {name.partition(":")[0] for name in named}
    ]
    return [_judge(record, None) for record in chosen] + rest


def _candidates(entries: list[EntryPointLike]) -> list[Record]:
    """Describe every installed backend; the emulated ones come last."""
    records: list[Record] = []
    owners: dict[str, str] = {}
    for entry in entries:
        record = _describe(entry)
        taken = owners.setdefault(record.name, entry.value)
        if taken != entry.value:
            reason = f"the name {record.name!r} belongs to {taken} already; uninstall one of the two packages"
            record = Record(f"{record.name} ({entry.value})", State.FAILED, reason)
        records.append(record)
    spec = reference.backend()
    info = _build_info()
    spec = replace(spec, distribution="torch-fl-core", version=info.core if info else None)
    records.append(Record(spec.name, State.WAITING, _NOT_OPENED, spec, emulated=True))
    return sorted(records, key=lambda record: record.emulated)


_NOT_OPENED = "not opened yet: that happens at the first use of a device"


def _describe(entry: EntryPointLike) -> Record:
    try:
        spec = entry.load()()
    except (Exception, SystemExit) as error:  # noqa: BLE001  (a vendor's package may raise anything; the others must go on)
        return Record(entry.name, State.FAILED, f"{entry.value} raised {type(error).__name__}: {error}")
    if not isinstance(spec, BackendSpec):
        return Record(
            entry.name, State.FAILED, f"{entry.value} returned {type(spec).__name__}, not a BackendSpec"
        )
    if spec.name != entry.name:
        reason = f"{entry.value} describes {spec.name!r}, but its entry point is called {entry.name!r}"
        return Record(entry.name, State.FAILED, reason)
    distribution = getattr(entry, "dist", None)
    if distribution is not None:
        spec = replace(spec, distribution=distribution.name, version=distribution.version)
    return Record(spec.name, State.WAITING, _NOT_OPENED, spec, emulated=spec.emulated)


def _chosen(named: tuple[str, ...], candidates: list[Record]) -> list[Record]:
    """Resolve the names of FLAGOS_BACKENDS; all faults are collected and raised at once."""
    by_name = {record.name: record for record in candidates}
    for record in candidates:
        for alias in record.spec.aliases if record.spec else ():
            by_name.setdefault(alias, record)
    from difflib import get_close_matches

    chosen: list[Record] = []
    opened: set[str] = set()
    problems: list[str] = []
    for name in named:
        base, _, instance = name.partition(":")
        found = by_name.get(base)
        if found is None:
            close = get_close_matches(base, by_name, n=2, cutoff=0.5)
            hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
            problems.append(f"no backend {base!r} is installed.{hint}")
            continue
        full = f"{found.name}:{instance}" if instance else found.name
        if any(record.name == full for record in chosen):
            problems.append(f"{full!r} is named twice; a second instance is written {found.name}:<any name>.")
            continue
        chosen.append(found._replace(name=full, emulated=False, private_copy=found.name in opened))
        opened.add(found.name)
    if problems:
        installed = ", ".join(sorted(record.name for record in candidates))
        raise BackendError(
            f"flagos: FLAGOS_BACKENDS={','.join(named)}: {' '.join(problems)} Installed: {installed}. "
            "Details: python -m torch_fl.doctor"
        )
    return chosen


def _build_info() -> BuildInfo | None:
    try:
        return build_info()
    except BackendError:  # told by everything that loads core or looks at it
        return None


def core_abi() -> tuple[int, int]:
    """Return the HAL ABI that this core speaks."""
    info = _build_info()
    return info.abi if info else ABI


def _judge(record: Record, exists: Callable[[str], bool] | None) -> Record:
    """Decide what can be decided without opening the library. Without `exists` device nodes are not asked
    for."""
    spec = record.spec
    if record.state is not State.WAITING or spec is None:
        return record
    if spec.unavailable_reason is not None:
        return record._replace(state=State.UNAVAILABLE, reason=spec.unavailable_reason)
    abi = core_abi()
    if spec.built_for_abi[0] != abi[0]:
        theirs, ours = ".".join(map(str, spec.built_for_abi)), ".".join(map(str, abi))
        reason = f"its library was built for HAL ABI {theirs}; this core speaks {ours}; install one for it"
        return record._replace(state=State.ABI_REFUSED, reason=reason)
    if not spec.library.is_file():
        reason = f"its library {spec.library} does not exist: reinstall {spec.distribution or 'its package'}"
        return record._replace(state=State.FAILED, reason=reason)
    if exists is not None and spec.probe_paths and not any(map(exists, spec.probe_paths)):
        nodes = ", ".join(spec.probe_paths)
        reason = f"none of {nodes} exists; FLAGOS_BACKENDS={record.name} opens it nevertheless"
        return record._replace(state=State.NO_DEVICE, reason=reason)
    return record


def merge(records: list[Record], native: list[dict[str, Any]]) -> list[Record]:
    """Return `records` with the states that the runtime has reached since, matched by name."""
    reached = {entry["name"]: entry for entry in native}
    merged = []
    for record in records:
        entry = reached.get(record.name)
        if record.state is State.WAITING and entry is not None and entry["state"] != State.WAITING.value:
            record = record._replace(
                state=State(entry["state"]),
                reason=entry["reason"],
                first_device=entry["first_device"],
                device_count=entry["device_count"],
            )
        merged.append(record)
    return merged


def describe(records: list[Record]) -> list[str]:
    """Return one line per record for people; the report, the doctor and errors print these."""
    lines = []
    for record in records:
        package = (
            f" ({record.spec.distribution} {record.spec.version})"
            if record.spec and record.spec.version
            else ""
        )
        if record.state is State.SELECTED:
            last = record.first_device + record.device_count - 1
            devices = f"flagos:{record.first_device}" + (
                f" to flagos:{last}" if record.device_count > 1 else ""
            )
            lines.append(f"{record.name}{package}: selected, {devices}")
        else:
            lines.append(f"{record.name}{package}: {record.state}: {record.reason}")
    return lines
