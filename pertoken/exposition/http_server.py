"""HTTP or HTTPS server of read-only pages, which many slow clients do not stop."""

import io
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pertoken.errors import BadInput

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
class Request:
    """A request for a page, without its query."""

    address: str
    path: str
    headers: Message


@dataclass(frozen=True, slots=True)
class Reply:
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
        answer: Callable[[Request], Reply],
        *,
        name: str,
        context: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        may_connect: Callable[[str], bool] = lambda address: True,
    ) -> None:
        """Bind the port. `headers` are those of every answer. Raises OSError."""
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
                waiting = [(end, other) for other, end in self._deadlines.items() if end is not None]
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

    def cut(self, now: float) -> None:
        """Cut the clients whose time has passed."""
        with self._lock:
            for client in [client for client, end in self._deadlines.items() if end is not None and end < now]:
                self._cut(client)

    def _cut(self, client: socket.socket) -> None:
        del self._deadlines[client]
        with suppress(OSError):  # the client has left
            socket.socket.shutdown(client, socket.SHUT_RDWR)  # the one of TLS would change what its thread reads


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def __init__(
        self,
        address: tuple[str, int],
        answer: Callable[[Request], Reply],
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

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a client."""
        client, address = super().get_request()
        if self._context is not None:
            # The handshake runs at the first read, within the time limit of the client.
            client = self._context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
        return client, address

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether a client may connect, and there is a place for it."""
        return self._may_connect(client_address[0]) and self.clients.add(request, time.monotonic() + READ_S)

    def service_actions(self) -> None:
        """Cut clients that are too slow; called twice a second."""
        self.clients.cut(time.monotonic())

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self.clients.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what is not the fault of a client that disconnected."""
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
        self._reply(Reply(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request is too long.\n"))
        return None

    def _answer(self) -> Reply:
        if self.command not in METHODS:
            allowed = {"Allow": ", ".join(METHODS)}
            return Reply(HTTPStatus.METHOD_NOT_ALLOWED, "The pages can only be read.\n", headers=allowed)
        return self.server.answer(Request(self.client_address[0], self.path.partition("?")[0], self.headers))

    def _reply(self, reply: Reply) -> None:
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
        self._reply(Reply(HTTPStatus(code), "The request cannot be read.\n"))

    def log_message(self, format: str, *args: object) -> None:
        """Do nothing: requests are not logged."""
