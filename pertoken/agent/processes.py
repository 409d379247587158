"""This host's processes, their listening ports and what is mapped into them, as discovery looks at them."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a process listens (TCP)."""

    ip: str
    port: int


@dataclass(frozen=True, slots=True)
class Process:
    """One process. `start_ms` is Unix time; None if it cannot be seen."""

    pid: int
    ppid: int
    argv: tuple[str, ...]
    start_ms: int | None = None
    listening: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class HostProcesses:
    """All processes of the host at one instant."""

    processes: Mapping[int, Process]
    unowned: tuple[Address, ...] = ()
    """Listening ports whose process cannot be seen with this agent's rights."""
    libraries: Callable[[int], frozenset[str] | None] = lambda pid: frozenset()
    """Files mapped into a process; None if that may not be seen."""
    own_ips: frozenset[str] = frozenset({"127.0.0.1", "::1"})
    """Addresses that lead to this host."""

    def group(self, root: int) -> tuple[int, ...]:
        """`root` and all processes it started, directly or not, by rising pid."""
        group = {root}
        children: dict[int, list[int]] = {}
        for process in self.processes.values():
            children.setdefault(process.ppid, []).append(process.pid)
        waiting = [root]
        while waiting:
            for pid in children.get(waiting.pop(), ()):
                if pid not in group:
                    group.add(pid)
                    waiting.append(pid)
        return tuple(sorted(group))


def host_processes() -> HostProcesses:
    """The processes of this host now, as far as they may be seen."""
    listening: dict[int | None, set[Address]] = {}
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr:
            listening.setdefault(each.pid, set()).add(Address(each.laddr.ip, each.laddr.port))
    processes = {}
    for process in psutil.process_iter(["pid", "ppid", "cmdline"]):
        pid = process.pid
        addresses = sorted(listening.get(pid, ()), key=lambda address: (address.port, address.ip))
        argv = tuple(process.info["cmdline"] or ())
        processes[pid] = Process(pid, process.info["ppid"] or 0, argv, start_ms(pid), tuple(addresses))
    own_ips = frozenset(each.address for addresses in psutil.net_if_addrs().values() for each in addresses)
    return HostProcesses(processes, tuple(listening.get(None, ())), mapped_files, own_ips)


def start_ms(pid: int) -> int | None:
    """Unix time in milliseconds at which a process started; None if there is none.

    The boot time is read once for the life of this program: a clock that is set later must not make every process
    look restarted. Source: proc_pid_stat(5), field 22.
    """
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return round(1000 * (_boot_s() + int(fields[19]) / os.sysconf("SC_CLK_TCK")))


def mapped_files(pid: int) -> frozenset[str] | None:
    """Paths of the shared objects mapped into a process; None if they may not be seen. Source: proc_pid_maps(5)."""
    try:
        lines = (_PROC / str(pid) / "maps").read_text(errors="replace").splitlines()
    except PermissionError:
        return None
    except OSError:
        return frozenset()
    paths = (line.split(maxsplit=5)[-1].removesuffix(" (deleted)") for line in lines if ".so" in line)
    return frozenset(path for path in paths if path.startswith("/"))


def boot_ms() -> int:
    """Unix time in milliseconds at which the host booted, as this program takes it for all `start_ms`.

    Now minus the time since boot: another program, or this one restarted after a clock step, takes another one.
    """
    return round(1000 * _boot_s())


@cache
def _boot_s() -> float:
    # /proc/stat tells it too, but cut to whole seconds: too coarse to tell what started before what.
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
