"""Pages of inference servers: fetched over HTTP within a time and a size, and parsed.

Front door: `get`, `fetch` (one request), `Parser`, `parse` (the Prometheus text format).
"""

from __future__ import annotations

import re
import socket
import ssl
import string
import time
import zlib
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress
from math import inf, nan
from operator import ne, sub
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from pertoken.access import Access, access_of, authorization
from pertoken.config import Settings
from pertoken.printable import literal

_CHUNK = 65_536
_LINE_BYTES = 65_536
_MAX_HEADERS = 100
FRAMING_BYTES = 65_536
"""Bytes that the status line, headers and chunk sizes may take beside the body."""
_STATUS = re.compile(rb"HTTP/1\.\d ([1-9]\d\d)(?: .*)?", re.DOTALL).fullmatch
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*", re.DOTALL).fullmatch
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL).fullmatch
_FRAMING = ("content-length", "transfer-encoding")


class Deadline:
    """The moment by which a whole reply has to be read, however its server spreads the bytes."""

    def __init__(self, timeout_s: float) -> None:
        self._at = time.monotonic() + timeout_s

    def limit(self, sock: socket.socket) -> None:
        """Let the next operation on `sock` last no longer. Raises TimeoutError if the time is over."""
        left_s = self._at - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        sock.settimeout(left_s)


class Incoming:
    """The bytes that a socket receives before the deadline, at most `max_bytes` of them."""

    def __init__(self, sock: socket.socket, deadline: Deadline, max_bytes: int) -> None:
        self._sock, self._deadline, self._left_bytes = sock, deadline, max_bytes
        self._buffer = bytearray()

    def _receive(self) -> bool:
        """Receive once and return False at the end of the connection. Raises TimeoutError and OverflowError."""
        self._deadline.limit(self._sock)
        part = self._sock.recv(_CHUNK)
        self._left_bytes -= len(part)
        if self._left_bytes < 0:
            raise OverflowError
        self._buffer += part
        return bool(part)

    def begin(self) -> None:
        """Wait for the first byte. Raises ConnectionError if there is none."""
        if not self._receive():
            raise ConnectionError

    def line(self) -> bytes:
        """Return the bytes up to the next end of a line. Raises ValueError if it does not end."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > _LINE_BYTES:
                raise ValueError(f"a line of more than {_LINE_BYTES} bytes")
            if not self._receive():
                raise ValueError("its headers do not end")
        line = bytes(self._buffer[:end]).removesuffix(b"\r")
        del self._buffer[: end + 1]
        return line

    def parts(self, length: int) -> Iterator[bytes]:
        """Yield the next `length` bytes as they come. Raises ValueError if there are fewer."""
        left_bytes = length
        while left_bytes:
            if not self._buffer and not self._receive():
                raise ValueError(f"{length - left_bytes} of {length} bytes")
            part = bytes(self._buffer[:left_bytes])
            del self._buffer[:left_bytes]
            left_bytes -= len(part)
            yield part

    def rest(self) -> Iterator[bytes]:
        """Yield the bytes until the connection ends."""
        while self._buffer or self._receive():
            yield bytes(self._buffer)
            self._buffer.clear()

    def chunks(self) -> Iterator[bytes]:
        """Yield a body sent in chunks. Raises ValueError for one that is not whole."""
        while size := self._chunk_bytes():
            yield from self.parts(size)
            if self.line():
                raise ValueError("a chunk is longer than its size")
        while self.line():
            pass  # trailers

    def _chunk_bytes(self) -> int:
        line = self.line()
        match = _SIZE(line)
        if match is None:
            raise ValueError(f"{line[:40]!r} is not the size of a chunk")
        return int(match[1], 16)


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of a reply."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name; of several of one name the first."""


def read_head(incoming: Incoming) -> Head:
    """Return the status and headers of the reply that comes next, interim replies left out.

    Raises ValueError for a reply that is not HTTP/1, ConnectionError for a connection that ends before its first byte.
    """
    incoming.begin()
    while True:
        line = incoming.line()
        match = _STATUS(line)
        if match is None:
            raise ValueError(f"not HTTP: {line[:40]!r}")
        head = Head(int(match[1]), _headers(incoming))
        if head.status >= 200:
            return head


