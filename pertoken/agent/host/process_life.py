"""One process, from its start to its end."""

import os
import select
import weakref
from contextlib import suppress

from pertoken.agent.host.processes import start_ms


class ProcessLife:
    """One process from its start to its end; another one that is given its pid later is not it."""

    def __init__(self, pid: int, started_ms: int | None) -> None:
        """`started_ms` as `start_ms` returns it."""
        self.pid, self.started_ms = pid, started_ms
        self._poll: select.poll | None = None
        with suppress(OSError):  # a kernel before 5.3, no file descriptor left, or the process is gone
            fd = os.pidfd_open(pid)
            weakref.finalize(self, os.close, fd)
            self._poll = select.poll()
            self._poll.register(fd, select.POLLIN)
        # Compared after it was opened: what is open now is the process of that start.
        if start_ms(pid) != started_ms:
            self._poll = None

    def ended(self) -> bool:
        """Return whether it has ended. A file descriptor of a process costs a sixth of reading its start."""
        if self._poll is None:
            return start_ms(self.pid) != self.started_ms
        return bool(self._poll.poll(0))
