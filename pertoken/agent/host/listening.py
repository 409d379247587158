"""Listening TCP sockets of a network namespace, by the inode that identifies their owner."""

import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

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
    """Where it is reached from here, if it is in another network namespace, as in a container: the address of that
    namespace, or the address and port of this host that are published for it."""
    also: tuple[tuple[str, int], ...] = ()
    """Where else it is reached from here."""


def listening_here() -> dict[bytes, Address]:
    """Return where anybody of this network namespace listens (TCP), by the socket's inode.

    The kernel is asked for listening sockets alone (sock_diag): /proc/net/tcp makes it walk through its table of
    connections to find that none is left, 2.1 instead of 0.2 ms of CPU on a host of 2 cores with few of them. A kernel
    that does not answer, as in some sandboxes, is read by /proc.
    """
    try:
        return {**_asked(socket.AF_INET), **_asked(socket.AF_INET6)}
    except OSError:
        return listening_of("self")


def _asked(family: int) -> dict[bytes, Address]:
    """Return the listening sockets of a family. Raises OSError where the kernel does not list them."""
    query = _QUERY.pack(family, _TCP, 0, 0, 1 << _LISTEN)
    addresses: dict[bytes, Address] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as asked:
        asked.settimeout(_PATIENCE_S)
        asked.send(_HEADER.pack(_HEADER.size + len(query), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0) + query)
        while True:
            reply = asked.recv(_MAX_REPLY_BYTES)
            at = 0
            while at < len(reply):
                length, kind, _, _, _ = _HEADER.unpack_from(reply, at)
                if kind == _DONE:
                    return addresses
                if kind == _ERROR or length < _HEADER.size + _SOCKET.size:
                    raise OSError("the kernel does not list listening sockets")
                port, packed, *_, inode = _SOCKET.unpack_from(reply, at + _HEADER.size)
                ip = socket.inet_ntop(family, packed[:4] if family == socket.AF_INET else packed)
                addresses[b"%d" % inode] = Address(ip, socket.ntohs(port))
                at += length + -length % 4


def listening_of(process: str) -> dict[bytes, Address]:
    """Return where anybody of a process's network namespace listens (TCP), by the socket's inode.

    Source: the kernel's networking/proc_net_tcp.rst.

    They are listed before all connections, which on a busy server are many: those are not read, nor looked for by the
    kernel, as it would to fill a larger buffer.
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
