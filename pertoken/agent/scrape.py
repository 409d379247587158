"""One HTTP request of a page: within a time and a size, or refused with the reason. Never a part of a page."""

import socket
import threading
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from urllib.parse import urlsplit

from urllib3 import HTTPResponse
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
)

_CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class Limits:
    """What one GET may cost."""

    timeout_s: float = 3.0
    """From connecting to the last byte, however the server spreads them; resolving a name is not in it."""
    page_bytes: int = 8_000_000
    """Largest body, after decompression as well as before."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply with status 200."""

    body: bytes
    content_type: str


class ScrapeError(Exception):
    """There is no page. `kind` is one of `readings.EngineReading.fault_kind`."""

    def __init__(self, kind: str, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status
        """HTTP status of kind `http`."""


def get(url: str, limits: Limits) -> Reply:
    """The page of an engine at `url`. Raises ScrapeError as `fetch` does."""
    return fetch("GET", url, limits, {"Accept": "text/plain, application/json", "Accept-Encoding": "gzip"})


def fetch(method: str, url: str, limits: Limits, headers: Mapping[str, str]) -> Reply:
    """Ask for `url` (http or https) over a connection of its own, without proxy, redirect or retry.

    llama.cpp closes connections that are kept alive while it is busy, so none is. Raises ScrapeError: `closed`,
    `http` (any status but 200), `malformed`, `too_large` or `timeout`.
    """
    parts = urlsplit(url)
    host, path = parts.hostname or "", parts.path or "/"
    at = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}"
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(host, parts.port or kind.default_port, timeout=limits.timeout_s)
    deadline = _Deadline(time.monotonic() + limits.timeout_s)
    try:
        connection.connect()
        deadline.watch(connection.sock)
        connection.request(
            method,
            f"{path}?{parts.query}" if parts.query else path,
            headers={"Connection": "close", **headers},
            preload_content=False,
            decode_content=False,
            enforce_content_length=True,
        )
        response = connection.getresponse()
        try:
            return _reply(response, at, limits, deadline)
        finally:
            response.close()
    except NameResolutionError:
        raise ScrapeError("closed", f"{at}: the name {host} is not known here") from None
    except NewConnectionError as error:
        raise ScrapeError("closed", f"{at}: nothing answers there ({_cause(error)})") from None
    except (ReadTimeoutError, ConnectTimeoutError, TimeoutError):
        raise _timeout(at, limits) from None
    except (HTTPError, HTTPException, OSError, ValueError) as error:
        if deadline.passed:
            raise _timeout(at, limits) from None
        if isinstance(error, ConnectionError) or "closed connection" in str(error):
            raise ScrapeError("closed", f"{at}: the connection was closed before it answered") from None
        raise ScrapeError("malformed", f"{at}: not a whole HTTP reply: {error}") from None
    finally:
        deadline.stop()
        connection.close()


class _Deadline:
    """Shuts the socket down when its time has come, so that a server that drips bytes cannot outlast it."""

    def __init__(self, at: float) -> None:
        self._at = at
        self._timer: threading.Timer | None = None

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self._at

    def watch(self, sock: socket.socket | None) -> None:
        if sock is None or self.passed:
            raise TimeoutError
        self._timer = threading.Timer(self._at - time.monotonic(), _shut, (sock,))
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()


def _shut(sock: socket.socket) -> None:
    # http.client closes its own handle as soon as it has the headers, while the response still reads from the
    # descriptor; `socket.socket` because an SSL socket's own shutdown would race with the reading thread.
    if sock.fileno() >= 0:
        try:
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
        except OSError:
            return  # the server was faster


def _reply(response: HTTPResponse, at: str, limits: Limits, deadline: _Deadline) -> Reply:
    if response.status != 200:
        elsewhere = response.headers.get("Location")
        where = f" to {elsewhere}, which is not followed" if elsewhere else ""
        raise ScrapeError("http", f"{at}: answered {response.status}{where}", response.status)
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise ScrapeError("malformed", f"{at}: encoded as {encoding}, which was not asked for")
    inflate = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    body = bytearray()
    received = 0
    while chunk := response.read1(_CHUNK):
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
        if deadline.passed:
            raise TimeoutError
    if deadline.passed:
        raise TimeoutError
    if inflate is not None and (not inflate.eof or inflate.unused_data):
        raise ScrapeError("malformed", f"{at}: its gzip stream does not end where the reply ends")
    return Reply(bytes(body), response.headers.get("Content-Type", ""))


def _timeout(at: str, limits: Limits) -> ScrapeError:
    return ScrapeError("timeout", f"{at}: no whole reply within {limits.timeout_s:g} s")


def _cause(error: BaseException) -> str:
    cause = error.__cause__ or error.__context__
    return (cause.strerror if isinstance(cause, OSError) else None) or "no connection"
