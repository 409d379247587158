"""One signed POST to a webhook, to an address that was checked and without following a redirect."""

import hashlib
import hmac
import ipaddress
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from pertoken.errors import PertokenError
from pertoken.settings.alerts import is_own_address, masked

TIMEOUT_S = 10.0
MAX_REPLY_BYTES = 4096
TIME_HEADER, SIGNATURE_HEADER, ID_HEADER = "Pertoken-Time", "Pertoken-Signature", "Pertoken-Delivery"
Resolve = Callable[[str, int], Sequence[str]]
"""Addresses of a host."""


class NotDelivered(PertokenError):
    """A webhook or mail server did not take a message."""


def post(
    url: str,
    body: bytes,
    now_ts: int,
    *,
    secret: bytes | None = None,
    delivery_id: str = "",
    own_hosts: Sequence[str] = (),
    resolve: Resolve | None = None,
    context: ssl.SSLContext | None = None,
) -> int:
    """Post JSON and return the status, 200 to 299. Raises NotDelivered, in which the URL is masked.

    The name is resolved once, and the connection goes to the address that was checked. A private address is
    refused, unless the URL is written with it (or localhost), or its host is one of `own_hosts`.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        address = _address(host, port, own_hosts, resolve or _resolve)
        connection = _connection(parts.scheme, host, port, address, context)
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", path, body, _headers(body, now_ts, secret, delivery_id))
            reply = connection.getresponse()
            reply.read(MAX_REPLY_BYTES)
        finally:
            connection.close()
    except (OSError, HTTPException) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise NotDelivered(f"{masked(url)}: {reason}") from None
    if 300 <= reply.status < 400:
        raise NotDelivered(f"{masked(url)}: answered with a redirect ({reply.status}), which is not followed")
    if not 200 <= reply.status < 300:
        raise NotDelivered(f"{masked(url)}: answered with status {reply.status}")
    return reply.status


def signature(secret: bytes, now_ts: int, body: bytes) -> str:
    """Return the signature of a body sent at a time: HMAC-SHA256 of `TIME.BODY`, as `v1=HEX`."""
    return f"v1={hmac.new(secret, f'{now_ts}.'.encode() + body, hashlib.sha256).hexdigest()}"


def _headers(body: bytes, now_ts: int, secret: bytes | None, delivery_id: str) -> Mapping[str, str]:
    headers = {"Content-Type": "application/json", "User-Agent": "pertoken", TIME_HEADER: str(now_ts)}
    if delivery_id:
        headers[ID_HEADER] = delivery_id
    if secret is not None:
        headers[SIGNATURE_HEADER] = signature(secret, now_ts, body)
    return headers


def _address(host: str, port: int, own_hosts: Sequence[str], resolve: Resolve) -> str:
    found = list(resolve(host, port))
    if not found:
        raise OSError(0, "no address is known")
    if not is_own_address(host) and host not in own_hosts:
        for each in found:
            if not ipaddress.ip_address(each.partition("%")[0]).is_global:
                reason = "resolves to a private address; name the host in delivery.own_hosts if it is yours"
                raise OSError(0, reason)
    return found[0]


def _resolve(host: str, port: int) -> Sequence[str]:
    return [str(row[4][0]) for row in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _connection(scheme: str, host: str, port: int, address: str, context: ssl.SSLContext | None) -> HTTPConnection:
    if scheme == "http":
        return _Pinned(host, port, address)
    return _PinnedTls(host, port, address, context or ssl.create_default_context())


class _Pinned(HTTPConnection):
    """Connects to an address that was checked, whatever its name resolves to by then."""

    def __init__(self, host: str, port: int, address: str) -> None:
        super().__init__(host, port, timeout=TIMEOUT_S)
        self._address = address

    def connect(self) -> None:
        """Connect."""
        self.sock = socket.create_connection((self._address, self.port), TIMEOUT_S)


class _PinnedTls(HTTPSConnection):
    """The same, and the certificate must be made out to the name."""

    def __init__(self, host: str, port: int, address: str, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=TIMEOUT_S, context=context)
        self._address, self._tls = address, context

    def connect(self) -> None:
        """Connect and check the certificate."""
        raw: Any = socket.create_connection((self._address, self.port), TIMEOUT_S)
        try:
            self.sock = self._tls.wrap_socket(raw, server_hostname=self.host)
        except BaseException:
            raw.close()
            raise
