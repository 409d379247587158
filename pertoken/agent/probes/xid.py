"""Critical errors (Xids) as the NVIDIA driver tells them, waited for by a thread of their own.

Some GPUs fall off the bus without one; the lost GPU itself tells that. Source: nvml.h 12.9, nvmlEventSetWait_v2.
"""

import threading
from collections.abc import Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

import pynvml

from pertoken.agent.probes.nvml import Call, Nvml, NvmlFault, Scope
from pertoken.agent.readings import Gap, Happened

WAIT_MS = 1000
"""How long one wait lasts, and so how long letting go of the driver may take."""
_CREATE, _FREE = Call("nvmlEventSetCreate"), Call("nvmlEventSetFree")
_REGISTER = Call("nvmlDeviceRegisterEvents")


class XidWatch:
    """One event set over some GPUs. `calls` counts what its thread asked of the driver."""

    def __init__(self) -> None:
        self.calls = 0
        self._told: SimpleQueue[Happened] = SimpleQueue()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, nvml: Nvml, handles: Mapping[str, Any]) -> dict[str, Gap]:
        """Wait for Xids of these GPUs (handles by UUID); what gaps that leaves, by UUID.

        Raises NvmlFault if the library fails.
        """
        gaps = {}
        try:
            events = nvml.ask("", _CREATE)
        except NvmlFault as error:
            if error.fault.scope is Scope.LIBRARY:
                raise
            return dict.fromkeys(handles, error.fault.gap("xid"))
        for uuid, handle in handles.items():
            try:
                nvml.ask(uuid, _REGISTER, handle, pynvml.nvmlEventTypeXidCriticalError, events)
            except NvmlFault as error:
                if error.fault.scope is Scope.LIBRARY:
                    raise
                gaps[uuid] = error.fault.gap("xid")
        if len(gaps) < len(handles):
            uuids = {_address(handle): uuid for uuid, handle in handles.items()}
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._wait, args=(events, uuids, self._stop), name="xid", daemon=True
            )
            self._thread.start()
        return gaps

    def told(self) -> tuple[Happened, ...]:
        """What was told since this was last asked."""
        found = []
        with suppress(Empty):
            while True:
                found.append(self._told.get_nowait())
        return tuple(found)

    def stop(self) -> None:
        """Wait no longer: returns when the thread is out of the driver."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5 * WAIT_MS / 1000)
            self._thread = None

    def _wait(self, events: Any, uuids: Mapping[int, str], stop: threading.Event) -> None:
        while not stop.is_set():
            self.calls += 1
            try:
                event = pynvml.nvmlEventSetWait_v2(events, WAIT_MS)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_TIMEOUT:
                    continue
                break  # the driver is gone; the probe notices by itself and starts anew
            uuid = uuids.get(_address(event.device))
            if uuid is not None:
                where = "" if event.gpuInstanceId in (0, 0xFFFFFFFF) else f" in its MIG instance {event.gpuInstanceId}"
                text = f"the driver reported Xid {event.eventData}{where}; NVIDIA's Xid list says what it means"
                self._told.put(Happened(uuid, "xid", text))
        with suppress(pynvml.NVMLError):
            pynvml.nvmlEventSetFree(events)


def _address(handle: Any) -> int:
    import ctypes

    return ctypes.cast(handle, ctypes.c_void_p).value or 0
