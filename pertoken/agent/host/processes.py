"""This host's processes, their listening ports and what is mapped into them, as discovery looks at them.

This module is the only one that reads /proc for them. psutil serves for addresses of interfaces and for CPU times;
for the list itself it does not. It reports neither sockets of other network namespaces (containers), nor sockets whose
process is hidden, nor starts that no clock step moves. It costs more, too: 76.6 ms of CPU against 57.5 ms for one look
at 177 processes, and 82.9 ms against 63.4 ms at 395 (`process_iter` with four fields and `net_connections("tcp")`,
medians of 7 turns of 10 on 2 EPYC cores, November 2026). Looked at every second, that would be 8 % of a core and 6 %.
"""

import ipaddress
import os
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import psutil

from pertoken.agent.host.published_ports import Forward, docker_ports, forwarded, rootless_ports

_PROC = Path("/proc")
_CLOCK_TICKS_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a process listens (TCP)."""

    ip: str
    port: int
    reached: tuple[str, int] | None = None
    """Where it is reached from here, if it is in another network namespace, as in a container: the address of that
    namespace, or the address and port of this host that are published for it."""
    also: tuple[tuple[str, int], ...] = ()
    """Where else it is reached from here."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process. `start_ms` is the time from the host's boot to its start; None if it cannot be seen."""

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
    """Listening sockets whose process cannot be seen with this agent's rights; several may have one address."""
    libraries: Callable[[int], frozenset[str] | None] = lambda pid: frozenset()
    """Files mapped into a process; None if that may not be seen."""
    environment: Callable[[int, Collection[str]], Mapping[str, str]] = lambda pid, names: {}
    """These variables of a process's environment, as far as they may be seen."""
    own_ips: frozenset[str] = frozenset({"127.0.0.1", "::1"})
    """Addresses that lead to this host."""
    pod_namespace: Callable[[int], str | None] = lambda pid: None
    """Kubernetes namespace of the pod a process is in; None if it may not be seen."""
    name: str = ""
    """Name of this host."""

    def rivals(self, pids: Collection[int], address: Address) -> int:
        """Return how many sockets of other processes than `pids` listen on `address` too (SO_REUSEPORT).

        The kernel hands each connection to any one of them. A socket that processes inherited is one socket.
        """
        owners = [process.pid for process in self.processes.values() if address in process.listening]
        others = [pid for pid in owners if pid not in pids]
        hidden = self.unowned.count(address)
        # Where none of `pids` is seen to own one, theirs is among the hidden ones.
        return len(others) + (hidden if len(others) < len(owners) else max(0, hidden - 1))

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
    pids = sorted(int(name) for name in os.listdir(_PROC) if name.isdecimal())  # noqa: PTH208 - a Path for each is slow
    argvs = {pid: _argv(pid) for pid in pids}
    inodes = {**_listening_elsewhere(pids, argvs), **_listening("self")}
    listening, unowned = _owned(inodes, pids)
    processes = {}
    for pid in pids:
        stat, argv = _stat(pid), argvs[pid]
        if stat is None:
            continue
        addresses = sorted(listening.get(pid, ()), key=lambda address: (address.port, address.ip))
        processes[pid] = Process(pid, int(stat[1]), argv, _started_ms(stat), tuple(addresses))
    own_ips = frozenset(each.address for addresses in psutil.net_if_addrs().values() for each in addresses)
    return HostProcesses(processes, unowned, mapped_files, environment, own_ips, pod_namespace, socket.gethostname())


def start_ms(pid: int) -> int | None:
    """Return the milliseconds from the host's boot to the start of a process; None if there is no such process.

    No wall clock is in it: the kernel keeps it in clock ticks since boot, the same for every reader at any time.
    """
    stat = _stat(pid)
    return None if stat is None else _started_ms(stat)


def _parts(pid: int, name: str) -> Iterator[bytes]:
    """A file of a process, as it is read: for each of some hundred at a look, a file object is slow."""
    fd = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        while part := os.read(fd, 65_536):
            yield part
    finally:
        os.close(fd)


def _stat(pid: int) -> list[bytes] | None:
    """Fields of a process from its state to its start, None if it is gone. Source: proc_pid_stat(5), fields 3 to 22."""
    try:
        # The first read has all of it.
        return next(_parts(pid, "stat")).rpartition(b")")[2].split(maxsplit=20)
    except (OSError, StopIteration):
        return None


def _started_ms(stat: list[bytes]) -> int:
    return int(stat[19]) * 1000 // _CLOCK_TICKS_S - _namespace_offset_ms()


def _argv(pid: int) -> tuple[str, ...]:
    """Command line; empty if there is none. A process that titles itself may have put spaces between the words."""
    try:
        text = os.fsdecode(b"".join(_parts(pid, "cmdline")))
    except OSError:
        return ()
    words = text.removesuffix("\0").split("\0")
    return tuple(words if len(words) > 1 else words[0].split())


