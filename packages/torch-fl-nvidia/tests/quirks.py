"""What the kit must know of this library: how its fake SDK is told to fail, and what CUDA does its own way.

The library and the fake are named by the environment (conftest.py); without a fake, the machine's own CUDA is
used.
"""

from __future__ import annotations

import ctypes
import os

from torch_fl_base.testing.quirks import Exemption, Quirks

FAKE = os.environ.get("TORCH_FL_NVIDIA_FAKE")
if FAKE:
    # The library looks for a copy that is loaded already before it looks anywhere else.
    ctypes.CDLL(FAKE, mode=ctypes.RTLD_GLOBAL)

#: The call of CUDA's runtime that stands behind a function of the HAL.
CALLS = {
    "system.init": "GetDeviceCount",
    "device.memory_info": "MemGetInfo",
    "device.synchronize": "DeviceSynchronize",
    "memory.allocate": "Malloc",
    "memory.release": "Free",
    "memory.copy": "Memcpy",
    "memory.copy_async": "MemcpyAsync",
    "memory.fill": "Memset",
    "memory.fill_async": "MemsetAsync",
    "host.allocate": "HostAlloc",
    "host.release": "FreeHost",
    "host.register_range": "HostRegister",
    "host.unregister_range": "HostUnregister",
    "peer.can_access": "DeviceCanAccessPeer",
    "peer.enable": "DeviceEnablePeerAccess",
    "peer.disable": "DeviceDisablePeerAccess",
    "peer.copy_async": "MemcpyPeerAsync",
    "stream.create": "StreamCreateWithPriority",
    "stream.destroy": "StreamDestroy",
    "stream.priority_range": "DeviceGetStreamPriorityRange",
    "stream.query": "StreamQuery",
    "stream.synchronize": "StreamSynchronize",
    "stream.wait_event": "StreamWaitEvent",
    "stream.host_callback": "LaunchHostFunc",
    "event.create": "EventCreateWithFlags",
    "event.destroy": "EventDestroy",
    "event.record": "EventRecord",
    "event.query": "EventQuery",
    "event.synchronize": "EventSynchronize",
    "event.elapsed": "EventElapsedTime",
    "graph.begin_capture": "StreamBeginCapture",
    "graph.end_capture": "StreamEndCapture",
    "graph.is_capturing": "StreamIsCapturing",
    "graph.launch": "GraphLaunch",
    "graph.destroy": "GraphExecDestroy",
    "graph.exchange_thread_mode": "ThreadExchangeStreamCaptureMode",
    "async_alloc.allocate_async": "MallocAsync",
    "async_alloc.release_async": "FreeAsync",
    "async_alloc.trim": "DeviceGetDefaultMemPool",
}


def _inject(function: str, nth: int) -> dict[str, str]:
    return {"FAKE_SDK_FAIL": f"{CALLS[function]}:{nth}"} if function in CALLS else {}


def _lose_device(device: int) -> dict[str, str]:
    del device  # the test copies on the device that is to be lost before it copies on others
    return {"FAKE_SDK_FAIL": "Memcpy:1=700"}


_NO_CALL = "is answered without a call of CUDA's runtime that could fail"
_TOLERATED = "a call of CUDA's that fails leaves the property untold"
_ALWAYS_CALLED = "CUDA's GetDevice stands behind every function of a device, so that it fails in preparing"

#: What fails in no way that the fake could be told.
NOT_INJECTED = {
    "system.shutdown": _NO_CALL,
    "system.info": _NO_CALL,
    "system.capability": _NO_CALL,
    "device.set_current": _NO_CALL,
    "device.get_current": _ALWAYS_CALLED,
    "device.properties": _TOLERATED,
    "device.health": _NO_CALL,
    "memory.pointer_info": _TOLERATED,
    "stream.default_stream": _NO_CALL,
    "stream.native_handle": _NO_CALL,
    "stream.device": _NO_CALL,
}
UNSUPPORTED = [
    Exemption(f"gen_12_failure_of_any_function_changes_nothing[{function}]", reason)
    for function, reason in NOT_INJECTED.items()
]
UNSUPPORTED.append(Exemption("gen_12_failing_count_recovers", "devices are counted once, by init"))
if not FAKE:
    threads = "CUDA keeps its threads until the process ends"
    UNSUPPORTED.append(Exemption("gen_09_no_thread_outlives_shutdown", threads))

QUIRKS = Quirks(
    library=os.environ.get("TORCH_FL_NVIDIA_HAL"),
    name="nvidia",
    unsupported=tuple(UNSUPPORTED),
    inject=_inject if FAKE else None,
    lose_device=_lose_device if FAKE else None,
)
