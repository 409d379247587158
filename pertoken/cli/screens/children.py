"""Child processes of `pertoken up`: started again when they end, and ended with their parent."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pertoken.errors import PertokenError
from pertoken.units import format_duration

MAX_PAUSE_S = 60.0
SETTLED_S = 60.0
"""After running this long, a child is next restarted with the shortest pause, and its last end is no longer shown."""
STOP_S = 30.0
"""How long a child may take to store its last tick and end."""
_POLL_S = 0.25


class Watched(Protocol):
    """A process that may end while the screens are open."""

    def poll(self) -> None:
        """Check whether it ended, and restart it if it is our child."""

    def notice(self) -> str | None:
        """Return a line about its end for the screens; None while it runs."""


class Child:
    """A `pertoken COMMAND` that ends when this process does (its standard input ends), with its log in a file."""

    def __init__(
        self,
        name: str,
        command: str,
        options: list[str],
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.log = name, folder / f"{command}.log"
        self._arguments = [sys.executable, "-P", "-m", "pertoken", command, *options, "--with-parent"]
        self._clock = clock
        self._ends = 0
        """Consecutive ends, each sooner than `SETTLED_S` after its start."""
        self._ended_s: float | None = None
        self._why = ""
        folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        self._process = self._start()

    @property
    def pid(self) -> int:
        """Id of the running process, or of the last one."""
        return self._process.pid

    def end(self) -> str | None:
        """Return how it ended as text; None while it runs."""
        status = self._process.poll()
        if status is None:
            return None
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return f"ended with exit status {status}: {lines[-1] if lines else 'its log is empty'}"

    def poll(self) -> None:
        """Start it again if it ended: after 1 s, then twice as long each time."""
        now_s = self._clock()
        why = self.end()
        if why is None:
            return
        if self._ended_s is None or self._ended_s < self._started_s:
            self._ends = 1 if now_s - self._started_s >= SETTLED_S else self._ends + 1
            self._ended_s, self._why = now_s, why
            self._close_input()
        if now_s - self._ended_s >= self._pause_s:
            self._process = self._start()

    def notice(self) -> str | None:
        """Return how it ended and when it is or was restarted; None once it has run for `SETTLED_S` again."""
        if self._ended_s is None:
            return None
        now_s = self._clock()
        if self._started_s >= self._ended_s:
            if now_s - self._started_s >= SETTLED_S:
                return None
            ago = format_duration(now_s - self._ended_s)
            return f"The {self.name} {self._why}; it was started again ({ago} ago)."
        pause_s = max(0.0, self._pause_s - (now_s - self._ended_s))
        return f"The {self.name} {self._why}; it starts again in {format_duration(pause_s)}."

    def leave(self) -> None:
        """Make it end by closing its standard input."""
        self._close_input()

    def wait(self) -> None:
        """Wait for its end after `leave`. Raises PertokenError if it does not end."""
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise PertokenError(
                f"the {self.name} (pid {self.pid}) did not end within {STOP_S:.0f} s: look at {self.log}, "
                f"and end it with `kill {self.pid}`"
            ) from None

    @property
    def _pause_s(self) -> float:
        return min(MAX_PAUSE_S, 2.0 ** (self._ends - 1))

    def _start(self) -> subprocess.Popen[bytes]:
        self._started_s = self._clock()
        with self.log.open("ab") as log:
            # -P: never import a module from the working directory.
            return subprocess.Popen(
                self._arguments,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # ctrl+c goes to the screens; children end with their standard input
            )

    def _close_input(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()


class OtherAgent:
    """An agent that another user or program started: it is watched, and not restarted."""

    def __init__(self, owner: Callable[[], int | None], pid: int) -> None:
        self._owner, self._pid = owner, pid
        self._ended = False

    def poll(self) -> None:
        """Check whether an agent records."""
        pid = self._owner()
        self._ended, self._pid = pid is None, pid or self._pid

    def notice(self) -> str | None:
        """Return a line if it ended; None while an agent records."""
        if not self._ended:
            return None
        return (
            f"The agent (pid {self._pid}) has ended: nothing is recorded. Start it again, or leave and `pertoken up`."
        )


class Watch:
    """Thread that polls processes until it is closed."""

    def __init__(self, *watched: Watched) -> None:
        self._watched = watched
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="children", daemon=True)
        self._thread.start()

    def notice(self) -> str | None:
        """Return the first notice of any process."""
        return next((notice for process in self._watched if (notice := process.notice())), None)

    def close(self) -> None:
        """Stop polling; nothing is restarted afterwards."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_POLL_S):
            for process in self._watched:
                process.poll()
