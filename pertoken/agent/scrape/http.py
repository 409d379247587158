"""One HTTP request of a page: within a time and a size, or refused with the reason. Never a part of a page.

The connection is made here; `reply` reads what comes over it.
"""

import socket
import ssl
import string
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

from pertoken.access import Access, access_of, authorization
from pertoken.agent.scrape.reply import FRAMING_BYTES, Deadline, Incoming, read_body, read_head
from pertoken.config import Settings
from pertoken.printable import literal

_Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
ACCEPT = "text/plain, application/json, application/openmetrics-text;version=1.0.0;q=0.5"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one GET, and the credentials for each base URL."""

    timeout_s: float = 3.0
    """From connecting to the last byte, however the server spreads them; resolving a name is not in it."""
    page_bytes: int = 8_000_000
    """Largest body, after decompression as well as before."""
    access: tuple[Access, ...] = ()
    """In any order: of those that cover a URL the most specific is taken."""

    @classmethod
    def of(cls, settings: Settings) -> "Limits":
        """As a person set them."""
        page_bytes = int(settings.agent_page_limit_mb * 1_000_000)
        return cls(settings.agent_scrape_timeout, page_bytes, settings.agent_access)


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply with status 200."""

    body: bytes
    content_type: str
    process_start: str = ""
    """Start of llama.cpp's server as its header gives it: microseconds since boot, whatever the header is called."""


class ScrapeError(Exception):
    """There is no page. `kind` is one of `readings.EngineReading.fault_kind`."""

    def __init__(self, kind: str, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status
        """HTTP status of kinds `http` and `access`."""


def get(url: str, limits: Limits) -> Reply:
    """Return the page of an engine at `url`. Raises ScrapeError as `fetch` does."""
    return fetch("GET", url, limits, {"Accept": ACCEPT, "Accept-Encoding": "gzip"})


def fetch(method: str, url: str, limits: Limits, headers: Mapping[str, str]) -> Reply:
    """Ask for `url` (http or https) over a connection of its own, without proxy, redirect or retry.

    llama.cpp closes connections that are kept alive while it is busy, so none is. Raises ScrapeError: `closed`,
    `access` (401, 403, or a certificate that is not believed), `http` (any other status but 200), `malformed`,
    `too_large` or `timeout`.
    """
    try:
        target = _target(url)
    except ValueError:  # its message may hold a part of a password
        raise ScrapeError("malformed", "an engine's URL holds no address that can be read") from None
    access = access_of(url, limits.access)
    try:
        shown_token, context = authorization(access), _context(access) if target.secure else None
    except ValueError as error:
        raise ScrapeError("access", f"{target.shown}: {error}") from None
    at, addresses = target.shown, target.addresses()
    deadline = Deadline(limits.timeout_s)
    try:
        with _connected(addresses, at, deadline) as plain, _secured(plain, context, access, target, deadline) as sock:
            return _exchange(sock, deadline, method, target, {**headers, **shown_token}, limits)
    except TimeoutError:
        raise ScrapeError("timeout", f"{at}: no whole reply within {limits.timeout_s:g} s") from None
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or "TLS failed"
        raise ScrapeError("access", f"{at}: no trusted connection ({reason})") from None
    except ConnectionError:
        raise ScrapeError("closed", f"{at}: the connection was closed before it answered") from None
    except (OSError, ValueError) as error:
        raise ScrapeError("malformed", f"{at}: not a whole HTTP reply: {str(error)[:80]}") from None


@dataclass(frozen=True, slots=True)
class _Target:
    """Parts of a URL."""

    secure: bool
    host: str | None
    port: int
    literal: tuple[_Address, ...]
    """Where `host` is an IP address: that alone."""
    authority: str
    path: str
    """With the query, quoted."""
    shown: str
    """The URL without user, password and query."""

    def addresses(self) -> Sequence[_Address]:
        """Return where to connect to. Raises ScrapeError for a name that is not known."""
        try:
            return self.literal or socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise ScrapeError("closed", f"{self.shown}: the name {self.host} is not known here") from None


@lru_cache(256)
def _target(url: str) -> _Target:
    """Return what a URL names: the same few are asked in every tick."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    port, authority = parts.port or (443 if secure else 80), parts.netloc.rpartition("@")[2]
    path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=string.punctuation)
    shown = f"{parts.scheme}://{authority}{parts.path or '/'}"
    return _Target(secure, parts.hostname, port, _literal(parts.hostname, port), authority, path, shown)


def _literal(host: str | None, port: int) -> tuple[_Address, ...]:
    """Return the address of a host that is named by its address; nothing for any other."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, ValueError):
            socket.inet_pton(family, host or "")
            return ((family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port)),)
    return ()


