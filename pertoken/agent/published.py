"""Ports of this host that lead into containers, as the processes that forward them tell."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath


@dataclass(frozen=True, slots=True)
class Forward:
    """A port of this host that leads into a network namespace; `inner` is the port there, None if nothing tells."""

    port: int
    inner: int | None = None


def docker_ports(argvs: Iterable[tuple[str, ...]]) -> dict[tuple[str, int], int]:
    """Ports of this host by the container's (address, port) they lead to, as Docker's proxies tell them."""
    found = {}
    for argv in argvs:
        if argv and argv[0].endswith("docker-proxy"):
            told = dict(pairwise(argv[1:]))
            with suppress(KeyError, ValueError):
                found[told["-container-ip"], int(told["-container-port"])] = int(told["-host-port"])
    return found


def rootless_ports(
    argvs: Mapping[int, tuple[str, ...]],
    namespaces: Mapping[int, str | None],
    own: str | None,
    ports: Callable[[int], frozenset[int]],
    parent: Callable[[int], int | None],
) -> dict[str, tuple[Forward, ...]]:
    """Ports of this host by the network namespace they lead into, where containers run without root.

    Podman's `rootlessport` listens here and has a child of the same program inside; `pasta` and `slirp4netns` name
    the namespace, and pasta its ports. `ports` tells on which ports of this host a process listens, `parent` who
    started it. A namespace that one of them serves has no address of its own that this host could reach, so it is
    in the answer even without a port.
    """
    found: dict[str, list[Forward]] = {}
    for pid, argv in argvs.items():
        program = PurePath(argv[0]).name if argv else ""
        if program.startswith("rootlessport"):
            namespace, outside = namespaces.get(pid), parent(pid)
            if namespace not in (own, None) and outside is not None and namespaces.get(outside) == own:
                found.setdefault(str(namespace), []).extend(Forward(port) for port in sorted(ports(outside)))
        elif program in ("pasta", "pasta.avx2", "slirp4netns") and (named := _named(argv, namespaces)):
            told = [Forward(*each) for each in _pasta(argv)] if program != "slirp4netns" else []
            found.setdefault(named, []).extend(told)
    return {namespace: tuple(dict.fromkeys(each)) for namespace, each in found.items()}


def forwarded(forwards: Sequence[Forward], inner: int) -> list[int]:
    """Ports of this host that lead to a port inside: those that say so, else of the same number, else the only one."""
    told = [each.port for each in forwards if each.inner == inner]
    silent = [each.port for each in forwards if each.inner is None]
    return told or [port for port in silent if port == inner] or (silent if len(silent) == 1 else [])


def _named(argv: tuple[str, ...], namespaces: Mapping[int, str | None]) -> str | None:
    """The network namespace a forwarder names: a file of it or a process in it, among its arguments."""
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


def _pasta(argv: tuple[str, ...]) -> list[tuple[int, int]]:
    """(port here, port inside) of its TCP forwards: `-t 8080`, `-t 8080:80`, `-t 127.0.0.1/8080:80`, comma-separated.

    Ranges and `auto` are left out: which of many leads to a server, nobody told.
    """
    found = []
    for flag, value in pairwise(argv):
        if flag in ("-t", "--tcp-ports"):
            for each in value.split(","):
                outer, _, inner = each.rpartition("/")[2].partition(":")
                if outer.isdecimal() and (inner or outer).isdecimal():
                    found.append((int(outer), int(inner or outer)))
    return found
