"""This host's processes, their listening ports and their mapped files, as discovery looks at them.

This module is the only one that reads /proc for them. psutil serves for addresses of interfaces and for CPU times;
for the list itself it does not. It reports neither sockets of other network namespaces (containers), nor sockets whose
process is hidden, nor starts that no clock step moves. It costs more, too. A look at 177 processes took psutil 76.6 ms
of CPU (`process_iter` with four fields and `net_connections("tcp")`) and this module 57.5 ms; at 395 processes it was
82.9 ms and 63.4 ms (medians of 7 turns of 10 on 2 EPYC cores, November 2026). At one look a second and 177 processes
that would be 8 % of a core by psutil, and 6 % here.
"""

from __future__ import annotations

import ipaddress
import os
import select
import socket
import struct
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path, PurePath

import psutil

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
"""Length, type, flags, sequence number, port. Source: the kernel's include/uapi/linux/netlink.h."""
_QUERY = struct.Struct("=BBBBI48x")
"""Family, protocol, extensions, padding, states as bits, any address. Source: include/uapi/linux/inet_diag.h."""
_SOCKET = struct.Struct("=4xHxx16s16x12xIIIII")
"""Port (of the network's byte order), address, then four numbers and the inode. Source: the same."""
_TCP, _LISTEN = 6, 10
_MAX_REPLY_BYTES = 65_536
_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Address:
    """Address on which a process listens (TCP)."""

    ip: str
    port: int
    reached: tuple[str, int] | None = None
    """Address and port that lead there from here, if it is in another network namespace, as in a container: of that
    namespace, or published for it on this host."""
    also: tuple[tuple[str, int], ...] = ()
    """Further addresses and ports that lead there."""


def listening_here() -> dict[bytes, Address]:
    """Return the listening addresses (TCP) of this network namespace, by the socket's inode.

    The kernel is asked for listening sockets alone (sock_diag): /proc/net/tcp makes it walk through its table of
    connections to find that none is left, 2.1 instead of 0.2 ms of CPU on a host of 2 cores with few of them. A kernel
    that does not answer, as in some sandboxes, is read by /proc.
    """
    try:
        return {**_dumped(socket.AF_INET), **_dumped(socket.AF_INET6)}
    except OSError:
        return listening_of("self")


def _dumped(family: int) -> dict[bytes, Address]:
    """Return the listening sockets of a family. Raises OSError where the kernel does not list them."""
    query = _QUERY.pack(family, _TCP, 0, 0, 1 << _LISTEN)
    addresses: dict[bytes, Address] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
        netlink.settimeout(_PATIENCE_S)
        netlink.send(_HEADER.pack(_HEADER.size + len(query), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0) + query)
        while True:
            reply = netlink.recv(_MAX_REPLY_BYTES)
            offset = 0
            while offset < len(reply):
                length, kind, _, _, _ = _HEADER.unpack_from(reply, offset)
                if kind == _DONE:
                    return addresses
                if kind == _ERROR or length < _HEADER.size + _SOCKET.size:
                    raise OSError("the kernel does not list listening sockets")
                port, packed, *_, inode = _SOCKET.unpack_from(reply, offset + _HEADER.size)
                ip = socket.inet_ntop(family, packed[:4] if family == socket.AF_INET else packed)
                addresses[b"%d" % inode] = Address(ip, socket.ntohs(port))
                offset += length + -length % 4


def listening_of(process: str) -> dict[bytes, Address]:
    """Return the listening addresses (TCP) of a process's network namespace, by the socket's inode.

    They are listed before all connections, of which a busy server has many: these are not read, and a small buffer
    keeps the kernel from looking for them. Source: the kernel's networking/proc_net_tcp.rst.
    """
    addresses = {}
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with suppress(OSError), (Path("/proc") / process / "net" / name).open("rb", buffering=512) as lines:
            next(lines, None)
            for line in lines:
                words = line.split(maxsplit=10)
                if len(words) < 10 or words[3] != b"0A":
                    break
                # A sandbox's kernel may write lines of its own.
                with suppress(ValueError, struct.error):
                    addresses[words[9]] = _listed(words[1], family)
    return addresses


def _listed(text: bytes, family: socket.AddressFamily) -> Address:
    """Return `0100007F:1F40` as an address. Raises ValueError or struct.error where it is none."""
    ip, _, port = text.decode("ascii").partition(":")
    # Each 32-bit word of the address is in the host's byte order.
    raw = bytes.fromhex(ip)
    packed = struct.pack(f"={len(raw) // 4}I", *struct.unpack(f">{len(raw) // 4}I", raw))
    return Address(socket.inet_ntop(family, packed), int(port, 16))


