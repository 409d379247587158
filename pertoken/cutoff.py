"""Deadline for the whole use of a socket.

A socket's own timeout bounds each operation: a client that sends a byte every few seconds occupies a server for hours.
"""

import os
import socket
import threading
from contextlib import suppress
from types import TracebackType


class Cutoff:
    """Shuts a connection down if the context takes longer than a time: reads and writes then fail."""

    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        """`sock` may be wrapped for TLS meanwhile: a second handle of the connection is shut down."""
        self._handle = socket.socket(fileno=os.dup(sock.fileno()))
        self._timer = threading.Timer(timeout_s, self._cut)
        self._timer.name, self._timer.daemon = "cutoff", True
        self.passed = False
        """Whether the connection was cut."""

    def __enter__(self) -> "Cutoff":
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._timer.join()
        self._handle.close()

    def _cut(self) -> None:
        self.passed = True
        with suppress(OSError):  # the other side has left
            self._handle.shutdown(socket.SHUT_RDWR)