def _headers(incoming: Incoming) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(_MAX_HEADERS):
        line = incoming.line()
        if not line:
            return headers
        match = _HEADER(line)
        if match is None:  # it may hide those after it, and with them the length of the body
            raise ValueError(f"not a header: {line[:40]!r}")
        name, value = match[1].decode("ascii").lower(), match[2].decode("latin-1")
        if headers.setdefault(name, value) != value and name in _FRAMING:
            raise ValueError(f"two values of {name}")
    raise ValueError(f"more than {_MAX_HEADERS} headers")


def read_body(incoming: Incoming, headers: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the body in parts: in chunks, of the length that the headers state, or up to the end of the connection.

    Raises ValueError for unknown framing and for a body that is not whole.
    """
    transfer, length = headers.get("transfer-encoding"), headers.get("content-length")
    if transfer is not None:
        if transfer.lower() != "chunked":
            raise ValueError(f"sent as {transfer[:40]}")
        return incoming.chunks()
    if length is None:
        return incoming.rest()
    if not (length.isascii() and length.isdigit() and len(length) <= 16):
        raise ValueError(f"{length[:40]!r} is not a length")
    return incoming.parts(int(length))


_Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[object, ...]]
ACCEPT = "text/plain, application/json, application/openmetrics-text;version=1.0.0;q=0.5"


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of one GET, and the credentials for each base URL."""

    timeout_s: float = 3.0
    """From connecting to the last byte, however the server spreads them; resolving a name is not in it."""
    page_bytes: int = 8_000_000
    """Largest body, after decompression as well as before."""
    access: tuple[Access, ...] = ()
    """In any order: of those that cover a URL the most specific is taken."""

    @classmethod
    def of(cls, settings: Settings) -> RequestLimits:
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


def get(url: str, limits: RequestLimits) -> Reply:
    """Return the page of an engine at `url`. Raises ScrapeError as `fetch` does."""
    return fetch("GET", url, limits, {"Accept": ACCEPT, "Accept-Encoding": "gzip"})


def fetch(method: str, url: str, limits: RequestLimits, headers: Mapping[str, str]) -> Reply:
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
    shown, addresses = target.shown, target.addresses()
    deadline = Deadline(limits.timeout_s)
    try:
        with (
            _connected(addresses, shown, deadline) as plain,
            _secured(plain, context, access, target, deadline) as sock,
        ):
            return _exchange(sock, deadline, method, target, {**headers, **shown_token}, limits)
    except TimeoutError:
        raise ScrapeError("timeout", f"{shown}: no whole reply within {limits.timeout_s:g} s") from None
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or "TLS failed"
        raise ScrapeError("access", f"{shown}: no trusted connection ({reason})") from None
    except ConnectionError:
        raise ScrapeError("closed", f"{shown}: the connection was closed before it answered") from None
    except (OSError, ValueError) as error:
        raise ScrapeError("malformed", f"{shown}: not a whole HTTP reply: {str(error)[:80]}") from None


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
    """Return the parts of a URL: the same few are asked in every tick."""
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


def _connected(addresses: Sequence[_Address], shown: str, deadline: Deadline) -> socket.socket:
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
    raise ScrapeError("closed", f"{shown}: nothing answers there ({refused.strerror if refused else 'no address'})")


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
    limits: RequestLimits,
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


def _reply(incoming: Incoming, shown: str, limits: RequestLimits) -> Reply:
    head = read_head(incoming)
    status, fields = head.status, head.headers
    if status != 200:
        elsewhere = fields.get("location")
        where = f" to {literal(elsewhere[:200])}, which is not followed" if elsewhere else ""
        raise ScrapeError("access" if status in (401, 403) else "http", f"{shown}: answered {status}{where}", status)
    encoding = fields.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise ScrapeError("malformed", f"{shown}: encoded as {encoding[:40]}, which was not asked for")
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
                raise ScrapeError("malformed", f"{shown}: not gzip: {error}") from None
        if max(received, len(body)) > limits.page_bytes:
            raise _too_large(shown, limits)
    if inflate is not None and (not inflate.eof or inflate.unused_data):
        raise ScrapeError("malformed", f"{shown}: its gzip stream does not end where the reply ends")
    return Reply(bytes(body), fields.get("content-type", ""), fields.get("process-start-time-unix", ""))


def _too_large(shown: str, limits: RequestLimits) -> ScrapeError:
    return ScrapeError("too_large", f"{shown}: larger than {limits.page_bytes / 1e6:g} MB, so it was not read")


T = TypeVar("T")
Labels = tuple[tuple[str, str], ...]
"""Label names and values, sorted by name."""


MAX_VALUE = 10**18
"""No counter or gauge is larger; a column of the store holds nine times as much."""


class PageError(Exception):
    """The page breaks its format, or holds a value that a counter cannot have."""


class Layout:
    """Series of a page: the same object for as long as the pages of a server have the same ones."""

    def __init__(self) -> None:
        self._results: dict[Hashable, Any] = {}

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the result of `compute`, which depends on the series alone and so is computed once."""
        if key not in self._results:
            self._results[key] = compute()
        result: T = self._results[key]
        return result


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """The wanted series of one page, by sample name and labels."""

    samples: dict[str, dict[Labels, float]]
    layout: Layout = field(default_factory=Layout, compare=False)

    def only(self, label: str, value: str) -> MetricsPage:
        """Return the series with this label."""
        pair = (label, value)
        samples = {name: {k: v for k, v in series.items() if pair in k} for name, series in self.samples.items()}
        return MetricsPage({name: series for name, series in samples.items() if series}, self.layout.once(pair, Layout))

    def gauge(self, name: str) -> dict[Labels, float]:
        """Return values of one gauge, without NaN and infinities, which engines write for *nothing to report*.

        Values that no gauge of ours can have are left out too.
        """
        return {labels: value for labels, value in self.samples.get(name, {}).items() if 0 <= value <= MAX_VALUE}

    def counter(self, name: str, unit: float = 1) -> dict[Labels, int]:
        """Return values of one counter in units of `unit` of the page's, rounded to whole counts.

        Raises PageError for a negative, non-finite or impossibly large one: leaving that series out would make the
        sum over the others a wrong number.
        """
        series = self.samples.get(name, {})
        counts = _counts(name, [value / unit for value in series.values()])
        if len(counts) > 1:
            _counts(name, [sum(counts)])
        return dict(zip(series, counts, strict=True))

    def histogram(self, name: str) -> dict[Labels, tuple[tuple[float, ...], tuple[int, ...]]]:
        """Return upper bounds (without +Inf) and non-cumulative counts (with it, one more) of one histogram, by labels.

        Raises PageError for a set of buckets without +Inf or with cumulative counts that fall.
        """
        bucket = f"{name}_bucket"
        series = self.samples.get(bucket, {})
        by_labels = {}
        for labels, ladder in self.layout.once(bucket, lambda: _ladders(bucket, series)).items():
            cumulative = _counts(bucket, [series[step] for step in ladder.steps])
            for step, repeated in ladder.repeated:
                if _counts(bucket, [series[repeated]]) != [cumulative[step]]:
                    raise PageError(f"{bucket}: two counts for le={(*ladder.bounds, inf)[step]!r}")
            counts = tuple(map(sub, cumulative, (0, *cumulative)))
            if min(counts) < 0:
                raise PageError(f"{bucket}: cumulative counts fall from one bucket to the next")
            by_labels[labels] = (ladder.bounds, counts)
        return by_labels


Sample = tuple[str, Labels, float]
_Series = tuple[str, Labels]


class Parser:
    """Reads successive pages of one server, and takes the samples with names in `wanted`.

    A page usually has the lines of the previous page with other numbers: then only those are read.
    """

    def __init__(self, wanted: Collection[str]) -> None:
        self._wanted = wanted
        self._lines: list[str] = []
        """Lines of the previous page; none if the next page must be read from its start."""
        self._heads: list[tuple[str, _Series | None]] = []
        """Text before the number of each line ("" if the line must stay as it is), and its series, if wanted."""
        self._page = MetricsPage({})
        self._ended = False

    def parse(self, body: bytes, *, eof_required: bool = False, buckets: bool = True) -> MetricsPage:
        """Return one page; without `buckets` it has no series of histograms.

        Raises PageError, with the line, for anything that is not a whole, well-formed page; also for a wanted series
        given twice with different values.
        """
        try:
            lines = body.decode().split("\n")
        except UnicodeDecodeError as error:
            raise PageError(f"byte {error.start} is not UTF-8") from None
        page = self._with_new_numbers(lines) if self._ended or not eof_required else None
        page = page or self._from_start(lines, eof_required)
        if buckets:
            return page
        samples = {name: series for name, series in page.samples.items() if not name.endswith("_bucket")}
        return MetricsPage(samples, page.layout)

    def _with_new_numbers(self, lines: list[str]) -> MetricsPage | None:
        """Return the page if it has the lines of the previous page with other numbers."""
        if len(lines) != len(self._lines):
            return None
        numbers: list[str] = []
        changed: list[tuple[_Series, str]] = []
        for line, (head, series) in compress(zip(lines, self._heads, strict=True), map(ne, lines, self._lines)):
            if not head or not line.startswith(head):
                return None
            number = line[len(head) :]
            numbers.append(number)
            if series is not None:
                changed.append((series, number))
        if _PLAIN_NUMBERS("\n".join([*numbers, ""])) is None:
            return None
        previous = self._page.samples
        samples = dict(previous)
        for (name, labels), number in changed:
            if samples[name] is previous[name]:
                samples[name] = previous[name].copy()
            samples[name][labels] = float(number)
        self._lines, self._page = lines, MetricsPage(samples, self._page.layout)
        return self._page

    def _from_start(self, lines: list[str], eof_required: bool) -> MetricsPage:
        """Return the page by reading each of its lines. Raises PageError."""
        self._lines = []
        *complete_lines, rest = lines
        samples: dict[str, dict[Labels, float]] = {}
        heads: list[tuple[str, _Series | None]] = []
        ended = repeated = False
        for number, line in enumerate(complete_lines, 1):
            if ended and line:
                raise PageError(f"line {number}: text after # EOF")
            ended = ended or line == "# EOF"
            sample = _sample(line, number, self._wanted)
            head, blank, value = line.rpartition(" ")
            plain = _head(head) is not None and _PLAIN_NUMBER(value) is not None
            heads.append((head + blank if plain else "", sample and sample[:2]))
            if sample is None:
                continue
            name, labels, amount = sample
            series = samples.setdefault(name, {})
            repeated = repeated or labels in series
            first = series.setdefault(labels, amount)
            if first != amount and not (first != first and amount != amount):
                raise PageError(f"line {number}: {name} is given twice with these labels, as {first:g} and {amount:g}")
        if ended and rest:
            raise PageError(f"line {len(lines)}: text after # EOF")
        if rest.strip() and not rest.startswith("#"):
            raise PageError(f"line {len(lines)}: the page ends within a line")
        if (eof_required or rest) and not ended and rest != "# EOF":
            raise PageError(f"line {len(lines)}: the page ends before its end")
        self._page = MetricsPage(samples)
        if not repeated:
            self._lines, self._heads, self._ended = lines, [*heads, ("", None)], ended or rest == "# EOF"
        return self._page


def parse(body: bytes, wanted: Collection[str], *, eof_required: bool = False) -> MetricsPage:
    """Return the samples of a single page, as `Parser` reads it."""
    return Parser(wanted).parse(body, eof_required=eof_required)


def _sample(line: str, number: int, wanted: Collection[str]) -> Sample | None:
    """Return the sample of a line; None for a comment and for one that is not wanted. Raises PageError."""
    if line.startswith("#") or not line.strip():
        return None
    plain, _, value = line.rpartition(" ")
    head = _head(plain)
    if head is None or _PLAIN_NUMBER(value) is None:
        match = _SAMPLE.fullmatch(line)
        if match is None or (match["name"] is None and match["braces"] is None):
            raise PageError(f"line {number}: not a sample: {line[:80]!r}")
        head, value = (match["name"], match["braces"] or ""), match["value"]
    name, braces = head
    if name is None:
        name, braces = _quoted_name(braces, number)
    if name not in wanted:
        return None
    labels = _labels(braces) if braces else ()
    if labels is None:
        raise PageError(f"line {number}: bad labels {braces[:80]!r}")
    return name, labels, float(value)


_BRACES = r'\{(?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+\}'
_NUMBER = r"[+-]?(?:(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?|[iI]nf(?:inity)?|[nN]a[nN])"
_SAMPLE = re.compile(
    rf"[ \t]*(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*+)?[ \t]*(?P<braces>{_BRACES})?"
    rf"(?:(?<=\}})|(?<=[ \t]))[ \t]*(?P<value>{_NUMBER})"
    rf"(?:[ \t]+-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)?"  # a timestamp
    rf"(?:[ \t]+\#[ \t]*{_BRACES}[ \t]+{_NUMBER}(?:[ \t]+{_NUMBER})?)?[ \t]*"  # an exemplar
)
_PLAIN_HEAD = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*+)({_BRACES})?").fullmatch
_PLAIN_NUMBER = re.compile(_NUMBER).fullmatch
_PLAIN_NUMBERS = re.compile(rf"(?:{_NUMBER}\n)*+").fullmatch
"""Each on a line: hundreds at once cost a fifth of their cost one by one."""
_STRING = r'"((?:[^"\\]|\\.)*)"'
_LABEL = re.compile(rf"[ \t]*([a-zA-Z_][a-zA-Z0-9_]*|{_STRING})[ \t]*=[ \t]*{_STRING}[ \t]*(?:,|$)")
_QUOTED_NAME = re.compile(rf"[ \t]*{_STRING}[ \t]*(?:,|$)")
_ESCAPE = re.compile(r"\\(.)")
CACHED_SERIES = 8192
"""Heads and labels that are cached for pages read from their start."""


@lru_cache(CACHED_SERIES)
def _head(head: str) -> tuple[str, str] | None:
    """Return name and braces of a line up to its number; None if only the whole grammar can decide."""
    match = _PLAIN_HEAD(head)
    return (match[1], match[2] or "") if match else None


@lru_cache(CACHED_SERIES)
def _labels(braces: str) -> Labels | None:
    """Return sorted label pairs; None if they are not well-formed."""
    inside = braces[1:-1].rstrip(" \t")
    pairs: dict[str, str] = {}
    position = 0
    while position < len(inside):
        match = _LABEL.match(inside, position)
        name = match and (match[1] if match[2] is None else _unescaped(match[2]))
        if match is None or name is None or name in pairs:
            return None
        pairs[name] = _unescaped(match[3])
        position = match.end()
    return tuple(sorted(pairs.items()))


def _quoted_name(braces: str, number: int) -> tuple[str, str]:
    match = _QUOTED_NAME.match(braces[1:-1])
    if match is None:
        raise PageError(f"line {number}: a sample without a name")
    return _unescaped(match[1]), "{" + braces[1 + match.end() :]


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], text) if "\\" in text else text


def _counts(name: str, values: Collection[float]) -> list[int]:
    for value in values:
        if not 0 <= value <= MAX_VALUE:
            raise PageError(f"{name} is {value:g}, which a counter cannot be")
    return list(map(round, values))


@dataclass(frozen=True, slots=True)
class _Ladder:
    """One set of rising buckets."""

    bounds: tuple[float, ...]
    """Upper bounds without +Inf."""
    steps: tuple[Labels, ...]
    """Series of each bucket."""
    repeated: tuple[tuple[int, Labels], ...]
    """Series that repeat a bucket, with its position."""


def _ladders(name: str, series: Iterable[Labels]) -> dict[Labels, _Ladder]:
    """Return the sets of buckets among these series by their other labels. Raises PageError."""
    sets: dict[Labels, dict[float, list[Labels]]] = {}
    for labels in series:
        set_labels = tuple(pair for pair in labels if pair[0] != "le")
        try:
            bound = float(dict(labels)["le"])
        except (KeyError, ValueError):
            bound = nan
        if bound != bound:
            raise PageError(f"{name}: a bucket without a numeric le: {dict(labels)}")
        sets.setdefault(set_labels, {}).setdefault(bound, []).append(labels)
    if any(inf not in buckets for buckets in sets.values()):
        raise PageError(f"{name}: no +Inf bucket")
    ladders = {}
    for set_labels, buckets in sets.items():
        bounds = sorted(buckets)
        steps = tuple(buckets[bound][0] for bound in bounds)
        repeated = tuple((step, labels) for step, bound in enumerate(bounds) for labels in buckets[bound][1:])
        ladders[set_labels] = _Ladder(tuple(bounds[:-1]), steps, repeated)
    return ladders
