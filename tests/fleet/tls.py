"""TLS before a PostgreSQL server that was built without it: the server's side of the protocol's SSLRequest."""

import selectors
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import URL

SSL_REQUEST = bytes.fromhex("0000000804d2162f")


@contextmanager
def behind_tls(server: URL, context: ssl.SSLContext | None) -> Iterator[int]:
    """A port of 127.0.0.1 that leads to `server`'s socket. None: it answers that it speaks no TLS."""
    path = Path(str(server.query["host"])) / ".s.PGSQL.5432"
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    threading.Thread(target=_pass, args=(client, path, context), daemon=True).start()

        accepting = threading.Thread(target=serve, daemon=True)
        accepting.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        accepting.join()


def _pass(client: socket.socket, path: Path, context: ssl.SSLContext | None) -> None:
    with suppress(OSError), client, socket.socket(socket.AF_UNIX) as upstream:
        upstream.connect(str(path))
        if client.recv(8, socket.MSG_PEEK) == SSL_REQUEST:
            client.recv(8)
            if context is None:
                client.sendall(b"N")
            else:
                client.sendall(b"S")
                client = context.wrap_socket(client, server_side=True)
        with client, selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ, upstream)
            ready.register(upstream, selectors.EVENT_READ, client)
            while True:
                for key, _ in ready.select():
                    while data := key.fileobj.recv(65536):  # type: ignore[union-attr]
                        key.data.sendall(data)
                        if not (isinstance(key.fileobj, ssl.SSLSocket) and key.fileobj.pending()):
                            break
                    else:
                        return
