"""A Prometheus metrics page, and the HTTP server of it and of the team's pages.

It needs no client library: the values come from the store, and the format takes forty lines.

Front door: `Family`, `text_of`, `PageServer`, `MetricsServer` and `Pusher` (OTLP).
"""

from __future__ import annotations

import hmac
import io
import logging
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pertoken import __version__
from pertoken.access import read_secret
from pertoken.errors import BadInput, PertokenError
from pertoken.installed import install_command

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its samples."""

    name: str
    kind: str
    """`counter` or `gauge`."""
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]
    """(labels, value)."""


def text_of(families: Iterable[Family]) -> str:
    """Return the page. A family without samples is left out."""
    lines = []
    for family in families:
        if family.samples:
            lines += [f"# HELP {family.name} {_help(family.help)}", f"# TYPE {family.name} {family.kind}"]
            lines += [f"{family.name}{_labels(labels)} {_number(value)}" for labels, value in family.samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_label(value)}"' for name, value in labels.items())
    return f"{{{','.join(pairs)}}}"


def _label(value: str) -> str:
    clean = value.encode("utf-8", "replace").decode()
    return clean.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


MAX_CLIENTS = 64
"""Connections at a time; one more closes the one that has kept the server waiting longest."""
MAX_HEAD_BYTES = 16_384
READ_S = 10.0
"""Longest time for a client to send its request."""
SEND_S = 30.0
"""Longest time for a client to take the page."""
METHODS = ("GET", "HEAD")
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Connection": "close"}
"""Headers of every answer; none of them holds text of a request."""
log = logging.getLogger("pertoken.http")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for a page, without its query."""

    address: str
    path: str
    headers: Message


@dataclass(frozen=True, slots=True)
class PageReply:
    """An answer to a request."""

    status: HTTPStatus
    text: str
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


class PageServer:
    """Server of read-only pages, with a thread for each client."""

    def __init__(
        self,
        address: tuple[str, int],
        answer: Callable[[PageRequest], PageReply],
        *,
        name: str,
        context: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        may_connect: Callable[[str], bool] = lambda address: True,
    ) -> None:
        """Bind the port. `headers` go with every answer. Raises OSError."""
        self._server = _Server(address, answer, context, {**HEADERS, **(headers or {})}, may_connect)
        self._thread = threading.Thread(target=self._server.serve_forever, name=name, daemon=True)

    @property
    def port(self) -> int:
        """The port that was bound."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Start to accept clients."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the server, close its connections and release the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.clients.cut(float("inf"))
        self._server.server_close()


def tls_context(cert_file: str | None, key_file: str | None, setting: str) -> ssl.SSLContext | None:
    """Return the TLS side of a server, None without a certificate. Raises BadInput that names the unusable setting."""
    if cert_file is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert_file, key_file)
    except (OSError, ssl.SSLError) as error:
        raise BadInput(f"{setting}: {cert_file}: cannot be used: {error.strerror or error}") from None
    return context


class _Clients:
    """Open connections, with the time at which each that keeps the server waiting is cut."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deadlines: dict[socket.socket, float | None] = {}

    def add(self, client: socket.socket, deadline: float) -> bool:
        """Add a client, in place of the one that waits longest if there are `MAX_CLIENTS`; False if none waits."""
        with self._lock:
            if len(self._deadlines) >= MAX_CLIENTS:
                waiting = [(end, waiting_client) for waiting_client, end in self._deadlines.items() if end is not None]
                if not waiting:
                    return False
                self._cut(min(waiting, key=lambda entry: entry[0])[1])
            self._deadlines[client] = deadline
            return True

    def expect(self, client: socket.socket, deadline: float | None) -> None:
        """Set the time at which a client is cut; None while the server itself works."""
        with self._lock:
            if client in self._deadlines:
                self._deadlines[client] = deadline

    def remove(self, client: socket.socket) -> None:
        """Forget a client that was closed."""
        with self._lock:
            self._deadlines.pop(client, None)

    def cut(self, now_s: float) -> None:
        """Cut the clients that are past their time."""
        with self._lock:
            for client in [client for client, end in self._deadlines.items() if end is not None and end < now_s]:
                self._cut(client)

    def _cut(self, client: socket.socket) -> None:
        del self._deadlines[client]
        with suppress(OSError):  # the client has left
            socket.socket.shutdown(client, socket.SHUT_RDWR)  # the one of TLS would change what its thread reads


