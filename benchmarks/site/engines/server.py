"""A server process of an engine, on a port of loopback."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.request import urlopen

import psutil

from tests.llama import free_port

ROOT = Path(__file__).parents[3]
ALIAS = "site"
"""Name under which every server serves its model."""
END_S = 60.0
"""Longest time in which the processes of a killed server end."""
LOG_LINES = 20
"""Last lines of a log that are shown where a server does not start."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a server that a site changes."""

    model: str
    """Path of its weights."""
    slots: int
    context: int
    """Tokens of each slot."""
    threads: int
    kv_dtype: str


@dataclass(frozen=True, slots=True)
class Command:
    """Program that serves, without its port."""

    words: Sequence[str]
    """Arguments; `{port}` in one of them stands for the port."""
    start_s: float
    """Longest time until it serves."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables it has beside those of this process."""
    keeps_log: bool = False
    """Whether what it prints is kept while it runs, to be shown where it does not start."""


class Server:
    """One server on a port of loopback, while it is entered. It ends with all processes of its session."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._log: IO[bytes] | None = None
        port = str(free_port())
        self._words = [word.replace("{port}", port) for word in command.words]
        self.url = f"http://127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        assert self._process is not None
        return self._process.pid

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the running server and of all processes that it started."""
        return (self.pid, *(child.pid for child in psutil.Process(self.pid).children(recursive=True)))

    def __enter__(self) -> "Server":
        self._log = tempfile.TemporaryFile() if self._command.keeps_log else None
        self._process = subprocess.Popen(
            self._words,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=self._log or subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self._command.environment},
            start_new_session=True,
        )
        try:
            self._wait_until_it_serves(self._process)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        children = []
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self._process.pid).children(recursive=True)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        psutil.wait_procs(children, timeout=END_S)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process = None
        if self._log is not None:
            self._log.close()

    def _wait_until_it_serves(self, process: subprocess.Popen[bytes]) -> None:
        """Raise RuntimeError where it ends or stays silent for too long."""
        deadline = time.monotonic() + self._command.start_s
        while not self._serves():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"a server does not start: {' '.join(self._words)}{self._last_lines()}")
            time.sleep(0.05)

    def _last_lines(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        return "\n" + b"".join(self._log.readlines()[-LOG_LINES:]).decode(errors="replace")

    def _serves(self) -> bool:
        try:
            with urlopen(f"{self.url}/health", timeout=1) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False