@dataclass(frozen=True, slots=True)
class Forward:
    """A port of this host that leads into a network namespace."""

    port: int
    inner: int | None = None
    """Port inside the namespace; None if nothing reports it."""
    ip: str = "127.0.0.1"
    """Address of this host at which the port is reached."""


def docker_ports(argvs: Iterable[tuple[str, ...]]) -> dict[tuple[str, int], tuple[tuple[str, int], ...]]:
    """Return the (address, port) pairs of this host that lead to containers, by their (address, port).

    Read from the arguments of Docker's proxies. A port published on every address is reached at loopback, which comes
    first; one published on a single address is reached at that address alone.
    """
    published: dict[tuple[str, int], set[tuple[str, int]]] = {}
    for argv in argvs:
        if argv and argv[0].endswith("docker-proxy"):
            options = dict(pairwise(argv[1:]))
            with suppress(KeyError, ValueError):
                inner = options["-container-ip"], int(options["-container-port"])
                outer = reached_at(options.get("-host-ip", "0.0.0.0")), int(options["-host-port"])
                published.setdefault(inner, set()).add(outer)
    return {
        inner: tuple(sorted(outers, key=lambda outer: (not ipaddress.ip_address(outer[0]).is_loopback, outer)))
        for inner, outers in published.items()
    }


def reached_at(ip: str) -> str:
    """Return the address at which a socket bound to `ip` is reached from this host: loopback if it is bound to any.

    Raises ValueError if `ip` is not an address.
    """
    address = ipaddress.ip_address(ip)
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "::1"
    return str(address)


def rootless_ports(
    argvs: Mapping[int, tuple[str, ...]],
    namespaces: Mapping[int, str | None],
    own_namespace: str | None,
    listening: Callable[[int], frozenset[tuple[str, int]]],
    parent: Callable[[int], int | None],
) -> dict[str, tuple[Forward, ...]]:
    """Return the ports of this host that lead into network namespaces of containers run without root, by namespace.

    Podman's `rootlessport` listens here and has a child of the same program inside; `pasta` and `slirp4netns` name
    the namespace, and pasta its ports. `listening` returns the (address, port) pairs of this host on which a process
    listens, `parent` the process that started it. A namespace that one of them serves has no address of its own that
    this host could reach, so it is in the answer even without a port.
    """
    forwards: dict[str, list[Forward]] = {}
    for pid, argv in argvs.items():
        program = PurePath(argv[0]).name if argv else ""
        if program.startswith("rootlessport"):
            namespace, outside = namespaces.get(pid), parent(pid)
            if namespace not in (own_namespace, None) and outside and namespaces.get(outside) == own_namespace:
                outer = sorted(listening(outside))
                forwards.setdefault(str(namespace), []).extend(Forward(port, ip=reached_at(ip)) for ip, port in outer)
        elif program in ("pasta", "pasta.avx2", "slirp4netns") and (named := _named(argv, namespaces)):
            forwards.setdefault(named, []).extend(_pasta(argv) if program != "slirp4netns" else ())
    return {namespace: tuple(dict.fromkeys(listed)) for namespace, listed in forwards.items()}


def forwarded(forwards: Sequence[Forward], inner: int) -> list[tuple[str, int]]:
    """Return the (address, port) pairs of this host that lead to a port inside a namespace.

    Forwards that report this inner port; else the same port number, else the only one.
    """
    exact = [forward for forward in forwards if forward.inner == inner]
    silent = [forward for forward in forwards if forward.inner is None]
    same = [entry for entry in silent if entry.port == inner]
    single = silent if len({entry.port for entry in silent}) == 1 else []
    return [(entry.ip, entry.port) for entry in exact or same or single]


def _named(argv: tuple[str, ...], namespaces: Mapping[int, str | None]) -> str | None:
    """Return the network namespace a forwarder names: a file of it or a process in it, among its arguments."""
    for word in argv[1:]:
        if word.startswith("/"):
            with suppress(OSError):
                name = f"net:[{os.stat(word).st_ino}]"  # noqa: PTH116 - the file is the namespace, whatever its path
                if name in namespaces.values():
                    return name
        elif word.isdecimal() and int(word) in namespaces and word != argv[0]:
            return namespaces[int(word)]
    return None


