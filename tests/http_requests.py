"""Requests to a server on loopback: one by the standard library's client, and one of raw bytes."""

import contextlib
import http.client
import socket


def ask(
    port: int, path: str = "/", method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], str]:
    """Return the status, headers and text of a reply."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers or {})
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read().decode()


def raw(port: int, request: bytes) -> bytes:
    """Return everything a server answers to these bytes before it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(request)
        parts = []
        with contextlib.suppress(ConnectionResetError):
            while part := client.recv(65_536):
                parts.append(part)
        return b"".join(parts)
