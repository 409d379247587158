"""Process lists of drivers, joined to the processes of this host, and what follows for attribution."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pertoken.agent.host.processes import mapped_files
from pertoken.agent.readings import DeviceProcess, DeviceReading, ProbeReading, Unavailable

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""Its inode is the same on every kernel: PROC_PID_INIT_INO in include/linux/proc_ns.h."""
_DRIVER_LIBRARIES = ("libcuda.so", "libnvidia-ml.so", "libhsa-runtime64.so", "libamdhip64.so")
_REMEDY = "run it in the host's pid namespace: `docker run --pid=host`, or hostPID: true on Kubernetes"

_CONTAINER = Unavailable(
    "processes of the host",
    "denied",
    "this agent runs in a container's pid namespace: processes outside of it, and which of them hold a GPU, are not "
    "seen",
    _REMEDY,
)


def in_host_pid_namespace(proc: Path = Path("/proc")) -> bool:
    """Return whether pids here are the host's, which is what drivers name processes by."""
    try:
        return str((proc / "self/ns/pid").readlink()) == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def lives(pid: int) -> bool:
    """Return whether there is such a process here."""
    return Path(f"/proc/{pid}").exists()


def uses_driver(pid: int) -> bool:
    """Return whether there is such a process here that has a GPU driver's library mapped."""
    return any(name in path for path in mapped_files(pid) or () for name in _DRIVER_LIBRARIES)


class ProcessLists:
    """Keeps of a reading only those process lists that can be joined to processes seen here.

    In the host's pid namespace what ended meanwhile is left out, and a list of which nobody is here is withdrawn.
    Elsewhere a pid the driver names may be of nobody here, or by chance of somebody else: a list with a pid that no
    process using the driver has is withdrawn as a whole, with the reason, rather than guessed at.
    """

    def __init__(
        self,
        in_host: bool,
        uses: Callable[[int], bool] = uses_driver,
        lives: Callable[[int], bool] = lives,
    ) -> None:
        self._in_host, self._uses, self._lives = in_host, uses, lives
        self._withheld: dict[str, Unavailable] = {}
        """Devices whose holders are not known, by UUID."""

    def believed(self, probe: ProbeReading, listed: bool = True) -> ProbeReading:
        """Return the reading without lists that cannot be believed; what is not known stays so until it is listed
        again.

        `listed`: whether processes were asked for.
        """
        if self._in_host and not listed and not self._withheld:
            return probe
        devices = tuple(self._believed(device) for device in probe.devices)
        return replace(
            probe, devices=devices, unavailable=probe.unavailable if self._in_host else (*probe.unavailable, _CONTAINER)
        )

    def _believed(self, device: DeviceReading) -> DeviceReading:
        withheld = next((missing for missing in device.unavailable if missing.metric == "processes"), None)
        if withheld is not None:
            self._withheld[device.uuid] = withheld
            return device
        if device.processes is not None:
            self._withheld.pop(device.uuid, None)
            device = self._joined(device, device.processes)
        missing = self._withheld.get(device.uuid)
        return (
            device._replace(processes=None, unavailable=(*device.unavailable, missing))
            if missing and not device.lost
            else device
        )

    def _joined(self, device: DeviceReading, named: tuple[DeviceProcess, ...]) -> DeviceReading:
        if self._in_host:
            on_host = tuple(process for process in named if self._lives(process.pid))
            strangers = named if not on_host else ()
        else:
            on_host = named
            strangers = tuple(process for process in named if not self._uses(process.pid))
        if not strangers:
            return device._replace(processes=on_host) if len(on_host) < len(named) else device
        pids = ", ".join(str(stranger.pid) for stranger in strangers)
        where = "that are not on this host" if self._in_host else "that this agent's container does not hold"
        reason = f"the driver names processes {where} (pid {pids})"
        self._withheld[device.uuid] = Unavailable("processes", "denied", reason, _REMEDY)
        return device