def _pasta(argv: tuple[str, ...]) -> list[Forward]:
    """Return TCP forwards of pasta: `-t 8080`, `-t 8080:80`, `-t 127.0.0.1/8080:80`, comma-separated.

    Ranges and `auto` are left out: the port of a server among them is unknown. One address holds for all ports of its
    option. Source: passt(1).
    """
    forwards = []
    for flag, value in pairwise(argv):
        if flag in ("-t", "--tcp-ports"):
            ip, slash, ports = value.rpartition("/")
            ip = ip.partition("%")[0] if slash else ""
            for port in ports.split(","):
                outer, _, inner = port.partition(":")
                if outer.isdecimal() and (inner or outer).isdecimal():
                    with suppress(ValueError):
                        forwards.append(Forward(int(outer), int(inner or outer), reached_at(ip or "0.0.0.0")))
    return forwards


_PROC = Path("/proc")
_CLOCK_TICKS_S = os.sysconf("SC_CLK_TCK")
_KERNEL_THREAD = 0x0020_0000
"""PF_KTHREAD among the flags of a process, in the kernel's include/linux/sched.h."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process. `start_ms` is the time from the host's boot to its start; None if it cannot be seen."""

    pid: int
    ppid: int
    argv: tuple[str, ...]
    start_ms: int | None = None
    listening: tuple[Address, ...] = ()
    session: int | None = None
    """Pid of the process that began its session."""


@dataclass(frozen=True, slots=True)
class HostProcesses:
    """All processes of the host at one instant."""

    processes: Mapping[int, Process]
    unowned: tuple[Address, ...] = ()
    """Listening sockets of processes that cannot be seen with this agent's rights; several may have one address."""
    libraries: Callable[[int], frozenset[str] | None] = lambda pid: frozenset()
    """Files mapped into a process; None if that may not be seen."""
    environment: Callable[[int, Collection[str]], Mapping[str, str]] = lambda pid, names: {}
    """These variables of a process's environment, as far as they may be seen."""
    container_of: Callable[[int], str | None] = lambda pid: None
    """Control group of the container or service that a process is in; None for a person's session."""
    own_ips: frozenset[str] = frozenset({"127.0.0.1", "::1"})
    """Addresses that lead to this host."""
    pod_namespace: Callable[[int], str | None] = lambda pid: None
    """Kubernetes namespace of the pod a process is in; None if it may not be seen."""
    name: str = ""
    """Name of this host."""

    def rivals(self, pids: Collection[int], address: Address) -> int:
        """Return the number of sockets on `address` of other processes than `pids` (SO_REUSEPORT).

        The kernel hands each connection to any one of them. A socket that processes inherited is one socket.
        """
        owners = [process.pid for process in self.processes.values() if address in process.listening]
        foreign = [pid for pid in owners if pid not in pids]
        hidden = self.unowned.count(address)
        # Where none of `pids` is seen to own one, theirs is among the hidden ones.
        return len(foreign) + (hidden if len(foreign) < len(owners) else max(0, hidden - 1))

    def children(self, pid: int) -> tuple[Process, ...]:
        """Return the processes that a process started itself."""
        return tuple(process for process in self.processes.values() if process.ppid == pid)

    def ancestors(self, pid: int) -> Iterator[Process]:
        """Yield the processes above one, from its parent on."""
        seen = {pid}
        process = self.processes.get(pid)
        while process is not None and process.ppid not in seen:
            seen.add(process.ppid)
            process = self.processes.get(process.ppid)
            if process is not None:
                yield process

    def session_of(self, pid: int) -> int | None:
        """Return the session of a process; None for that of the whole host or container."""
        session = self.processes[pid].session
        return session if session and session != 1 else None

    def group(self, root: int) -> tuple[int, ...]:
        """Return `root` and all processes it started, directly or not, by rising pid."""
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
    """Return the processes of this host now, as far as they may be seen, without threads of the kernel."""
    pids = sorted(int(name) for name in os.listdir(_PROC) if name.isdecimal())  # noqa: PTH208 - a Path for each is slow
    stats = {pid: stat for pid in pids if (stat := _stat(pid)) and not int(stat[6]) & _KERNEL_THREAD}
    argvs = {pid: _argv(pid) for pid in stats}
    inodes = {**_listening_elsewhere(list(stats), argvs), **listening_here()}
    listening, unowned = _SOCKET_OWNERS.owned(inodes, list(stats))
    processes = {}
    for pid, stat in stats.items():
        addresses = sorted(listening.get(pid, ()), key=lambda address: (address.port, address.ip))
        processes[pid] = Process(pid, int(stat[1]), argvs[pid], _started_ms(stat), tuple(addresses), int(stat[3]))
    own_ips = frozenset(address.address for addresses in psutil.net_if_addrs().values() for address in addresses)
    lookups = (mapped_files, environment, control_group, own_ips, pod_namespace)
    return HostProcesses(processes, unowned, *lookups, socket.gethostname())


