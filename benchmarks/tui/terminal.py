"""A program on a pseudo-terminal, watched from outside: when it shows something, and the CPU it took until then."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from benchmarks.agent.usage import cpu_clock

DEADLINE_S = 120.0
_ESCAPES = re.compile(rb"\x1b(?:\[[0-9;?<>=!]*[ -/]*[@-~]|[()][0-9A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[=>78cDEHM])")


class Terminal:
    """One run of a command with a terminal and a home of its own; ended at the end of the block.

    In a person's home the screens would begin with the sort and the columns of the last run.
    """

    def __init__(
        self, command: Sequence[str], *, columns: int = 120, lines: int = 40, env: Mapping[str, str] = os.environ
    ) -> None:
        self._reader, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        # An installed package has its bytecode.
        environment = {name: value for name, value in env.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._home = tempfile.TemporaryDirectory()
        own = {"HOME": self._home.name, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        environment = {name: value for name, value in environment.items() if not name.startswith("XDG_")} | own
        self.began_s = time.perf_counter()
        self._process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=subprocess.DEVNULL, env=environment, start_new_session=True
        )
        os.close(terminal)
        self._text = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        os.close(self._reader)
        self._home.cleanup()

    def cpu_s(self) -> float:
        """Return the CPU seconds of the process so far, all threads."""
        return time.clock_gettime(cpu_clock(self._process.pid))

    def until(self, *texts: str) -> tuple[float, float]:
        """Wait until all texts were shown since the last key; return wall and CPU seconds since the start.

        Raises SystemExit if they are not shown within the deadline.
        """
        deadline = time.monotonic() + DEADLINE_S
        while not all(text.encode() in _ESCAPES.sub(b"", self._text) for text in texts):
            if time.monotonic() > deadline or not self._read(1.0):
                raise SystemExit(
                    f"{texts} was not shown: {_ESCAPES.sub(b' ', self._text)[-2000:].decode('utf-8', 'replace')}"
                )
        return time.perf_counter() - self.began_s, self.cpu_s()

    def press(self, keys: str) -> float:
        """Write keys, and return the seconds until something is drawn that was not before."""
        self.settle()
        began = time.perf_counter()
        os.write(self._reader, keys.encode())
        self._read(DEADLINE_S)
        return time.perf_counter() - began

    def answer(self, keys: str, *texts: str) -> float:
        """Write keys, and return the seconds until all texts are drawn after them."""
        began = time.perf_counter()
        os.write(self._reader, keys.encode())
        self.until(*texts)
        return time.perf_counter() - began

    def drain(self, seconds: float) -> None:
        """Let the program draw for some time."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self._read(left)
            self._text = b""

    def settle(self, quiet_s: float = 0.1) -> None:
        """Wait until nothing is drawn any more, and forget what was."""
        while select.select([self._reader], [], [], quiet_s)[0]:
            self._read(0)
        self._text = b""

    def _read(self, timeout_s: float) -> bool:
        """Read what is there; False once the process has ended."""
        if not select.select([self._reader], [], [], timeout_s)[0]:
            return self._process.poll() is None
        try:
            data = os.read(self._reader, 1 << 16)
        except OSError:
            return False
        self._text += data
        return bool(data)
