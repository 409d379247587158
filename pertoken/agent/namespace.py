"""Whether this agent sees the host's processes or only those of its container, and what follows for attribution."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pertoken.agent.processes import mapped_files
from pertoken.agent.readings import DeviceReading, Gap, ProbeReading

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""Its inode is the same on every kernel: PROC_PID_INIT_INO in include/linux/proc_ns.h."""
_DRIVER_LIBRARIES = ("libcuda.so", "libnvidia-ml.so", "libhsa-runtime64.so", "libamdhip64.so")
_REMEDY = "run it in the host's pid namespace: `docker run --pid=host`, or hostPID: true on Kubernetes"

_CONTAINER = Gap(
    "processes of the host",
    "denied",
    "this agent runs in a container's pid namespace: processes outside of it, and which of them hold a GPU, are not "
    "seen",
    _REMEDY,
)


def in_host_pid_namespace(proc: Path = Path("/proc")) -> bool:
    """Whether pids here are the host's, which is what drivers name processes by."""
    try:
        return str((proc / "self/ns/pid").readlink()) == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def uses_driver(pid: int) -> bool:
    """Whether there is such a process here that has a GPU driver's library mapped."""
    return any(name in path for path in mapped_files(pid) or () for name in _DRIVER_LIBRARIES)


class ProcessLists:
    """Keeps of a reading only those process lists that can be joined to processes seen here.

    Outside the host's pid namespace a pid the driver names may be of nobody here, or by chance of somebody else: a
    list with a pid that no process using the driver has is withdrawn, with the reason, rather than guessed at.
    """

    def __init__(self, in_host: bool, uses: Callable[[int], bool] = uses_driver) -> None:
        self._in_host, self._uses = in_host, uses
        self._withdrawn: dict[str, Gap] = {}

    def believed(self, probe: ProbeReading) -> ProbeReading:
        """The reading without lists that cannot be believed; what was withdrawn stays so until it is listed anew."""
        if self._in_host:
            return probe
        devices = tuple(self._believed(device) for device in probe.devices)
        return replace(probe, devices=devices, gaps=(*probe.gaps, _CONTAINER))

    def _believed(self, device: DeviceReading) -> DeviceReading:
        if device.processes is not None:
            self._withdrawn.pop(device.uuid, None)
            if unknown := [held.pid for held in device.processes if not self._uses(held.pid)]:
                pids = ", ".join(map(str, unknown))
                reason = f"the driver names processes that this agent's container does not hold (pid {pids})"
                self._withdrawn[device.uuid] = Gap("processes", "denied", reason, _REMEDY)
        gap = self._withdrawn.get(device.uuid)
        return replace(device, processes=None, gaps=(*device.gaps, gap)) if gap else device
