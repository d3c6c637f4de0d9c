"""Types of the bindings: one entry per bound function, grouped by the subject that owns it."""

from collections.abc import Callable
from typing import Any

import torch

class devices:
    """Backends and their devices (csrc/bindings/bind_devices.cpp)."""

    @staticmethod
    def configure(settings: dict[str, str]) -> None:
        """Hand the values of the FLAGOS_ variables to the runtime; only before the first use."""
    @staticmethod
    def set_backend_requests(requests: list[dict[str, Any]]) -> None:
        """Replace the list of backends. Keys: name, path, private_copy, emulated, accelerator (real
        hardware), companion (a device type of torch), skip (why it is not to be opened). Opens nothing."""
    @staticmethod
    def backend_records() -> list[dict[str, Any]]:
        """One dict per request: name, path, emulated, state ("selected", "no device", "SDK missing",
        "ABI refused", "failed", "waiting"), reason, first_device, device_count, host_access, abi (tuple or
        None), …"""
    @staticmethod
    def allow_emulated() -> None:
        """From now on device_count opens emulated backends too, where no other has a device."""
    @staticmethod
    def activate() -> int:
        """Open and initialise the backends; the number of devices."""
    @staticmethod
    def activated() -> bool:
        """Whether devices are open."""
    @staticmethod
    def device_count() -> int:
        """Number of devices; opens backends that are not emulated. Never raises."""
    @staticmethod
    def current_device() -> int:
        """The calling thread's current device; 0 before activation, which this does not cause."""
    @staticmethod
    def set_device(index: int) -> None:
        """Make a device current on the calling thread; −1 leaves it."""
    @staticmethod
    def exchange_device(index: int) -> int:
        """Make a device current on the calling thread, −1 leaves it; the one before."""
    @staticmethod
    def synchronize(index: int = -1) -> None:
        """Wait until all work queued on the device has finished; −1: the current one."""
    @staticmethod
    def properties(index: int = -1) -> dict[str, Any]:
        """Fields of flagos_hal_device_properties; None for what the vendor does not tell; plus backend,
        local_index, driver_version, sdk_version, dtypes (list of torch.dtype, None if not told)."""
    @staticmethod
    def can_access_peer(device: int, peer: int) -> bool:
        """Whether kernels of `device` can address memory of `peer`; False between backends."""
    @staticmethod
    def health(index: int = -1) -> str:
        """Empty while the device can be used, else why not. Waits for nothing."""
    @staticmethod
    def in_bad_fork() -> bool:
        """Whether this process was forked from one that had opened the devices."""
    @staticmethod
    def throw_if_bad_fork() -> None:
        """Raise the sentence that names the cure if in_bad_fork()."""
    @staticmethod
    def shutdown() -> None:
        """Wait for all devices and close the backends. Afterwards releases do nothing and uses raise."""
    @staticmethod
    def is_shut_down() -> bool:
        """Whether shutdown was called."""

class streams:
    """What torch.Stream and torch.Event do not offer themselves (csrc/bindings/bind_stream.cpp). Streams are
    (stream_id, device_index)."""

    @staticmethod
    def current_stream(device: int = -1) -> tuple[int, int]:
        """The calling thread's current stream of a device; −1: of the current device."""
    @staticmethod
    def default_stream(device: int = -1) -> tuple[int, int]:
        """The default stream of a device."""
    @staticmethod
    def set_current_stream(stream_id: int, device: int) -> None:
        """Make a stream current on the calling thread; the current device stays."""
    @staticmethod
    def new_stream(device: int = -1, priority: int = 0) -> tuple[int, int]:
        """A stream from the pool of that priority; lower is more urgent."""
    @staticmethod
    def hal_handle(stream_id: int, device: int) -> int:
        """The flagos_hal_stream behind a stream."""
    @staticmethod
    def external_stream(hal_stream: int, device: int = -1) -> tuple[int, int]:
        """Take over a flagos_hal_stream made elsewhere, which stays alive; the same one gives the same id."""
    @staticmethod
    def native_handle(stream_id: int, device: int) -> int:
        """The vendor's own handle of a stream; 0 for a null one."""
    @staticmethod
    def priority(stream_id: int, device: int) -> int:
        """The priority that a stream was made with."""
    @staticmethod
    def priority_range(device: int = -1) -> tuple[int, int]:
        """(least, greatest), as torch.cuda.Stream.priority_range."""

