"""A proxy to a server's unix socket that cuts, delays, doubles and truncates what passes."""

import random
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

FAULTS = ("drop", "delay", "duplicate", "truncate")


class Proxy:
    """Listens on a loopback port. Each chunk that passes is hurt with probability `hurt`, drawn from a seed."""

    def __init__(self, path: Path, seed: int, hurt: float) -> None:
        self._path, self._draw, self.hurt = path, random.Random(seed), hurt
        self.done: Counter[str] = Counter()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(self._path))
            except OSError:
                client.close()
                server.close()
                continue
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(source, target), name="proxy", daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while part := source.recv(65_536):
                fault = self._draw.choice(FAULTS) if self._draw.random() < self.hurt else None
                if fault:
                    self.done[fault] += 1
                if fault == "drop":
                    break
                if fault == "delay":
                    time.sleep(self._draw.uniform(0.01, 0.3))
                target.sendall(part[: len(part) // 2] if fault == "truncate" else part)
                if fault == "truncate":
                    break
                if fault == "duplicate":
                    target.sendall(part)
        except OSError:
            pass
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