def start_ms(pid: int) -> int | None:
    """Return the milliseconds from the host's boot to the start of a process; None if there is no such process.

    No wall clock is in it: the kernel keeps it in clock ticks since boot, the same for every reader at any time.
    """
    stat = _stat(pid)
    return None if stat is None else _started_ms(stat)


def _parts(pid: int, name: str) -> Iterator[bytes]:
    """Yield a file of a process, as it is read: for each of some hundred at a look, a file object is slow."""
    fd = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        while part := os.read(fd, 65_536):
            yield part
    finally:
        os.close(fd)


def _stat(pid: int) -> list[bytes] | None:
    """Return fields 3 to 22 of a process, None if it is gone. Source: proc_pid_stat(5)."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, 2048).rpartition(b")")[2].split(maxsplit=20)  # the first read has all of it
    except OSError:  # it ended meanwhile
        return None
    finally:
        os.close(fd)


def _started_ms(stat: list[bytes]) -> int:
    return int(stat[19]) * 1000 // _CLOCK_TICKS_S - _namespace_offset_ms()


def _argv(pid: int) -> tuple[str, ...]:
    """Return the command line, empty if there is none. A process that titles itself may put spaces between words."""
    try:
        text = os.fsdecode(b"".join(_parts(pid, "cmdline")))
    except OSError:
        return ()
    words = text.removesuffix("\0").split("\0")
    return tuple(words if len(words) > 1 else words[0].split())


def _listening_elsewhere(pids: list[int], argvs: Mapping[int, tuple[str, ...]]) -> dict[bytes, Address]:
    """Return the addresses in other network namespaces that can be reached from here, by the socket's inode."""
    addresses: dict[bytes, Address] = {}
    published = docker_ports(argvs.values())
    namespaces = {pid: _namespace(str(pid)) for pid in pids}
    own_namespace = _namespace("self")
    seen = {own_namespace, None}
    forwards: dict[str, tuple[Forward, ...]] | None = None
    for pid, namespace in namespaces.items():
        if namespace is None or namespace in seen:
            continue
        seen.add(namespace)
        if forwards is None:
            forwards = rootless_ports(argvs, namespaces, own_namespace, _own_addresses, _parent)
        ips = _ips(pid)
        for inode, address in listening_of(str(pid)).items():
            ip = ipaddress.ip_address(address.ip)
            routes = [route for ip in ips for route in published.get((ip, address.port), ())]
            routes += forwarded(forwards.get(namespace, ()), address.port)
            direct = () if ip.is_loopback else ips if ip.is_unspecified else (address.ip,)
            # An address that a user-mode network gives is not one that this host knows.
            routes += () if namespace in forwards else ((ip, address.port) for ip in direct)
            if routes:
                addresses[inode] = replace(address, reached=routes[0], also=tuple(routes[1:]))
    return addresses


def _parent(pid: int) -> int | None:
    stat = _stat(pid)
    return None if stat is None else int(stat[1])


def _own_addresses(pid: int) -> frozenset[tuple[str, int]]:
    """Return (address, port) pairs of this network namespace on which a process listens."""
    listening = listening_here()
    owned, _ = _SocketOwners().owned(listening, [pid])
    return frozenset((address.ip, address.port) for address in owned.get(pid, ()))


def _namespace(process: str) -> str | None:
    try:
        return os.readlink(f"/proc/{process}/ns/net")  # noqa: PTH115 - a Path for each is slow
    except OSError:
        return None


def _ips(pid: int) -> tuple[str, ...]:
    """Return addresses of a process's network namespace that others can reach, IPv4 first.

    Sources: the kernel's net/ipv4/fib_trie.c (`/32 host LOCAL` follows an address of its own) and proc_net_if_inet6.
    """
    ips = []
    with suppress(OSError):
        lines = (_PROC / str(pid) / "net/fib_trie").read_text().splitlines()
        ips += [line.split()[-1] for line, kind in pairwise(lines) if "/32 host LOCAL" in kind]
    with suppress(OSError):
        words = [line.split() for line in (_PROC / str(pid) / "net/if_inet6").read_text().splitlines()]
        ips += [str(ipaddress.IPv6Address(bytes.fromhex(word[0]))) for word in words if word[3] == "00"]
    return tuple(dict.fromkeys(ip for ip in ips if not ipaddress.ip_address(ip).is_loopback))


