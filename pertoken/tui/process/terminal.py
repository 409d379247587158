"""Where screens are drawn: on standard output, as other programs do."""

from __future__ import annotations

import sys
from typing import Any

from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver


class TerminalDriver(LinuxDriver):
    """Textual's driver draws on standard error, so that `2>/dev/null` would leave the screen blank."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._file = sys.__stdout__


def on_standard_output(driver: type[Driver]) -> type[Driver]:
    """Return the driver to use in place of Textual's for a terminal; any other, as a browser's, stays."""
    return TerminalDriver if driver is LinuxDriver else driver