_Accepted = socket.socket | tuple[bytes, socket.socket]
"""A client as `socketserver` types it; of a TCP server always a socket."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def __init__(
        self,
        address: tuple[str, int],
        answer: Callable[[PageRequest], PageReply],
        context: ssl.SSLContext | None,
        headers: Mapping[str, str],
        may_connect: Callable[[str], bool],
    ) -> None:
        self.answer, self.headers, self.clients = answer, headers, _Clients()
        self._context, self._may_connect = context, may_connect
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without the reverse look-up of the name that `HTTPServer` makes."""
        socket.socket.bind(self.socket, self.server_address)
        self.server_address = self.socket.getsockname()

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        """Accept a client."""
        client, address = super().get_request()
        if self._context is not None:
            # The handshake runs at the first read, within the time limit of the client.
            client = self._context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
        return client, address

    def verify_request(self, request: _Accepted, client_address: tuple[str, int]) -> bool:
        """Return whether a client may connect, and there is a place for it."""
        assert isinstance(request, socket.socket)
        return self._may_connect(client_address[0]) and self.clients.add(request, time.monotonic() + READ_S)

    def service_actions(self) -> None:
        """Cut clients that are too slow; called twice a second."""
        self.clients.cut(time.monotonic())

    def shutdown_request(self, request: _Accepted) -> None:
        """Close a connection."""
        assert isinstance(request, socket.socket)
        self.clients.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log a fault, unless it is a client that disconnected."""
        import sys

        if not isinstance(sys.exception(), OSError):
            log.exception("a page could not be made")


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "pertoken", ""

    def handle(self) -> None:
        """Answer one request, and close the connection."""
        head = self._head()
        if head is None:
            return
        self.raw_requestline, _, headers = head.partition(b"\n")
        self.rfile.close()
        self.rfile = io.BytesIO(headers)
        if not self.parse_request() or self.request_version == "HTTP/0.9":
            return
        self.server.clients.expect(self.connection, None)
        reply = self._answer()
        self.server.clients.expect(self.connection, time.monotonic() + SEND_S)
        self._reply(reply)

    def _head(self) -> bytes | None:
        """Return the request line and the headers; None if the client ends before, or sends too much."""
        head = b""
        while len(head) < MAX_HEAD_BYTES:
            line = self.rfile.readline(MAX_HEAD_BYTES - len(head))
            head += line
            if not line:
                return None
            if line in (b"\r\n", b"\n") and head != line:
                return head
        self.requestline, self.request_version, self.command = "", "HTTP/1.1", "GET"
        self._reply(PageReply(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request is too long.\n"))
        return None

    def _answer(self) -> PageReply:
        if self.command not in METHODS:
            allowed = {"Allow": ", ".join(METHODS)}
            return PageReply(HTTPStatus.METHOD_NOT_ALLOWED, "The pages can only be read.\n", headers=allowed)
        return self.server.answer(PageRequest(self.client_address[0], self.path.partition("?")[0], self.headers))

    def _reply(self, reply: PageReply) -> None:
        body = reply.text.encode("utf-8", "replace")
        sizes = {"Content-Type": reply.content_type, "Content-Length": str(len(body))}
        self.send_response(reply.status)
        for name, value in {**sizes, **self.server.headers, **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that cannot be parsed, without its text."""
        self.command, self.request_version = "GET", "HTTP/1.1"
        self._reply(PageReply(HTTPStatus(code), "The request cannot be read.\n"))

    def log_message(self, format: str, *args: object) -> None:
        """Do nothing: requests are not logged."""


PATH = "/metrics"


class MetricsServer(PageServer):
    """Server of `page` at `/metrics`, which is made for one client after another."""

    def __init__(
        self,
        address: tuple[str, int],
        page: Callable[[], str],
        *,
        token_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
    ) -> None:
        """Bind the port. Raises OSError, BadInput for a token or certificate that cannot be read."""
        self._page = page
        self._token = read_secret(token_file, None, "metrics_token_file")
        self._lock = threading.Lock()
        context = tls_context(cert_file, key_file, "metrics_cert_file")
        super().__init__(address, self._answer, name="metrics", context=context)

    def _answer(self, request: PageRequest) -> PageReply:
        if self._token is not None:
            given = request.headers.get("Authorization", "").encode("utf-8", "replace")
            if not hmac.compare_digest(given, b"Bearer " + self._token):
                login = {"WWW-Authenticate": "Bearer"}
                return PageReply(HTTPStatus.UNAUTHORIZED, "a token is needed\n", headers=login)
        if request.path != PATH:
            return PageReply(HTTPStatus.NOT_FOUND, f"the page is {PATH}\n")
        with self._lock:
            return PageReply(HTTPStatus.OK, self._page(), CONTENT_TYPE)