class _SocketOwners:
    """Owners of listening sockets, remembered from look to look.

    Most of them keep a socket's file descriptor: then one link is read for each, instead of the links of all open
    files of all processes, which are half the cost of a look. A socket without a visible owner is looked for in new
    processes alone, and in all of them every `FULL_EVERY` looks.
    """

    FULL_EVERY = 10

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[int, bytes]] = {}
        """Owner and path of the file descriptor by socket."""
        self._hidden: frozenset[bytes] = frozenset()
        """Sockets without a visible owner in the last look."""
        self._searched: frozenset[int] = frozenset()
        """Processes in which they were looked for."""
        self._looks = 0

    def owned(
        self, listening: Mapping[bytes, Address], pids: list[int]
    ) -> tuple[dict[int, set[Address]], tuple[Address, ...]]:
        """Return addresses by the first owner of their socket, and addresses without a visible owner."""
        unowned = {b"socket:[%s]" % inode: address for inode, address in listening.items()}
        owners: dict[bytes, tuple[int, bytes]] = {}
        owned: dict[int, set[Address]] = {}

        def hold(link: bytes, pid: int, path: bytes) -> None:
            address = unowned.pop(link, None)
            if address is not None:
                owned.setdefault(pid, set()).add(address)
                owners[link] = pid, path

        every = frozenset(pids)
        for link, (pid, path) in self._known.items():
            if pid in every:
                with suppress(OSError):
                    if os.readlink(path) == link:  # noqa: PTH115 - a Path for each is slow
                        hold(link, pid, path)
        self._looks += 1
        full = unowned.keys() - self._hidden or self._looks % self.FULL_EVERY == 0
        for pid in pids if full else [pid for pid in pids if pid not in self._searched]:
            if not unowned:
                break
            with suppress(OSError):
                for entry in os.scandir(b"/proc/%d/fd" % pid):
                    with suppress(OSError):
                        hold(os.readlink(entry.path), pid, entry.path)  # noqa: PTH115 - as above
        self._known, self._hidden, self._searched = owners, frozenset(unowned), every
        return owned, tuple(unowned.values())


_SOCKET_OWNERS = _SocketOwners()


def mapped_files(pid: int) -> frozenset[str] | None:
    """Return shared objects mapped into a process; None if they may not be seen. Source: proc_pid_maps(5)."""
    try:
        lines = (_PROC / str(pid) / "maps").read_text(errors="replace").splitlines()
    except PermissionError:
        return None
    except OSError:
        return frozenset()
    paths = (line.split(maxsplit=5)[-1].removesuffix(" (deleted)") for line in lines if ".so" in line)
    return frozenset(path for path in paths if path.startswith("/"))


def environment(pid: int, names: Collection[str]) -> dict[str, str]:
    """Return these variables of a process's environment at its start, as far as it may be read."""
    variables = {}
    with suppress(OSError):
        for entry in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            name, _, value = os.fsdecode(entry).partition("=")
            if name in names:
                variables[name] = value
    return variables


def control_group(pid: int) -> str | None:
    """Return the control group of the container or service that a process is in; None for a person's session.

    Source: cgroups(7); systemd names the groups of sessions and of a person's own services by the person.
    """
    try:
        lines = (_PROC / str(pid) / "cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return None
    path = next((line.split(":", 2)[2] for line in lines if line.startswith("0::")), "/")
    return None if path in ("/", "/init.scope") or path.startswith("/user.slice") else path


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
    """Return the offset of this process's time namespace to the host's time since boot. Source: time_namespaces(7)."""
    with suppress(OSError, ValueError, IndexError):
        for line in (_PROC / "self" / "timens_offsets").read_text().splitlines():
            name, seconds, nanoseconds = line.split()
            if name == "boottime":
                return int(seconds) * 1000 + int(nanoseconds) // 1_000_000
    return 0


class ProcessLife:
    """One process from its start to its end; another one that is given its pid later is not it."""

    def __init__(self, pid: int, started_ms: int | None) -> None:
        """Watch a process; `started_ms` as `start_ms` returns it."""
        self.pid, self.started_ms = pid, started_ms
        self._poll: select.poll | None = None
        with suppress(OSError):  # a kernel before 5.3, no file descriptor left, or the process is gone
            fd = os.pidfd_open(pid)
            weakref.finalize(self, os.close, fd)
            self._poll = select.poll()
            self._poll.register(fd, select.POLLIN)
        # Compared after it was opened: what is open now is the process of that start.
        if start_ms(pid) != started_ms:
            self._poll = None

    def ended(self) -> bool:
        """Return whether it has ended. A file descriptor of a process costs a sixth of reading its start."""
        if self._poll is None:
            return start_ms(self.pid) != self.started_ms
        return bool(self._poll.poll(0))
