"""Driver that draws the screens on standard output."""

from __future__ import annotations

import select
import sys
from contextlib import suppress
from typing import Any

from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver


class TerminalDriver(LinuxDriver):
    """Driver for standard output: Textual's own draws on standard error, so `2>/dev/null` would blank the screen."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._file = sys.__stdout__

    def hung_up(self) -> bool:
        """Return whether the terminal is gone. That ends a program as a rule, but not one that `nohup` started."""
        poll = select.poll()
        with suppress(OSError):
            poll.register(self.fileno, 0)
            return any(state & (select.POLLHUP | select.POLLNVAL) for _, state in poll.poll(0))
        return True


def on_standard_output(driver: type[Driver]) -> type[Driver]:
    """Return `TerminalDriver` in place of Textual's driver for a terminal; other drivers are returned as they are."""
    return TerminalDriver if driver is LinuxDriver else driver
