"""Processes on an NVIDIA GPU by its driver, or the reason why they are unknown.

It names pids of the host, and newer drivers translate them for one call and not for another (HAMi-core #112): which of
them are believed is for `pertoken.agent.sampler.process_lists`.
"""

from dataclasses import dataclass, replace
from typing import Any

import pynvml

from pertoken.agent.bounds import MAX_PID, scrambled
from pertoken.agent.probes.nvidia.nvml import Call, Nvml, NvmlFault, Scope
from pertoken.agent.readings import DeviceProcess, Unavailable

_PROCESSES = (
    Call("nvmlDeviceGetComputeRunningProcesses", sized=True),
    Call("nvmlDeviceGetComputeRunningProcesses_v2", sized=True),
)
_SM_TIME = Call("nvmlDeviceGetProcessUtilization", sized=True)
_MAX_US = 2**53
"""Microseconds of the year 2255: a later sample is not of now, and what is newer would never be counted."""
_SCRAMBLED = Unavailable(
    "processes",
    "failing",
    "the driver's process list makes no sense (drivers near 535.43 changed its layout unannounced)",
    "update the NVIDIA driver",
)


@dataclass(frozen=True, slots=True)
class GpuProcesses:
    """Processes on a GPU; `missing` where they are unknown. `seen_us` goes into the next reading."""

    processes: tuple[DeviceProcess, ...]
    seen_us: int
    missing: Unavailable | None = None


def read_processes(nvml: Nvml, uuid: str, handle: Any, memory_bytes: int | None, seen_us: int) -> GpuProcesses:
    """Return the processes on a GPU (or MIG device); SM time only where several share it.

    `seen_us` is the newest sample of SM time already counted, driver's microseconds. Raises NvmlFault if the device
    or the library fails.
    """
    try:
        rows = nvml.first(uuid, _PROCESSES, handle)
    except NvmlFault as error:
        if error.fault.scope in (Scope.DEVICE, Scope.LIBRARY):
            raise
        return GpuProcesses((), seen_us, error.fault.missing("processes"))
    named = tuple(DeviceProcess(row.pid, row.usedGpuMemory) for row in rows)
    if scrambled(named, memory_bytes):
        return GpuProcesses((), seen_us, _SCRAMBLED)
    if len(named) < 2:
        return GpuProcesses(named, seen_us)
    return _with_sm_time(nvml, uuid, handle, named, seen_us)


def _with_sm_time(
    nvml: Nvml, uuid: str, handle: Any, processes: tuple[DeviceProcess, ...], seen_us: int
) -> GpuProcesses:
    try:
        rows = nvml.ask(uuid, _SM_TIME, handle, seen_us)
    except NvmlFault as error:
        if error.fault.scope in (Scope.DEVICE, Scope.LIBRARY):
            raise
        if error.fault.code not in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_SUCCESS):
            return GpuProcesses(processes, seen_us)
        rows = []  # nobody computed
    rows = [row for row in rows if row.timeStamp <= _MAX_US]
    used = dict.fromkeys((process.pid for process in processes), 0)
    for row in rows:
        if row.timeStamp <= seen_us:
            continue
        if row.pid in used and not row.smUtil <= 100:
            # Without a part of one process's time the others' would be too much.
            return GpuProcesses(processes, max(seen_us, *(row.timeStamp for row in rows)))
        if row.pid not in used:
            if not (0 < row.pid <= MAX_PID):
                continue
            # A pid of another namespace, or of a process that ended: times cannot be assigned.
            return GpuProcesses(processes, max(seen_us, *(row.timeStamp for row in rows)))
        used[row.pid] += row.smUtil
    newest = max((row.timeStamp for row in rows), default=seen_us)
    timed = tuple(replace(process, sm_time=used[process.pid]) for process in processes)
    return GpuProcesses(timed, max(seen_us, newest))
