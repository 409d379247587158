"""Server of one page over HTTP or HTTPS, with an optional bearer token."""

import hmac
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socket import AF_INET6, socket
from typing import Any

from pertoken.cutoff import Cutoff
from pertoken.errors import BadInput
from pertoken.exposition.page import CONTENT_TYPE

TIMEOUT_S = 5.0
"""Longest time for all of one client's request; requests are answered one after another."""
PATH = "/metrics"
MAX_TOKEN_BYTES = 4096


class MetricsServer:
    """Server of `page` at `/metrics`, in a thread."""

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
        token = None if token_file is None else _token(token_file)
        context = None if cert_file is None else tls_context(cert_file, key_file, "metrics_cert_file")
        self._server = _Server(address, page, token, context)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def port(self) -> int:
        """The port that was bound."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Start the server thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the server and release the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def _token(file: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            text = opened.read(MAX_TOKEN_BYTES).partition(b"\n")[0].strip()
    except OSError as error:
        raise BadInput(f"metrics_token_file: {file}: cannot be read: {(error.strerror or '').lower()}") from None
    if not text:
        raise BadInput(f"metrics_token_file: {file}: is empty")
    return text


def tls_context(cert_file: str, key_file: str | None, setting: str) -> ssl.SSLContext:
    """Return the TLS side of a server. Raises BadInput that names the setting of a certificate it cannot use."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert_file, key_file)
    except (OSError, ssl.SSLError) as error:
        raise BadInput(f"{setting}: {cert_file}: cannot be used: {error.strerror or error}") from None
    return context


class _Server(HTTPServer):
    def __init__(
        self, address: tuple[str, int], page: Callable[[], str], token: bytes | None, context: ssl.SSLContext | None
    ) -> None:
        self.page, self.token, self._context = page, token, context
        if ":" in address[0]:
            self.address_family = AF_INET6
        super().__init__(address, _Handler)

    def get_request(self) -> tuple[socket, Any]:
        """Accept a client."""
        client, address = super().get_request()
        client.settimeout(TIMEOUT_S)
        if self._context is not None:
            # The handshake runs at the first read, within the time limit of the client.
            client = self._context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
        return client, address

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer one client, and close the connection after `TIMEOUT_S` even if it sends bytes slowly."""
        with Cutoff(request, TIMEOUT_S):
            super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that disconnected."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "pertoken", ""

    def do_GET(self) -> None:
        """Send the page."""
        if self.server.token is not None:
            given = self.headers.get("Authorization", "").encode("utf-8", "replace")
            if not hmac.compare_digest(given, b"Bearer " + self.server.token):
                self._reply(401, "a token is needed\n", {"WWW-Authenticate": "Bearer"})
                return
        if self.path.partition("?")[0] != PATH:
            self._reply(404, f"the page is {PATH}\n")
            return
        self._reply(200, self.server.page())

    def _reply(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {"Content-Type": CONTENT_TYPE, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Do nothing: requests are not logged."""
