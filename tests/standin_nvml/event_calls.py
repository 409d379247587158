"""Calls that wait for Xids."""

import ctypes
import threading
import time

import pynvml

from tests.standin_nvml.machine import Gpu
from tests.standin_nvml.symbols import OK, PTR, UINT, Driver, gpu_symbol, put, symbol

_NO_INSTANCE = 0xFFFFFFFF


class EventCalls(Driver):
    """Waiting for Xids: there is one event set at a time."""

    _told_s: dict[str, float]
    """UUIDs of GPUs whose Xids were ever waited for -> up to when they were reported."""
    _awaited: set[str]
    """UUIDs of the GPUs in the set."""

    @symbol(PTR)
    def nvmlEventSetCreate(self, out: int) -> int:
        self._awaited = set()
        return put(PTR, out, 0x77)

    @gpu_symbol(ctypes.c_ulonglong, PTR)
    def nvmlDeviceRegisterEvents(self, gpu: Gpu, kinds: int, events: int) -> int:
        self._told_s.setdefault(gpu.uuid, self.clock())
        self._awaited.add(gpu.uuid)
        return OK

    @symbol(PTR, PTR, UINT)
    def nvmlEventSetWait_v2(self, events: int, out: int, timeout_ms: int) -> int:
        end_s = time.monotonic() + timeout_ms / 1000
        while True:
            for gpu in self.machine.gpus:
                if gpu.uuid not in self._awaited:
                    continue
                since_s, now_s = self._told_s[gpu.uuid], self.clock()
                for at_s, xid, *instance in gpu.xids:
                    if since_s < at_s <= now_s:
                        self._told_s[gpu.uuid] = at_s
                        event = pynvml.c_nvmlEventData_t.from_address(out)
                        put(PTR, out, self.handle(gpu))
                        event.eventType, event.eventData = pynvml.nvmlEventTypeXidCriticalError, xid
                        event.gpuInstanceId, event.computeInstanceId = instance or (_NO_INSTANCE, _NO_INSTANCE)
                        return OK
            if any(self._lost(gpu) for gpu in self.machine.gpus if gpu.uuid in self._awaited):
                return int(pynvml.NVML_ERROR_GPU_IS_LOST)
            if self.reloaded or not self.initialised:
                return int(pynvml.NVML_ERROR_UNINITIALIZED)
            if time.monotonic() >= end_s:
                return int(pynvml.NVML_ERROR_TIMEOUT)
            threading.Event().wait(0.01)

    @symbol(PTR)
    def nvmlEventSetFree(self, events: int) -> int:
        return OK