def _context(access: Access) -> ssl.SSLContext:
    """Raises ValueError if a certificate cannot be read."""
    try:
        context = ssl.create_default_context(cafile=access.ca_file)
        if access.cert_file is not None:
            # A key that asks for a passphrase would ask it of the terminal: an empty one refuses it instead.
            context.load_cert_chain(access.cert_file, access.key_file, password="")
    except OSError as error:  # ssl.SSLError is one
        files = ", ".join(name for name in (access.ca_file, access.cert_file, access.key_file) if name)
        raise ValueError(f"its certificates cannot be read from {files}: {error.strerror}") from None
    return context


def _connected(addresses: Sequence[_Address], at: str, deadline: Deadline) -> socket.socket:
    """Return a connection to the first address that takes one."""
    refused: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            deadline.limit(sock)
            sock.connect(address)
        except TimeoutError:
            sock.close()
            raise
        except OSError as error:
            sock.close()
            refused = error
        else:
            return sock
    raise ScrapeError("closed", f"{at}: nothing answers there ({refused.strerror if refused else 'no address'})")


def _secured(
    sock: socket.socket, context: ssl.SSLContext | None, access: Access, target: _Target, deadline: Deadline
) -> socket.socket:
    if context is None:
        return sock
    deadline.limit(sock)
    return context.wrap_socket(sock, server_hostname=access.server_name or target.host)


def _exchange(
    sock: socket.socket,
    deadline: Deadline,
    method: str,
    target: _Target,
    headers: Mapping[str, str],
    limits: Limits,
) -> Reply:
    """Send one request over `sock` and return the reply.

    Raises ScrapeError, or ValueError and OSError for a reply that is not whole.
    """
    common = {"Host": target.authority, "Connection": "close", "User-Agent": "pertoken"}
    if method != "GET":
        common["Content-Length"] = "0"
    lines = [f"{method} {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in {**common, **headers}.items())]
    request = "\r\n".join([*lines, "", ""]).encode("latin-1")
    if request.count(b"\n") != len(lines) + 1:
        raise ValueError("a header of the request holds the end of a line")
    incoming = Incoming(sock, deadline, limits.page_bytes + FRAMING_BYTES)
    deadline.limit(sock)
    sock.sendall(request)
    try:
        return _reply(incoming, target.shown, limits)
    except OverflowError:
        raise _too_large(target.shown, limits) from None


def _reply(incoming: Incoming, at: str, limits: Limits) -> Reply:
    head = read_head(incoming)
    status, fields = head.status, head.headers
    if status != 200:
        elsewhere = fields.get("location")
        where = f" to {literal(elsewhere[:200])}, which is not followed" if elsewhere else ""
        raise ScrapeError("access" if status in (401, 403) else "http", f"{at}: answered {status}{where}", status)
    encoding = fields.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise ScrapeError("malformed", f"{at}: encoded as {encoding[:40]}, which was not asked for")
    inflate = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    body, received = bytearray(), 0
    for part in read_body(incoming, fields):
        received += len(part)
        if inflate is None:
            body += part
        else:
            try:
                body += inflate.decompress(part, limits.page_bytes + 1 - len(body))
            except zlib.error as error:
                raise ScrapeError("malformed", f"{at}: not gzip: {error}") from None
        if max(received, len(body)) > limits.page_bytes:
            raise _too_large(at, limits)
    if inflate is not None and (not inflate.eof or inflate.unused_data):
        raise ScrapeError("malformed", f"{at}: its gzip stream does not end where the reply ends")
    return Reply(bytes(body), fields.get("content-type", ""), fields.get("process-start-time-unix", ""))


def _too_large(at: str, limits: Limits) -> ScrapeError:
    return ScrapeError("too_large", f"{at}: larger than {limits.page_bytes / 1e6:g} MB, so it was not read")
