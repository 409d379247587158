"""Driver that draws the screens on standard output."""

import sys

from textual.drivers.headless_driver import HeadlessDriver
from textual.drivers.linux_driver import LinuxDriver

from pertoken.tui.app import PertokenApp
from pertoken.tui.process.terminal import TerminalDriver, on_standard_output
from tests.tui.reports import FixedSource


async def test_screens_are_drawn_on_standard_output_so_that_messages_can_go_elsewhere() -> None:
    app = PertokenApp(FixedSource())
    assert app.driver_class is TerminalDriver
    assert TerminalDriver(app)._file is sys.__stdout__


def test_another_driver_such_as_that_of_a_browser_is_left_alone() -> None:
    assert on_standard_output(HeadlessDriver) is HeadlessDriver
    assert on_standard_output(LinuxDriver) is TerminalDriver
