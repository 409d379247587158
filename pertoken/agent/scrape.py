"""One HTTP request of a page: within a time and a size, or refused with the reason. Never a part of a page."""

import io
import socket
import ssl
import string
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import Any, cast
from urllib.parse import SplitResult, quote, urlsplit

from pertoken.access import Access
from pertoken.config import Settings

_CHUNK = 65_536
_Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
ACCEPT = "text/plain, application/json, application/openmetrics-text;version=1.0.0;q=0.5"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one GET may cost, and what may be shown where."""

    timeout_s: float = 3.0
    """From connecting to the last byte, however the server spreads them; resolving a name is not in it."""
    page_bytes: int = 8_000_000
    """Largest body, after decompression as well as before."""
    access: tuple[Access, ...] = ()

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
    """What llama.cpp's server tells of its start: microseconds since boot, whatever the name of the header says."""


class ScrapeError(Exception):
    """There is no page. `kind` is one of `readings.EngineReading.fault_kind`."""

    def __init__(self, kind: str, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status
        """HTTP status of kinds `http` and `access`."""


def get(url: str, limits: Limits) -> Reply:
    """The page of an engine at `url`. Raises ScrapeError as `fetch` does."""
    return fetch("GET", url, limits, {"Accept": ACCEPT, "Accept-Encoding": "gzip"})


def fetch(method: str, url: str, limits: Limits, headers: Mapping[str, str]) -> Reply:
    """Ask for `url` (http or https) over a connection of its own, without proxy, redirect or retry.

    llama.cpp closes connections that are kept alive while it is busy, so none is. Raises ScrapeError: `closed`,
    `access` (401, 403, or a certificate that is not believed), `http` (any other status but 200), `malformed`,
    `too_large` or `timeout`.
    """
    parts = urlsplit(url)
    at = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path or '/'}"
    access = next((each for each in limits.access if each.covers(url)), Access(url))
    try:
        token, context = access.token(), _context(access) if parts.scheme == "https" else None
    except ValueError as error:
        raise ScrapeError("access", f"{at}: {error}") from None
    bearer = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        addresses = socket.getaddrinfo(parts.hostname, parts.port or (443 if context else 80), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ScrapeError("closed", f"{at}: the name {parts.hostname} is not known here") from None
    deadline = _Deadline(limits.timeout_s)
    try:
        with _connected(addresses, at, deadline) as plain, _secured(plain, context, access, parts, deadline) as sock:
            deadline.limit(sock)
            sock.sendall(_request(method, parts, {**headers, **bearer}))
            response = HTTPResponse(cast(socket.socket, _Source(sock, deadline)))
            response.begin()
            return _reply(response, at, limits)
    except TimeoutError:
        raise ScrapeError("timeout", f"{at}: no whole reply within {limits.timeout_s:g} s") from None
    except ssl.SSLError as error:
        told = getattr(error, "verify_message", "") or error.reason or "TLS failed"
        raise ScrapeError("access", f"{at}: no trusted connection ({told})") from None
    except ConnectionError:
        raise ScrapeError("closed", f"{at}: the connection was closed before it answered") from None
    except (HTTPException, OSError, ValueError) as error:
        raise ScrapeError("malformed", f"{at}: not a whole HTTP reply: {str(error)[:80]}") from None


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


class _Deadline:
    """The moment by which everything has to be read, however a server spreads its bytes."""

    def __init__(self, timeout_s: float) -> None:
        self._at = time.monotonic() + timeout_s

    def limit(self, sock: socket.socket) -> None:
        """Let the next operation on `sock` last no longer. Raises TimeoutError if the time is over."""
        left = self._at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left)


class _Source(io.RawIOBase):
    """A socket as the file that `HTTPResponse` reads: no read lasts beyond the deadline."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock, self._deadline = sock, deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self, _CHUNK)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._deadline.limit(self._sock)
        return self._sock.recv_into(buffer)


def _connected(addresses: Sequence[_Address], at: str, deadline: _Deadline) -> socket.socket:
    """A connection to the first address that takes one."""
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
    sock: socket.socket, context: ssl.SSLContext | None, access: Access, parts: SplitResult, deadline: _Deadline
) -> socket.socket:
    if context is None:
        return sock
    deadline.limit(sock)
    return context.wrap_socket(sock, server_hostname=access.server_name or parts.hostname)


def _request(method: str, parts: SplitResult, more: Mapping[str, str]) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Host": parts.netloc.rpartition("@")[2], "Connection": "close"}
    headers |= {"User-Agent": "pertoken", **({"Content-Length": "0"} if method != "GET" else {}), **more}
    lines = [f"{method} {quote(target, safe=string.punctuation)} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", errors="replace")


def _reply(response: HTTPResponse, at: str, limits: Limits) -> Reply:
    if response.status != 200:
        elsewhere = response.headers.get("Location")
        where = f" to {elsewhere[:200]}, which is not followed" if elsewhere else ""
        kind = "access" if response.status in (401, 403) else "http"
        raise ScrapeError(kind, f"{at}: answered {response.status}{where}", response.status)
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise ScrapeError("malformed", f"{at}: encoded as {encoding[:40]}, which was not asked for")
    inflate = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    body = bytearray()
    promised, received = response.length, 0
    while received != promised and (chunk := response.read1(_CHUNK)):
        received += len(chunk)
        if inflate is None:
            body += chunk
        else:
            try:
                body += inflate.decompress(chunk, limits.page_bytes + 1 - len(body))
            except zlib.error as error:
                raise ScrapeError("malformed", f"{at}: not gzip: {error}") from None
        if max(received, len(body)) > limits.page_bytes:
            raise ScrapeError("too_large", f"{at}: larger than {limits.page_bytes / 1e6:g} MB, so it was not read")
    if promised is not None and received < promised:
        raise ScrapeError("malformed", f"{at}: not a whole HTTP reply: {received} of {promised} bytes")
    if inflate is not None and (not inflate.eof or inflate.unused_data):
        raise ScrapeError("malformed", f"{at}: its gzip stream does not end where the reply ends")
    headers = response.headers
    return Reply(bytes(body), headers.get("Content-Type", ""), headers.get("Process-Start-Time-Unix", ""))
