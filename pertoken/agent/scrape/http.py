"""One HTTP request of a page: within a time and a size, or refused with the reason. Never a part of a page.

Replies are read here as RFC 9112 has them (a length, chunks, or up to the end of the connection): what `http.client`
does with a few headers costs more than the page they come with.
"""

import re
import socket
import ssl
import string
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from pertoken.access import Access
from pertoken.config import Settings

_CHUNK = 65_536
_HEAD = 65_536
"""Longest status line and headers."""
_STATUS = re.compile(r"HTTP/1\.[01] ([1-5][0-9][0-9])(?: .*)?").fullmatch
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
            return _reply(_Stream(sock, deadline), at, limits)
    except TimeoutError:
        raise ScrapeError("timeout", f"{at}: no whole reply within {limits.timeout_s:g} s") from None
    except ssl.SSLError as error:
        told = getattr(error, "verify_message", "") or error.reason or "TLS failed"
        raise ScrapeError("access", f"{at}: no trusted connection ({told})") from None
    except ConnectionError:
        raise ScrapeError("closed", f"{at}: the connection was closed before it answered") from None
    except (OSError, ValueError) as error:
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


class _Stream:
    """What a server sends, taken part by part; no read lasts beyond the deadline."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock, self._deadline = sock, deadline
        self._taken = b""
        """Received already, and not wanted yet."""

    def part(self, most: int = _CHUNK) -> bytes:
        """What comes next; nothing at its end."""
        if not self._taken:
            self._deadline.limit(self._sock)
            self._taken = self._sock.recv(_CHUNK)
        part, self._taken = self._taken[:most], self._taken[most:]
        return part

    def until(self, end: bytes) -> bytes:
        """All up to `end`, which is left out. Raises ValueError if it does not come, ConnectionError for nothing."""
        text = b""
        while (at := text.find(end)) < 0:
            part = self.part()
            if not part and not text:
                raise ConnectionResetError
            if not part or len(text) > _HEAD:
                raise ValueError(f"no end of {text[:40]!r}")
            text += part
        self._taken = text[at + len(end) :] + self._taken
        return text[:at]


def _head(stream: _Stream) -> tuple[int, dict[str, str]]:
    """Status and header fields of a reply, their names in small letters; of one told twice the first."""
    first, *lines = stream.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
    status = _STATUS(first)
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(f"not a header: {line[:40]!r}")
        fields.setdefault(name.lower(), value.strip())
    if status is None:
        raise ValueError(f"not a status line: {first[:40]!r}")
    return int(status[1]), fields


def _body(stream: _Stream, fields: Mapping[str, str]) -> Iterator[bytes]:
    """The body, however long it says it is. Raises ValueError if it ends before."""
    if "transfer-encoding" in fields:
        if fields["transfer-encoding"].lower() != "chunked":
            raise ValueError(f"sent as {fields['transfer-encoding'][:40]}")
        while size := int(_digits(stream.until(b"\r\n").decode("latin-1").partition(";")[0].strip(), 16), 16):
            yield from _exactly(stream, size)
            if stream.until(b"\r\n"):
                raise ValueError("a chunk does not end where it says")
    elif "content-length" in fields:
        yield from _exactly(stream, int(_digits(fields["content-length"], 10)))
    else:
        while part := stream.part():
            yield part


def _exactly(stream: _Stream, size: int) -> Iterator[bytes]:
    left = size
    while left:
        part = stream.part(left)
        if not part:
            raise ValueError(f"{size - left} of {size} bytes")
        left -= len(part)
        yield part


def _digits(text: str, base: int) -> str:
    if not 0 < len(text) <= 16 or set(text) - set(string.hexdigits if base == 16 else string.digits):
        raise ValueError(f"{text[:40]!r} is not a length")
    return text


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


def _reply(stream: _Stream, at: str, limits: Limits) -> Reply:
    status, fields = _head(stream)
    if status != 200:
        elsewhere = fields.get("location")
        where = f" to {elsewhere[:200]}, which is not followed" if elsewhere else ""
        raise ScrapeError("access" if status in (401, 403) else "http", f"{at}: answered {status}{where}", status)
    encoding = fields.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise ScrapeError("malformed", f"{at}: encoded as {encoding[:40]}, which was not asked for")
    inflate = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    body, received = bytearray(), 0
    for part in _body(stream, fields):
        received += len(part)
        if inflate is None:
            body += part
        else:
            try:
                body += inflate.decompress(part, limits.page_bytes + 1 - len(body))
            except zlib.error as error:
                raise ScrapeError("malformed", f"{at}: not gzip: {error}") from None
        if max(received, len(body)) > limits.page_bytes:
            raise ScrapeError("too_large", f"{at}: larger than {limits.page_bytes / 1e6:g} MB, so it was not read")
    if inflate is not None and (not inflate.eof or inflate.unused_data):
        raise ScrapeError("malformed", f"{at}: its gzip stream does not end where the reply ends")
    return Reply(bytes(body), fields.get("content-type", ""), fields.get("process-start-time-unix", ""))
