"""Critical errors (Xids) as the NVIDIA driver reports them, waited for by a thread of their own.

Some GPUs fall off the bus without one; the lost GPU itself shows that. Source: nvml.h 12.9, nvmlEventSetWait_v2.
"""

import ctypes
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import pynvml

from pertoken.agent.probes.nvidia.nvml import Call, Nvml, NvmlFault, Scope
from pertoken.agent.readings import Unavailable

WAIT_MS = 1000
"""How long one wait lasts, and so how long the release of the driver may take."""
_CREATE, _FREE = Call("nvmlEventSetCreate"), Call("nvmlEventSetFree")
_REGISTER = Call("nvmlDeviceRegisterEvents")
NO_INSTANCE = 0xFFFFFFFF
"""NVML's number for no GPU instance and no compute instance."""


@dataclass(frozen=True, slots=True)
class Xid:
    """A critical error of a GPU, by its UUID. The instances are those of MIG; None: the driver names none."""

    uuid: str
    number: int
    gpu_instance: int | None
    compute_instance: int | None


class XidWatch:
    """One event set over some GPUs. `calls` counts what its thread asked of the driver."""

    def __init__(self) -> None:
        self.calls = 0
        self._pending: SimpleQueue[Xid] = SimpleQueue()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._events: Any = None
        self._uuids: dict[int, str] = {}
        """UUIDs of the GPUs in the set, by their handles' addresses."""

    def watch(self, nvml: Nvml, handles: Mapping[str, Any]) -> dict[str, Unavailable]:
        """Wait for Xids of these GPUs, too (handles by UUID); what gaps that leaves, by UUID.

        To be repeated now and then: a GPU found later joins the set, and a set that broke, as one does when a GPU of
        it falls off the bus, is made again. Raises NvmlFault if the library fails.
        """
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
        unavailable = {}
        try:
            if self._thread is None:
                self._events, self._uuids = nvml.ask("", _CREATE), {}
            for uuid, handle in handles.items():
                if self._uuids.get(_address(handle)) == uuid:
                    continue
                try:
                    nvml.ask(uuid, _REGISTER, handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
                    self._uuids[_address(handle)] = uuid
                except NvmlFault as error:
                    if error.fault.scope is Scope.LIBRARY:
                        raise
                    unavailable[uuid] = error.fault.missing("xid")
        except NvmlFault as error:
            if error.fault.scope is Scope.LIBRARY:
                raise
            return dict.fromkeys(handles, error.fault.missing("xid"))
        if self._thread is None and self._uuids:
            self._stop = threading.Event()
            waiting = (self._events, self._uuids, self._stop)
            self._thread = threading.Thread(target=self._wait, args=waiting, name="xid", daemon=True)
            self._thread.start()
        elif self._thread is None:
            with suppress(NvmlFault):
                nvml.ask("", _FREE, self._events)
        return unavailable

    def pending(self) -> tuple[Xid, ...]:
        """Return the Xids that were reported since the last call."""
        xids = []
        with suppress(Empty):
            while True:
                xids.append(self._pending.get_nowait())
        return tuple(xids)

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
                break  # the driver is gone, or a GPU of the set is lost: the probe begins a new wait
            uuid = uuids.get(_address(event.device))
            if uuid is not None:
                gpu, compute = (None if instance == NO_INSTANCE else instance for instance in _instances(event))
                self._pending.put(Xid(uuid, event.eventData, gpu, compute))
        with suppress(pynvml.NVMLError):
            pynvml.nvmlEventSetFree(events)


def _instances(event: Any) -> tuple[int, int]:
    return event.gpuInstanceId, event.computeInstanceId


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
