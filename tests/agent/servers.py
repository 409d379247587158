"""Servers that answer by script, over a real socket on loopback: what a broken engine may send."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping

Answer = Callable[[socket.socket, str], None]
"""Sends what it likes on the connection; gets the path that was asked for."""


@contextlib.contextmanager
def answering(answer: Answer, tls: ssl.SSLContext | None = None, asked: list[str] | None = None) -> Iterator[str]:
    """Base URL of a server that answers every connection by `answer` until the block ends.

    `asked` is filled with what its clients send.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def secured(connection: socket.socket) -> socket.socket:
        connection.settimeout(10)
        return tls.wrap_socket(connection, server_side=True) if tls else connection

    def serve() -> None:
        while not ended.is_set():
            accepted, _ = listener.accept()
            with accepted, contextlib.suppress(OSError), secured(accepted) as connection:
                request = connection.recv(65_536).decode("latin-1")  # a body may be of any bytes
                if request:
                    if asked is not None:
                        asked.append(request)
                    answer(connection, request.split(" ")[1])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        with contextlib.suppress(OSError), socket.create_connection(listener.getsockname()):
            pass
        thread.join()
        listener.close()


def pages(replies: Mapping[str, bytes | tuple[int, bytes]]) -> Answer:
    """Return answers each path by its body (200) or (status, body), others by 404."""

    def answer(connection: socket.socket, path: str) -> None:
        reply = replies.get(path, (404, b"{}"))
        status, body = reply if isinstance(reply, tuple) else (200, reply)
        connection.sendall(http(body, status=status))

    return answer


def http(body: bytes, *headers: str, status: int = 200) -> bytes:
    """Return a whole HTTP reply."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Content-Type: text/plain", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def dripping(head: bytes) -> Answer:
    """Return sends `head`, then a byte now and then, for as long as somebody reads."""

    def answer(connection: socket.socket, path: str) -> None:
        connection.sendall(head)
        connection.settimeout(0.02)
        while True:
            connection.sendall(b"a")
            with contextlib.suppress(TimeoutError):
                if not connection.recv(1):
                    return

    return answer