def _listening_elsewhere(pids: list[int], argvs: Mapping[int, tuple[str, ...]]) -> dict[bytes, Address]:
    """Where processes of other network namespaces listen, as far as that can be reached from here, by inode."""
    found: dict[bytes, Address] = {}
    published = docker_ports(argvs.values())
    namespaces = {pid: _namespace(str(pid)) for pid in pids}
    own = _namespace("self")
    seen = {own, None}
    forwards: dict[str, tuple[Forward, ...]] | None = None
    for pid, namespace in namespaces.items():
        if namespace is None or namespace in seen:
            continue
        seen.add(namespace)
        if forwards is None:
            forwards = rootless_ports(argvs, namespaces, own, _own_addresses, _parent)
        ips = _ips(pid)
        for inode, address in _listening(str(pid)).items():
            ip = ipaddress.ip_address(address.ip)
            outer = [way for each in ips for way in published.get((each, address.port), ())]
            outer += forwarded(forwards.get(namespace, ()), address.port)
            direct = () if ip.is_loopback else ips if ip.is_unspecified else (address.ip,)
            # An address that a user-mode network gives is not one that this host knows.
            routed = () if namespace in forwards else tuple((each, address.port) for each in direct)
            ways = (*outer, *routed)
            if ways:
                found[inode] = replace(address, reached=ways[0], also=ways[1:])
    return found


def _parent(pid: int) -> int | None:
    stat = _stat(pid)
    return None if stat is None else int(stat[1])


def _own_addresses(pid: int) -> frozenset[tuple[str, int]]:
    """(address, port) pairs of this network namespace on which a process listens."""
    listening = _listening("self")
    owned, _ = _owned(listening, [pid])
    return frozenset((address.ip, address.port) for address in owned.get(pid, ()))


def _namespace(process: str) -> str | None:
    try:
        return os.readlink(f"/proc/{process}/ns/net")  # noqa: PTH115 - a Path for each is slow
    except OSError:
        return None


def _ips(pid: int) -> tuple[str, ...]:
    """Addresses of a process's network namespace that others can reach, IPv4 first.

    Sources: the kernel's net/ipv4/fib_trie.c (`/32 host LOCAL` follows an address of its own) and proc_net_if_inet6.
    """
    found = []
    with suppress(OSError):
        lines = (_PROC / str(pid) / "net/fib_trie").read_text().splitlines()
        found += [at.split()[-1] for at, kind in pairwise(lines) if "/32 host LOCAL" in kind]
    with suppress(OSError):
        words = [line.split() for line in (_PROC / str(pid) / "net/if_inet6").read_text().splitlines()]
        found += [str(ipaddress.IPv6Address(bytes.fromhex(each[0]))) for each in words if each[3] == "00"]
    return tuple(dict.fromkeys(ip for ip in found if not ipaddress.ip_address(ip).is_loopback))


def _listening(process: str) -> dict[bytes, Address]:
    """Where anybody of a process's network namespace listens (TCP), by the socket's inode.

    Source: the kernel's networking/proc_net_tcp.rst.

    They are listed before all connections, which on a busy server are many: those are not read, nor looked for by the
    kernel, as it would to fill a larger buffer.
    """
    found = {}
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with suppress(OSError), (_PROC / process / "net" / name).open("rb", buffering=512) as lines:
            next(lines)
            for line in lines:
                words = line.split(maxsplit=10)
                if words[3] != b"0A":
                    break
                ip, _, port = words[1].partition(b":")
                # Each 32-bit word of the address is in the host's byte order.
                raw = bytes.fromhex(ip.decode())
                packed = struct.pack(f"={len(raw) // 4}I", *struct.unpack(f">{len(raw) // 4}I", raw))
                found[words[9]] = Address(socket.inet_ntop(family, packed), int(port, 16))
    return found


def _owned(listening: dict[bytes, Address], pids: list[int]) -> tuple[dict[int, set[Address]], tuple[Address, ...]]:
    """Addresses by the first process that holds their socket, and those whose holder cannot be seen."""
    left = {b"socket:[%s]" % inode: address for inode, address in listening.items()}
    owned: dict[int, set[Address]] = {}
    for pid in pids:
        if not left:
            break
        with suppress(OSError):
            for entry in os.scandir(b"/proc/%d/fd" % pid):
                with suppress(OSError):
                    address = left.pop(os.readlink(entry.path), None)  # noqa: PTH115 - a Path for each is slow
                    if address is not None:
                        owned.setdefault(pid, set()).add(address)
    return owned, tuple(left.values())


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


def environment(pid: int, names: Collection[str]) -> dict[str, str]:
    """These variables of a process's environment as it was started, and no others; none if it may not be read."""
    found = {}
    with suppress(OSError):
        for entry in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            name, _, value = os.fsdecode(entry).partition("=")
            if name in names:
                found[name] = value
    return found


def pod_namespace(pid: int) -> str | None:
    """Return the Kubernetes namespace of a process's pod, by its service account; nothing else of that is read.

    Source: Kubernetes documents, "Accessing the Kubernetes API from a Pod".
    """
    try:
        file = _PROC / str(pid) / "root/var/run/secrets/kubernetes.io/serviceaccount/namespace"
        return file.read_text(errors="replace").strip() or None
    except OSError:
        return None


def since_boot_ms() -> int:
    """Return the milliseconds since the host booted, time suspended included; comparable with every `start_ms`."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000 - _namespace_offset_ms()


@cache
def boot_ms() -> int:
    """Return the Unix time of the host's boot in milliseconds by the wall clock as first read: for people only.

    Another program, or this one restarted after a clock step, computes another value: never compare it.
    """
    return round(1000 * time.time()) - since_boot_ms()


@cache
def _namespace_offset_ms() -> int:
    """Return what this process's time namespace adds to the host's time since boot. Source: time_namespaces(7)."""
    with suppress(OSError, ValueError, IndexError):
        for line in (_PROC / "self" / "timens_offsets").read_text().splitlines():
            name, seconds, nanoseconds = line.split()
            if name == "boottime":
                return int(seconds) * 1000 + int(nanoseconds) // 1_000_000
    return 0