class generators:
    """Random generators (csrc/bindings/bind_generator.cpp)."""

    @staticmethod
    def default_generator(device: int = -1) -> torch.Generator:
        """The default generator of a device; −1: of the current one."""
    @staticmethod
    def seed_all(seed: int) -> None:
        """Seed the default generators of all devices, also of those that do not exist yet. Activates
        nothing."""
    @staticmethod
    def reserve(generator: torch.Generator, count: int) -> tuple[int, int]:
        """Take `count` numbers out of a generator's stream; (seed, offset of the first)."""

class memory:
    """The device and pinned allocators (csrc/bindings/bind_memory.cpp). Pointers are addresses as
    integers."""

    @staticmethod
    def stats(device: int) -> dict[str, Any]:
        """Nested as torch.cuda.memory_stats_as_nested_dict."""
    @staticmethod
    def reset_peak_stats(device: int) -> None: ...
    @staticmethod
    def reset_accumulated_stats(device: int) -> None:
        """Totals start again from 0; present values stay."""
    @staticmethod
    def info(device: int) -> tuple[int, int]:
        """(free, total) bytes."""
    @staticmethod
    def empty_cache() -> None:
        """Give the segments without a live block back, on all devices; waits for work that may still use
        them."""
    @staticmethod
    def set_fraction(fraction: float, device: int) -> None: ...
    @staticmethod
    def fraction(device: int) -> float: ...
    @staticmethod
    def snapshot() -> list[dict[str, Any]]:
        """All segments with their blocks, with the keys of torch.cuda.memory_snapshot."""
    @staticmethod
    def history() -> list[list[dict[str, Any]]]:
        """The recorded actions of each device, as device_traces of torch.cuda.memory._snapshot."""
    @staticmethod
    def record_history(
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "python",
        max_entries: int = ...,
        clear_history: bool = False,
    ) -> None: ...
    @staticmethod
    def attach_out_of_memory_observer(observer: Callable[[int, int, int, int], object]) -> None:
        """Call observer(device, asked, total, free) before each out-of-memory error, for the life of the
        process."""
    @staticmethod
    def allocate(size: int, device: int, stream_id: int) -> int:
        """Raw memory of the caching allocator for use on a stream; 0 for 0 bytes."""
    @staticmethod
    def release(pointer: int) -> None:
        """Give back what allocate gave; 0 is fine, anything else is a ValueError."""
    @staticmethod
    def record_stream(pointer: int, stream_id: int, device: int) -> None:
        """Keep the block around `pointer` from reuse until the stream has passed the point where it is
        freed."""
    @staticmethod
    def device_of_pointer(pointer: int) -> int:
        """The device whose memory the address lies in; -1 if none."""
    @staticmethod
    def set_mode(mode: str) -> None:
        """Choose the allocator for later allocations: "caching" or "direct"."""
    @staticmethod
    def mode() -> str: ...
    @staticmethod
    def host_stats() -> dict[str, Any]: ...
    @staticmethod
    def reset_peak_host_stats() -> None: ...
    @staticmethod
    def reset_accumulated_host_stats() -> None: ...
    @staticmethod
    def host_empty_cache() -> None: ...
    @staticmethod
    def is_pinned(pointer: int) -> bool:
        """Whether the address lies in pinned memory of any backend."""
    @staticmethod
    def is_pinned_for(pointer: int, device: int) -> bool:
        """Whether the address is pinned for the backend of `device`."""
    @staticmethod
    def record_pinned_use(pointer: int, stream_id: int, device: int) -> bool:
        """Keep a pinned block from reuse until the stream has passed the point where it is freed; True if it
        is ours."""

class hal:
    """HAL libraries opened by hand, for tests and tools (csrc/bindings/bind_hal.cpp)."""

    class LoadError(RuntimeError):
        """A HAL library could not be used; the text says why and what to do."""

        kind: str
        """"not found", "not a library", "no entry point", "ABI refused", "bad table", "init failed"."""

    class Library:
        """An open HAL library."""

        @property
        def name(self) -> str: ...
        @property
        def path(self) -> str: ...
        @property
        def abi(self) -> tuple[int, int]: ...
        @property
        def violations(self) -> int: ...
        @property
        def optional_groups(self) -> list[str]: ...
        @property
        def functions(self) -> dict[str, int]:
            """Address of each function by "group.member", through the layers; none is 0."""
        def describe_failure(self, status: int) -> str:
            """One line on the calling thread's last failure, which had this status."""

    @staticmethod
    def open(
        name: str,
        path: str,
        *,
        private_copy: bool = False,
        validate: bool = False,
        trace: bool = False,
        trace_path: str = "",
        log_violations: bool = True,
    ) -> hal.Library:
        """Open a HAL library and negotiate the ABI; calls nothing but its query. Raises LoadError."""
    @staticmethod
    def members() -> list[dict[str, Any]]:
        """The functions of the HAL's tables: name, id, required, since (minor of ABI 1)."""
    @staticmethod
    def status_name(status: int) -> str: ...
    @staticmethod
    def status_text(status: int) -> str: ...

