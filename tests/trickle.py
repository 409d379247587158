"""A peer that sends a byte now and then, for as long as it may."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

EVERY_S = 0.02


@contextmanager
def trickling(sock: socket.socket, first: bytes = b"") -> Iterator[None]:
    """Send `first`, then a byte every `EVERY_S` until the context ends or the other side has enough."""
    ended = threading.Event()

    def send() -> None:
        try:
            sock.sendall(first)
            while not ended.wait(EVERY_S):
                sock.sendall(b"a")
        except OSError:
            return

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()
