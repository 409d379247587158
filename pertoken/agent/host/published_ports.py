"""Addresses of this host that lead into containers, read from the command lines of the processes that forward them."""

import ipaddress
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath


@dataclass(frozen=True, slots=True)
class Forward:
    """A port of this host that leads into a network namespace."""

    port: int
    inner: int | None = None
    """Port inside the namespace; None if nothing reports it."""
    ip: str = "127.0.0.1"
    """Address of this host at which the port is reached."""


def docker_ports(argvs: Iterable[tuple[str, ...]]) -> dict[tuple[str, int], tuple[tuple[str, int], ...]]:
    """Return where containers are reached: their (address, port) to (address, port) pairs of this host.

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
    own: str | None,
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
            if namespace not in (own, None) and outside is not None and namespaces.get(outside) == own:
                outer = sorted(listening(outside))
                forwards.setdefault(str(namespace), []).extend(Forward(port, ip=reached_at(ip)) for ip, port in outer)
        elif program in ("pasta", "pasta.avx2", "slirp4netns") and (named := _named(argv, namespaces)):
            forwards.setdefault(named, []).extend(_pasta(argv) if program != "slirp4netns" else ())
    return {namespace: tuple(dict.fromkeys(listed)) for namespace, listed in forwards.items()}


def forwarded(forwards: Sequence[Forward], inner: int) -> list[tuple[str, int]]:
    """Return the (address, port) pairs of this host that lead to a port inside a namespace.

    Forwards that report this inner port; else those of the same number, else the only one.
    """
    exact = [forward for forward in forwards if forward.inner == inner]
    silent = [forward for forward in forwards if forward.inner is None]
    same = [entry for entry in silent if entry.port == inner]
    one = silent if len({entry.port for entry in silent}) == 1 else []
    return [(entry.ip, entry.port) for entry in exact or same or one]


def _named(argv: tuple[str, ...], namespaces: Mapping[int, str | None]) -> str | None:
    """Return the network namespace a forwarder names: a file of it or a process in it, among its arguments."""
    known = set(namespaces.values())
    for word in argv[1:]:
        if word.startswith("/"):
            with suppress(OSError):
                name = f"net:[{os.stat(word).st_ino}]"  # noqa: PTH116 - the file is the namespace, whatever its path
                if name in known:
                    return name
        elif word.isdecimal() and int(word) in namespaces and word != argv[0]:
            return namespaces[int(word)]
    return None


def _pasta(argv: tuple[str, ...]) -> list[Forward]:
    """Return TCP forwards of pasta: `-t 8080`, `-t 8080:80`, `-t 127.0.0.1/8080:80`, comma-separated.

    Ranges and `auto` are left out: nothing reports which of many ports leads to a server. One address holds for all
    ports of its option. Source: passt(1).
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
