"""A webhook's receiver and a mail server on loopback."""

import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Receiver:
    """Posted requests, and the next reply."""

    url: str = ""
    posts: list[tuple[str, Mapping[str, str], bytes]] = field(default_factory=list)
    """(path, headers, body)."""
    statuses: list[int] = field(default_factory=list)
    """Of the next replies; 204 when there is none left."""


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Run a server that takes posts."""
    started = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            started.posts.append((self.path, dict(self.headers), body))
            self.send_response(started.statuses.pop(0) if started.statuses else 204)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        started.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield started
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def mail_server() -> Iterator[tuple[str, list[str]]]:
    """Run a server that takes mail; yield its address, and the texts it took."""
    taken: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 test\r\n")
            while line := self.rfile.readline():
                word = line.split()[0].upper() if line.split() else b""
                if word == b"DATA":
                    self.wfile.write(b"354 go\r\n")
                    text = b""
                    while (part := self.rfile.readline()) not in (b".\r\n", b""):
                        text += part
                    taken.append(text.decode())
                self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
                if word == b"QUIT":
                    return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", taken
        finally:
            server.shutdown()
            thread.join()