class compat:
    """Another device type's name for flagos (csrc/bindings/bind_compat.cpp)."""

    @staticmethod
    def rename_device_type(name: str, types: tuple[type, ...]) -> None:
        """Let the device type `name`, which must have no devices, mean flagos in operators and in the
        constructors of the Python types given. Raises: RuntimeError if a name is on already."""
    @staticmethod
    def restore_device_type() -> None:
        """Undo it; nothing to undo is no error."""

class ops:
    """Operators: registration and counters (csrc/bindings/bind_ops.cpp)."""

    @staticmethod
    def register() -> None:
        """Register all kernels now, and not only when a device is first used."""
    @staticmethod
    def registered() -> dict[str, int]:
        """How many aten overloads have a kernel: unboxed wrappers (hot) and by schema (boxed)."""
    @staticmethod
    def counters() -> list[tuple[str, str, int, int, int, int]]:
        """(operator, source, device, calls, bytes copied between host and device for it, nanoseconds while
        timing was on) since the start or the last reset."""
    @staticmethod
    def set_timing(on: bool) -> None:
        """Measure how long each call takes the host; costs every call a little."""
    @staticmethod
    def as_companion(tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the companion's device type over the memory of a flagos tensor."""
    @staticmethod
    def from_companion(tensor: torch.Tensor) -> torch.Tensor:
        """A flagos tensor over the memory of a tensor of the companion."""
    @staticmethod
    def settle_autograd() -> bool:
        """Wait until autograd's workers have left all backward passes; False if that cannot be known."""
    @staticmethod
    def reset_counters() -> None: ...

class routes:
    """Which source serves an operator (csrc/bindings/bind_routes.cpp). A candidate is {"source": name} with,
    if wanted, "when" (a condition) and "on_error" ("raise" or "next")."""

    @staticmethod
    def sources() -> list[str]: ...
    @staticmethod
    def operators() -> list[str]:
        """The operators that are routed: "aten::add.Tensor"."""
    @staticmethod
    def backends() -> list[str]:
        """The backends with devices, in the order of these; opens them."""
    @staticmethod
    def capability(op: str, backend: str) -> list[str]:
        """The sources that have an implementation here and now."""
    @staticmethod
    def decide(op: str, backend: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Which candidate would serve a call, and why not the others; without arguments, as far as known."""
    @staticmethod
    def on_open(function: Callable[[], Any]) -> None:
        """Have a function called once the devices are open; at once if they are."""
    @staticmethod
    def publish(backend: str, routes: dict[str, Any], default: list[dict[str, Any]]) -> int:
        """Replace a backend's routes; the number of its table."""
    @staticmethod
    def update(backend: str, routes: dict[str, Any]) -> int:
        """Change the routes of some operators; None gives one the default order again."""
    @staticmethod
    def push(routes: dict[str, dict[str, Any]]) -> None:
        """Lay routes over all others for this thread and the backward passes that it starts."""
    @staticmethod
    def pop() -> None: ...
    @staticmethod
    def register_python(source: str, op: str, backend: str | None, function: Callable[..., Any]) -> None:
        """Let a Python function implement an operator for a source; NotImplemented declines."""
    @staticmethod
    def unregister_python(source: str, op: str, backend: str | None) -> None: ...
    @staticmethod
    def set_check(on: bool) -> None:
        """Run every operator by a second source too, and compare."""
    @staticmethod
    def check_report() -> list[dict[str, str]]: ...
    @staticmethod
    def set_fallback(policy: str) -> None:
        """allow, warn or error: what an operator of a real accelerator that runs on the host is."""
    @staticmethod
    def fallback() -> str: ...
    @staticmethod
    def on_fallback(function: Callable[[str, str], Any]) -> None:
        """Have a function called with (operator, device) at the first fallback of each operator."""
    @staticmethod
    def declines() -> list[tuple[str, str, int]]:
        """(operator, source, how often it declined)."""
