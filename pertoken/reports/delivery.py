"""Delivery to webhooks and by mail.

Front door: `post` (webhooks) and `send` (mail).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from email.message import EmailMessage
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from types import TracebackType
from urllib.parse import urlsplit

from pertoken.access import read_secret
from pertoken.config import Settings
from pertoken.errors import BadInput, PertokenError
from pertoken.printable import literal
from pertoken.settings.alerts import is_own_address, masked

TIMEOUT_S = 10.0
"""Maximum time to connect, and again for the request with its reply."""
MAX_REPLY_BYTES = 4096
TIME_HEADER, SIGNATURE_HEADER, ID_HEADER = "Pertoken-Time", "Pertoken-Signature", "Pertoken-Delivery"
Resolve = Callable[[str, int], Sequence[str]]
"""Return the IP addresses of a host and port."""


class NotDelivered(PertokenError):
    """A webhook or mail server did not accept a message."""


def post(
    url: str,
    body: bytes,
    now_ts: int,
    *,
    secret: bytes | None = None,
    delivery_id: str = "",
    own_hosts: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    resolve: Resolve | None = None,
    context: ssl.SSLContext | None = None,
) -> int:
    """Post JSON and return the status, 200 to 299. Raises NotDelivered, with the URL masked.

    The host is resolved once, its addresses are checked, and the connection uses the first. Private addresses are
    refused, unless the URL holds the address (or localhost), or `own_hosts` names the host. `headers` are added.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    cutoff: Cutoff | None = None
    try:
        address = _checked_address(host, port, own_hosts, resolve or _resolve)
        with (
            socket.create_connection((address, port), TIMEOUT_S) as sock,
            Cutoff(sock, TIMEOUT_S) as cutoff,
            closing(_connection(parts.scheme, host, port, sock, context)) as connection,
        ):
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", path, body, {**_headers(body, now_ts, secret, delivery_id), **(headers or {})})
            reply = connection.getresponse()
            reply.read(MAX_REPLY_BYTES)
            if cutoff.passed:  # truncated headers look complete
                raise TimeoutError
    except (OSError, HTTPException) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        if cutoff is not None and cutoff.passed:
            reason = f"did not answer within {TIMEOUT_S:g} s"
        raise NotDelivered(f"{masked(url)}: {reason}") from None
    if 300 <= reply.status < 400:
        raise NotDelivered(f"{masked(url)}: answered with a redirect ({reply.status}), which is not followed")
    if not 200 <= reply.status < 300:
        raise NotDelivered(f"{masked(url)}: answered with status {reply.status}")
    return reply.status


def send(settings: Settings, subject: str, text: str, context: ssl.SSLContext | None = None) -> None:
    """Mail a text to the recipients in the settings. Raises BadInput for missing settings, NotDelivered."""
    server, sender, recipients = settings.delivery_smtp, settings.delivery_mail_from, settings.delivery_mail_to
    if server is None or sender is None or not recipients:
        raise BadInput("mail needs delivery.smtp, delivery.mail_from and delivery.mail_to in the settings")
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = literal(subject), sender, ", ".join(recipients)
    message.set_content(text)
    host, _, port = server.partition(":")
    password = read_secret(settings.delivery_smtp_password_file, None, "delivery.smtp_password_file")
    try:
        with smtplib.SMTP(host, int(port or 25), timeout=TIMEOUT_S) as smtp:
            if settings.delivery_smtp_tls:
                smtp.starttls(context=context or ssl.create_default_context())
            if password is not None:
                if not settings.delivery_smtp_tls:
                    raise BadInput("delivery.smtp_tls: a password is only sent over TLS")
                smtp.login(settings.delivery_smtp_user or sender, password.decode())
            smtp.send_message(message)
    except (OSError, smtplib.SMTPException) as error:
        raise NotDelivered(f"{host}: {getattr(error, 'strerror', None) or type(error).__name__}") from None


def signature(secret: bytes, now_ts: int, body: bytes) -> str:
    """Return the signature of a body: `v1=` and the HMAC-SHA256 of `TIME.BODY` in hex."""
    return f"v1={hmac.new(secret, f'{now_ts}.'.encode() + body, hashlib.sha256).hexdigest()}"


def _headers(body: bytes, now_ts: int, secret: bytes | None, delivery_id: str) -> Mapping[str, str]:
    headers = {"Content-Type": "application/json", "User-Agent": "pertoken", TIME_HEADER: str(now_ts)}
    if delivery_id:
        headers[ID_HEADER] = delivery_id
    if secret is not None:
        headers[SIGNATURE_HEADER] = signature(secret, now_ts, body)
    return headers


def _checked_address(host: str, port: int, own_hosts: Sequence[str], resolve: Resolve) -> str:
    addresses = list(resolve(host, port))
    if not addresses:
        raise OSError(0, "no address is known")
    may_be_private = is_own_address(host) or host in own_hosts
    if not may_be_private:
        for address in addresses:
            if not ipaddress.ip_address(address.partition("%")[0]).is_global:
                reason = "resolves to a private address; name the host in delivery.own_hosts if it is yours"
                raise OSError(0, reason)
    return addresses[0]


def _resolve(host: str, port: int) -> Sequence[str]:
    return [str(row[4][0]) for row in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _connection(
    scheme: str, host: str, port: int, sock: socket.socket, context: ssl.SSLContext | None
) -> HTTPConnection:
    """Return an HTTP connection over `sock`, so that `host` is not resolved again; TLS checks its certificate."""
    if scheme == "http":
        connection = HTTPConnection(host, port)
        connection.sock = sock
        return connection
    tls = context or ssl.create_default_context()
    secure = HTTPSConnection(host, port, context=tls)
    secure.sock = tls.wrap_socket(sock, server_hostname=host)
    return secure


class Cutoff:
    """Context that shuts a connection down after a time: reads and writes then fail."""

    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        """Duplicate the handle of `sock`: TLS may take over the original within the context."""
        self._handle = socket.socket(fileno=os.dup(sock.fileno()))
        self._timer = threading.Timer(timeout_s, self._cut)
        self._timer.name, self._timer.daemon = "cutoff", True
        self.passed = False

    def __enter__(self) -> Cutoff:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._timer.join()
        self._handle.close()

    def _cut(self) -> None:
        self.passed = True
        with suppress(OSError):  # the other side has left
            self._handle.shutdown(socket.SHUT_RDWR)
