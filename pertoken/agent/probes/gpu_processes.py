"""Which processes hold an NVIDIA GPU, by pids of the host, or why that cannot be said.

The driver knows no pid namespaces: it names pids of the host, and newer ones translate them for one call and not for
another (HAMi-core #112). Read from inside a container, a pid may be somebody else's of the same number.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pynvml

from pertoken.agent.probes.nvml import Call, Nvml, NvmlFault, Scope
from pertoken.agent.readings import DeviceProcess, Gap

_PROCESSES = (
    Call("nvmlDeviceGetComputeRunningProcesses", sized=True),
    Call("nvmlDeviceGetComputeRunningProcesses_v2", sized=True),
)
_SM_TIME = Call("nvmlDeviceGetProcessUtilization", sized=True)
_PID_MAX = 2**22
_HOST_NAMESPACE = 0xEFFFFFFC
"""Inode of the host's pid namespace. Source: Linux, include/linux/proc_ns.h, PROC_PID_INIT_INO."""
_SCRAMBLED = Gap(
    "processes",
    "failing",
    "the driver's process list makes no sense (drivers near 535.43 changed its layout unannounced)",
    "update the NVIDIA driver",
)
_FOREIGN = Gap(
    "processes",
    "denied",
    "the pids that the driver names cannot be told for sure from here",
    "run the agent in the host's pid namespace (`--pid=host`, or `hostPID: true`)",
)


@dataclass(frozen=True, slots=True)
class Held:
    """Who holds a GPU; `gap` where that is not known. `seen_us` goes into the next reading."""

    processes: tuple[DeviceProcess, ...]
    seen_us: int
    gap: Gap | None = None


def read_processes(nvml: Nvml, uuid: str, handle: Any, memory_bytes: int | None, seen_us: int, proc: Path) -> Held:
    """The processes on a GPU (or MIG device); SM time only where several must be told apart.

    `seen_us` is the newest sample of SM time already counted, driver's microseconds. Raises NvmlFault if the device
    or the library fails.
    """
    try:
        rows = nvml.first(uuid, _PROCESSES, handle)
    except NvmlFault as error:
        if error.fault.scope in (Scope.DEVICE, Scope.LIBRARY):
            raise
        return Held((), seen_us, error.fault.gap("processes"))
    named = tuple(DeviceProcess(row.pid, row.usedGpuMemory) for row in rows)
    for row in named:
        too_much = row.memory_bytes and memory_bytes and row.memory_bytes > memory_bytes
        if not 0 < row.pid <= _PID_MAX or too_much:
            return Held((), seen_us, _SCRAMBLED)
    here = in_host_namespace(proc)
    alive = tuple(row for row in named if (proc / str(row.pid)).exists())
    sure = bool(alive) if here else len(alive) == len(named) and all(_computes(proc, row.pid) for row in alive)
    if named and not sure:
        return Held((), seen_us, _FOREIGN)
    if len(alive) < 2:
        return Held(alive, seen_us)
    return _with_sm_time(nvml, uuid, handle, alive, seen_us)


def in_host_namespace(proc: Path) -> bool:
    """Whether pids seen from here are the host's."""
    try:
        return (proc / "self/ns/pid").stat().st_ino == _HOST_NAMESPACE
    except OSError:
        return True  # a kernel without pid namespaces has only the host's


def _computes(proc: Path, pid: int) -> bool:
    """Whether a process has the driver's library or device mapped into it, so that its number is no coincidence."""
    try:
        maps = (proc / str(pid) / "maps").read_text(errors="replace")
    except OSError:
        return False
    return "libcuda" in maps or "/dev/nvidia" in maps


def _with_sm_time(nvml: Nvml, uuid: str, handle: Any, processes: tuple[DeviceProcess, ...], seen_us: int) -> Held:
    try:
        rows = nvml.ask(uuid, _SM_TIME, handle, seen_us)
    except NvmlFault as error:
        if error.fault.scope in (Scope.DEVICE, Scope.LIBRARY):
            raise
        if error.fault.code not in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_SUCCESS):
            return Held(processes, seen_us)
        rows = []  # nobody computed
    used = dict.fromkeys((process.pid for process in processes), 0)
    for row in rows:
        if row.timeStamp <= seen_us:
            continue
        if row.pid not in used:
            if not (0 < row.pid <= _PID_MAX):
                continue
            # A pid of another namespace, or of a process that ended: who is who cannot be said.
            return Held(processes, max(seen_us, *(each.timeStamp for each in rows)))
        used[row.pid] += row.smUtil
    newest = max((row.timeStamp for row in rows), default=seen_us)
    timed = tuple(replace(process, sm_time=used[process.pid]) for process in processes)
    return Held(timed, max(seen_us, newest))