PUSH_EVERY_S = 60.0
PUSH_S = 10.0
"""Longest time that a push may take, its retries included."""
Families = Callable[[], Sequence[Family]]
NAMES: Mapping[str, tuple[str, str]] = {
    "pertoken_device_energy_joules_total": ("hw.energy", "J"),
    "pertoken_device_power_watts": ("hw.power", "W"),
    "pertoken_device_temperature_celsius": ("hw.temperature", "Cel"),
    "pertoken_device_utilization_ratio": ("hw.gpu.utilization", "1"),
    "pertoken_device_memory_used_bytes": ("hw.gpu.memory.usage", "By"),
}
"""Metrics of the Prometheus pages -> (name, unit) of the conventions; other metrics keep their name, with dots."""
_ATTRIBUTES = {"model": "gen_ai.request.model", "uuid": "hw.id", "device": "hw.name", "host": "host.name"}


def exported(family: Family) -> tuple[str, str, list[tuple[float, dict[str, str]]]]:
    """Return name, unit and (value, attributes) of a metric as it is exported."""
    default_name = family.name.removesuffix("_total").replace("pertoken_", "pertoken.", 1)
    name, unit = NAMES.get(family.name, (default_name, "1"))
    samples = []
    for labels, value in family.samples:
        attributes = {_ATTRIBUTES.get(key, key): text for key, text in labels.items() if key != "kind"}
        if name.startswith("hw."):
            attributes["hw.type"] = "cpu" if labels.get("kind") == "cpu" else "gpu"
        samples.append((value, attributes))
    return name, unit, samples


class NotPushed(PertokenError):
    """A collector did not accept the metrics."""


class Pusher:
    """OTLP client that pushes when called: the program's own scheduler decides when.

    The SDK's periodic reader would start a thread of its own, and another one in each fork of the process, such as the
    workers of rules.
    """

    def __init__(self, endpoint: str, all_families: Iterable[Family], families: Families) -> None:
        """Prepare the exporter; nothing is sent yet. Raises BadInput if OpenTelemetry is not installed.

        `endpoint`: URL of an OTLP/HTTP collector's metrics path. `all_families`: every possible metric, with or without
        samples.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        except ModuleNotFoundError:
            raise BadInput(f"OTLP needs OpenTelemetry: {install_command('otlp')}") from None
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # a failed push is reported here
        self._endpoint = endpoint
        self._reader = InMemoryMetricReader()
        self._provider = provider_of(self._reader, all_families, families)
        self._exporter = OTLPMetricExporter(endpoint=endpoint, timeout=PUSH_S)
        self._pushing: threading.Thread | None = None
        self._is_taken = False

    def push(self) -> None:
        """Push all metrics as they are now. Raises NotPushed, at the latest after `PUSH_S`.

        The exporter bounds each read of a reply, not all of them: a collector that sends a byte now and then holds a
        thread of its own, and nothing else is pushed until it returns.
        """
        if self._pushing is None or not self._pushing.is_alive():
            self._pushing = threading.Thread(target=self._export, name="metrics push", daemon=True)
            self._is_taken = False
            self._pushing.start()
        self._pushing.join(PUSH_S)
        if not self._is_taken:
            raise NotPushed(f"{self._shown()}: did not take the metrics within {PUSH_S:g} s")

    def end(self) -> None:
        """Shut the exporter down."""
        self._exporter.shutdown(timeout_millis=0)
        self._provider.shutdown()

    def _export(self) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        data = self._reader.get_metrics_data()
        self._is_taken = data is None or self._exporter.export(data) is MetricExportResult.SUCCESS

    def _shown(self) -> str:
        """Return the endpoint without a user, a password or a query."""
        parts = urlsplit(self._endpoint)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def provider_of(reader: MetricReader, all_families: Iterable[Family], families: Families) -> MeterProvider:
    """Return the provider that gives metrics to a reader, with their names by the conventions."""
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource

    resource = Resource.create({"service.name": "pertoken", "service.version": __version__})
    provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    meter = provider.get_meter("pertoken", __version__)

    def observe(metric: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def values(options: CallbackOptions) -> Iterable[Observation]:
            for family in families():
                if family.name == metric:
                    yield from (Observation(value, attributes) for value, attributes in exported(family)[2])

        return values

    for family in all_families:
        name, unit, _ = exported(family)
        make = meter.create_observable_counter if family.kind == "counter" else meter.create_observable_gauge
        make(name, [observe(family.name)], unit, family.help)
    return provider
