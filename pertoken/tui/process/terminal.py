"""Driver that draws the screens on standard output."""

from __future__ import annotations

import select
import sys
from contextlib import suppress
from typing import Any, TextIO

from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver


class Output:
    """Standard output that drops what is written after its terminal is gone.

    An error would end Textual's thread of output, and the program would wait for that thread for ever.
    """

    def __init__(self, file: TextIO | None) -> None:
        self.file = file

    def fileno(self) -> int:
        """Return its descriptor; -1 if the program was started without one."""
        return -1 if self.file is None else self.file.fileno()

    def write(self, text: str) -> None:
        """Write a text, if there still is a terminal."""
        with suppress(OSError):
            if self.file is not None:
                self.file.write(text)

    def flush(self) -> None:
        """Flush what was written, if there still is a terminal."""
        with suppress(OSError):
            if self.file is not None:
                self.file.flush()


class TerminalDriver(LinuxDriver):
    """Driver for standard output: Textual's own draws on standard error, so `2>/dev/null` would blank the screen."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        standard_error = sys.__stderr__
        sys.__stderr__ = Output(sys.__stdout__)  # type: ignore[assignment, misc]  # where Textual's driver will draw
        try:
            super().__init__(*arguments, **options)
        finally:
            sys.__stderr__ = standard_error  # type: ignore[misc]


def hung_up(terminal_fd: int) -> bool:
    """Return whether a terminal is gone. That ends a program as a rule, but not one that `nohup` started."""
    poll = select.poll()
    with suppress(OSError):
        poll.register(terminal_fd, 0)
        return any(state & (select.POLLHUP | select.POLLNVAL) for _, state in poll.poll(0))
    return True


def on_standard_output(driver: type[Driver]) -> type[Driver]:
    """Return `TerminalDriver` in place of Textual's driver for a terminal; other drivers are returned as they are."""
    return TerminalDriver if driver is LinuxDriver else driver
